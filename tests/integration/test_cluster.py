"""A study on a Ray cluster that exists already."""

import os
import subprocess
import sys

import pytest

from tests.integration.test_faults import study_text

pytestmark = pytest.mark.slow

CLUSTER = """
import ray, sys
own = {"address": "local", "include_dashboard": False}
ray.init(**own, num_cpus=2, num_gpus=1, resources={"licence": 1}, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def address(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CLUSTER],
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path,
    ) as cluster:  # fmt: skip
        yield cluster.stdout.readline().strip()
        cluster.stdin.close()
        cluster.wait()


def test_resources_of_a_cluster_are_asked_for_and_given(place, address, monkeypatch):
    """The GPU is Ray's word for it: what is tested is that fractions are placed and the trial is told `cuda`."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    text = study_text(place, seeds=2).replace("timeout_s", f"address: '{address}', timeout_s")
    place.write(text)
    _, err = place.ablate("run", "study.yaml", "--set", "run.resources={cpu: 1, magic: 1}", code=2)
    assert err.endswith(
        "run.resources.magic: 1 asked for each worker; the cluster has 0; lower it in the study file or with "
        "--set run.resources.magic=0\n"
    )
    place.ablate("run", "study.yaml", "--set", "run.resources={cpu: 0.5, gpu: 0.5, licence: 0.25}")
    assert set(logged_devices(place)) == {"device cuda"}
    assert place.study().trials()["state"].tolist() == ["COMPLETE"] * 4


def test_a_cluster_that_is_not_there_is_named(place):
    place.write(study_text(place))
    _, err = place.ablate("run", "study.yaml", "--set", "run.address='127.0.0.1:1'", code=2)
    assert err == (
        "run.address: got '127.0.0.1:1'; no Ray cluster answers there; see that it runs, and that "
        "RAY_AUTH_MODE and the authentication token are the same here as there\n"
    )
    assert not (place.path / "runs").exists()


def logged_devices(place):
    logs = [path.read_text() for path in place.path.glob("runs/toy/trials/*/log.txt")]
    return [line for log in logs for line in log.splitlines() if line.startswith("device ")]
