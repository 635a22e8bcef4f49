"""A driver that is killed again and again, whenever it happens to be."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration import packed_toy
from tests.integration.random_kills import wait
from tests.integration.recorded_once import assert_recorded_once

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

HERE = Path(__file__).parent
SEED = 20
KILLS_WITHOUT_RAY, KILLS_WITH_RAY, KILLS_OF_PACKS = 35, 15, 12
STUDY = """
study: toy
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 3, sleep: 0.3, log: {log}}}
factors: {{fault: [none, a, b]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 30}}
metrics: {{primary: {{name: loss}}}}
"""


def run_without_ray(place, script, *arguments):
    command = [sys.executable, "-m", f"tests.integration.{script}", "study.yaml", *map(str, arguments)]
    environment = {"PYTHONPATH": str(HERE.parent.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=place.path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_fifty_kills_at_random_times_lose_and_double_nothing(place, tmp_path_factory):
    text = STUDY.format(log=place.path / "executions.txt")
    place.write(text)
    log = place.path / "executions.txt"
    run_without_ray(place, "random_kills", KILLS_WITHOUT_RAY, 4.0, SEED, log)
    rng = random.Random(SEED)
    for number in range(KILLS_WITH_RAY):
        process = place.start("run", "study.yaml")
        wait(number, 8.0, rng, log, lambda victim=process: victim.poll() is not None)
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()
    disturbed = len(place.executions())
    place.ablate("run", "study.yaml")
    assert_recorded_once(place, trials=90, steps=3)

    executions = Counter((fault, seed) for fault, seed, _ in place.executions())
    again = sum(executions.values()) - 90
    print(
        f"{KILLS_WITHOUT_RAY} + {KILLS_WITH_RAY} kills, {disturbed} starts of trials before the last run, {again} again"
    )
    other = type(place)(tmp_path_factory.mktemp("undisturbed"))
    (other.path / "toy_workload.py").write_text((place.path / "toy_workload.py").read_text())
    other.write(text)
    run_without_ray(other, "kill_at")
    assert other.final_metrics() == place.final_metrics()
    assert set(other.study().trials()["trial_id"]) == set(place.study().trials()["trial_id"])


def test_kills_of_a_packed_study_at_random_times_lose_and_double_nothing(packed_place):
    place = packed_place
    log = place.path / "executions.txt"
    text = STUDY.format(log=log).replace("toy_workload:train", "packed_toy")
    place.write(f"{text.replace('count: 30', 'count: 10')}run: {{pack: 4}}\n")
    run_without_ray(place, "random_kills", KILLS_OF_PACKS, 4.0, SEED, log)
    run_without_ray(place, "kill_at")
    assert_recorded_once(place, trials=30, steps=3)
    print(f"{KILLS_OF_PACKS} kills, {len(place.executions()) - 30} starts again")
    found = place.final_metrics()
    for seed in range(10):
        value = packed_toy.alone(place.path / f"alone-{seed}", seed, steps=3)
        assert {found[arm, seed] for arm in ("baseline", "fault=a", "fault=b")} == {value}
