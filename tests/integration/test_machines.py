"""A study on several machines, started with `ray start`, which come, go and share folders or do not."""

import contextlib
import subprocess

import pytest

from tests.integration.conftest import ABLATE
from tests.integration.machines import Machines, cannot
from tests.integration.recorded_once import assert_recorded_once
from tests.integration.test_nodes import WHERE, used_nodes

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
STUDY = """
study: toy
workload: where:train
baseline: {{x: 1.0, fault: none, steps: 4, sleep: 4.0, log: {log}}}
factors: {{fault: [none, other]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 5}}
metrics: {{primary: {{name: loss}}}}
run: {{address: '10.77.0.1:6379', retries: 1, resources: {{cpu: 1, licence: 1}}}}
"""


@pytest.fixture
def machines(monkeypatch):
    reason = cannot()
    if reason:
        pytest.skip(reason)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with contextlib.ExitStack() as stack:
        yield lambda count: Machines(stack, count)


@pytest.fixture
def shared(place):
    """A place that all machines see at the same path."""
    (place.path / "where.py").write_text(WHERE)
    place.write(STUDY.format(log=place.path / "executions.txt"))
    return place


def start(machines, place, *arguments):
    command = [ABLATE, "run", "study.yaml", *arguments]
    return machines.start(0, *command, cwd=place.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


LICENCE = '--resources={"licence": 1}'


@pytest.mark.parametrize("how", ["switch_off", "unplug"])
def test_a_study_goes_where_its_resources_are_and_survives_a_machine(machines, shared, how):
    cluster = machines(3)
    cluster.start_ray(0)
    cluster.wait_for_nodes(1)
    for number in (1, 2):  # one after the other: they share /tmp here, where Ray names its sockets
        cluster.start_ray(number, LICENCE)
        cluster.wait_for_nodes(number + 1)
    process = start(cluster, shared)
    shared.wait_for_executions(4)
    assert len(set(used_nodes(shared))) == 2, "the head has no licence"
    getattr(cluster, how)(1)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert len(shared.executions()) <= 10 + 1, "only what ran on the lost machine ran again"
    assert_recorded_once(shared, trials=10, steps=4)


@pytest.mark.parametrize(
    ("what", "extra", "message"),
    [
        ("runs", (), "does not see {path}/runs/toy; workers on several nodes need a run folder that all of them see: "
                     "name one with --runs DIR"),
        ("kept", ("--set", "run.storage={path}/kept"), "does not see {path}/kept/toy; a trial goes on from its "
                     "checkpoint on another node only where all of them see the folder"),
        ("code", (), "cannot import where:train (ModuleNotFoundError: No module named 'where'); the study file's "
                     "folder must be at the same path on every node, and what it imports be installed there"),
    ],
)  # fmt: skip
def test_a_folder_that_a_machine_does_not_share_is_named_before_any_trial(machines, shared, what, extra, message):
    cluster = machines(2)
    private = shared.path if what == "code" else shared.path / what
    private.mkdir(exist_ok=True)
    cluster.start_ray(0)
    cluster.wait_for_nodes(1)
    cluster.start_ray(1, LICENCE, own_disk=private)
    cluster.wait_for_nodes(2)
    process = start(cluster, shared, *(word.format(path=shared.path) for word in extra))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    named = {"runs": "run.address", "kept": "run.storage", "code": "workload"}[what]
    assert f"{named}: node 10.77.0.2 (" in err
    assert message.format(path=shared.path) in err
    assert shared.executions() == []
