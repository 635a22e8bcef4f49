import subprocess
import sys

LEFT_BEHIND = """
import ablate.run.ray_tune.session
import ray
try:
    ray.put(1)
except ray.exceptions.RaySystemError as error:
    print(error)
"""


def test_a_thread_left_behind_on_a_dead_cluster_joins_no_other():
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=120)
    assert "Ray has not been started yet" in done.stdout, done
