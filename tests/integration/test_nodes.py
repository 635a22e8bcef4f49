"""Nodes of a Ray cluster that are lost and that join in the middle of a study."""

import contextlib
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from ablate.workloads.contract import Trial
from tests.integration.recorded_once import assert_recorded_once

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

NODES_AT = Path(__file__).parent / "nodes_at.py"
WHERE = """
import ray
import toy_workload


def train(config, trial):
    with open(config["log"] + ".nodes", "a") as file:
        file.write(ray.get_runtime_context().get_node_id() + "\\n")
    return toy_workload.train(config, trial)
"""
STUDY = """
study: toy
workload: where:train
baseline: {{x: 1.0, fault: none, steps: 4, sleep: {sleep}, log: {log}}}
factors: {{fault: [none, other]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
run: {{address: '{address}', retries: 1}}
"""


class Nodes:
    """The cluster that another process keeps."""

    def __init__(self, process):
        self._process = process
        self.address = self._read()

    def _read(self):
        return self._process.stdout.readline().strip()

    def tell(self, line):
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._read() == "done"


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with contextlib.ExitStack() as stack:

        def start(head_cpus, node_cpus):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", NODES_AT, str(head_cpus), str(node_cpus)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path,
                )
            )  # fmt: skip
            stack.callback(process.stdin.close)
            return Nodes(process)

        yield start


def write(place, address, seeds, sleep):
    (place.path / "where.py").write_text(WHERE)
    place.write(STUDY.format(log=place.path / "executions.txt", address=address, seeds=seeds, sleep=sleep))


def used_nodes(place):
    return (place.path / "executions.txt.nodes").read_text().split()


@pytest.mark.parametrize("how", ["remove", "kill-raylet"])
def test_a_node_that_joins_is_used_and_one_that_is_lost_costs_what_it_ran(place, nodes, how):
    cluster = nodes(1, 1)
    write(place, cluster.address, seeds=10, sleep=4.0)
    process = place.start("run", "study.yaml")
    place.wait_for_executions(2)
    assert len(set(used_nodes(place))) == 1
    cluster.tell("add")
    while len(set(used_nodes(place))) == 1:
        assert process.poll() is None, "the node that joined was never used"
        time.sleep(0.1)
    cluster.tell(how)
    place.wait_for_executions(len(place.executions()) + 2)
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    starts = Counter((fault, seed) for fault, seed, _ in place.executions())
    again = {trial: count for trial, count in starts.items() if count > 1}
    assert len(again) <= 1, "only what ran on the lost node ran again"
    assert place.ablate("check", "toy")[0] == "the records agree\n"
    trials = place.study().trials().query("state != 'WAITING'")
    assert set(trials["state"]) == {"COMPLETE"}
    assert trials["metric.loss"].tolist() == [
        1.0 + Trial(seed=seed).rng("noise").normal(size=4)[-1] for seed in trials["seed"]
    ]
    print(f"{how}: {len(trials)} trials complete, {len(again)} of them begun twice")


def test_the_death_of_a_studys_own_ray_is_named_and_the_next_run_goes_on(place):
    (place.path / "where.py").write_text(WHERE)
    text = STUDY.format(log=place.path / "executions.txt", address="", seeds=6, sleep=2.0).replace("address: '', ", "")
    place.write(text)
    process = place.start("run", "study.yaml")
    place.wait_for_executions(3)
    raylets = [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "raylet"]
    assert len(raylets) == 1
    raylets[0].kill()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert re.search(r"ablate: Ray died \(.*\); the same command goes on from here", err), err
    place.ablate("run", "study.yaml")
    assert_recorded_once(place, trials=12, steps=4)
