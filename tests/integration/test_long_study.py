"""A thousand trials in one study: the driver's memory and file handles stay flat, its logs stay small."""

import subprocess
import sys

import pytest

from tests.integration.recorded_once import assert_recorded_once
from tests.integration.test_random_kills import HERE

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

STUDY = """
study: toy
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 3, sleep: 0.0, log: {log}}}
factors: {{fault: [none, a, b, c]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 250}}
metrics: {{primary: {{name: loss}}}}
"""
MEASURED = """
import os
import sys
import tests.integration.kill_at as harness
from ablate.run.trial_queue import TrialQueue

ended, of = TrialQueue._ended, {}


def measure(queue, trial_id, outcome):
    ended(queue, trial_id, outcome)
    of[len(of) + 1] = (
        int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(os.listdir("/proc/self/fd")),
    )


TrialQueue._ended = measure
code = harness.run("study.yaml")
print(*of[100], *of[1000], max(memory for memory, _ in of.values()))
sys.exit(code)
"""


def test_memory_and_handles_are_flat_over_a_thousand_trials(place):
    place.write(STUDY.format(log=place.path / "executions.txt"))
    environment = {"PYTHONPATH": str(HERE.parent.parent), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", MEASURED]
    done = subprocess.run(command, cwd=place.path, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    then, handles_then, now, handles_now, highest = map(float, done.stdout.split()[-5:])
    print(f"after 100 trials: {then:.0f} MB, {handles_then:.0f} handles; after 1,000: {now:.0f} MB, {handles_now:.0f}")
    print(f"at most {highest:.0f} MB; {len(done.stderr)} bytes of messages")
    assert now - then < 50
    assert handles_now <= handles_then
    assert len(done.stderr) < 100_000
    assert_recorded_once(place, trials=1000, steps=3)
