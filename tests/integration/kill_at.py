"""Run a study again and again, without Ray, and die by SIGKILL at a chosen write each time but the last.

    python kill_at.py STUDY_FILE [MODULE:CLASS.METHOD,N,before|after]...

Everything that writes records is the real thing; trials run one by one in a process forked for each run, since
importing the stores costs more than running the study.
"""

import contextlib
import importlib
import math
import os
import signal
import sys
from pathlib import Path

import ablate.run.study as study_module
from ablate.run.invocation import RunOptions
from ablate.run.packed_worker import run_trials
from ablate.run.progress import ConsoleProgress
from ablate.run.study import execute
from ablate.spec.loading import load_study
from ablate.workloads import BUILT_IN, find_workload, import_path, load_object


class InProcess:
    """Stands where a Ray session stands."""

    def slots(self):
        return 1

    def ask_nodes(self, question, *arguments):
        return {}

    def measure_packs(self, function, config, shared_dir, sizes, import_path):
        return load_object(function)(config, shared_dir, sizes, "cpu")

    def ready(self, futures):
        return futures

    def pack_costs(self, future):
        return future, math.inf

    def run_round(self, driver, folder):
        while not driver.should_stop():
            assignments = driver.next_assignments()
            if not assignments:
                return
            run_trials(assignments, "cpu", sending(driver))
            driver.left([assignment.trial_id for assignment in assignments])


def sending(driver):
    """What a worker hands its messages to; as Tune does, it ends what the driver wants no more of."""

    def send(messages):
        return {message.trial_id for message in messages if driver.receive(message)}

    return send


@contextlib.contextmanager
def in_process(run):
    yield InProcess()


def die_at(target, count, when):
    module, _, path = target.partition(":")
    owner, name = path.split(".")
    cls = getattr(importlib.import_module(module), owner)
    method = getattr(cls, name)
    calls = 0

    def dying(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **keywords)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(cls, name, dying)


def run(file, kill=None):
    if kill is not None:
        target, count, when = kill.split(",")
        die_at(target, int(count), when)
    study_module.ray_session = in_process
    BUILT_IN["packed_toy"] = "packed_toy:WORKLOAD"
    with import_path(Path(file).parent):
        spec = load_study(file, workload_lookup=find_workload)
    return execute(spec, RunOptions(runs=Path("runs")), ConsoleProgress(spec.study)).exit_code


def run_forked(file, kill):
    child = os.fork()
    if child == 0:
        os._exit(run(file, kill))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    file, *kills = sys.argv[1:]
    for kill in kills:
        code = run_forked(file, kill)
        if code != -signal.SIGKILL:
            sys.exit(f"{kill}: exit {code}, it was never reached")
    return run_forked(file, None)


if __name__ == "__main__":
    sys.exit(main())
