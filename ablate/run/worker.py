"""The worker's side of a trial: calls the workload, buffers what it reports, catches what it raises.

Knows no Ray: `send` is all that it has of the driver.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ablate.run.assignment import Assignment, Ending
from ablate.run.outbox import Outbox, Send
from ablate.run.worker_output import Output
from ablate.workloads import load_object
from ablate.workloads.contract import Trial, TrialDiverged, TrialStopped

#: How faulthandler begins its account of a process whose time was up.
TIMEOUT_MARK = "Timeout ("


def run_trial(assignment: Assignment, device: str, send: Send) -> None:
    """Run one trial to its end, whatever that is; only the death of the process escapes.

    Args:
        assignment: the trial.
        device: `cpu` or `cuda`.
        send: hands a message to the driver; raises TrialStopped when the trial is to end.
    """
    output = Output(Path(assignment.output_file))
    with output.captured(), time_limit() as limit:
        if assignment.timeout_s is not None:
            limit(assignment.timeout_s)
        outbox = Outbox(assignment, output.unsent, send)
        with contextlib.closing(outbox), contextlib.suppress(TrialStopped):
            ending = _train(assignment, device, outbox)
            outbox.flush(ending=ending)


def _train(assignment: Assignment, device: str, outbox: Outbox) -> Ending:
    trial = trial_of(assignment, device, outbox)
    try:
        put_on_import_path(assignment)
        seed_global_streams(trial)
        metrics = load_object(assignment.train)(assignment.config, trial)
        report_final(metrics, trial, outbox)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises ends this trial alone
        if isinstance(error, TrialStopped) and outbox.stopped:
            raise
        return failed_ending(error, trial)
    return good_ending(trial, outbox)


def trial_of(assignment: Assignment, device: str, outbox: Outbox) -> Trial:
    """The trial as its function gets it."""
    checkpoint_dir = Path(assignment.checkpoint_dir)  # made here, since a worker may be on another machine
    checkpoint_dir.mkdir(parents=True, exist_ok=True)
    return Trial(
        seed=assignment.seed,
        replicate=assignment.replicate,
        device=device,
        checkpoint_dir=checkpoint_dir,
        shared_dir=Path(assignment.shared_dir),
        evaluation=assignment.evaluation,
        baseline=assignment.baseline,
        on_report=outbox.report,
        on_checkpoint=lambda step: outbox.flush(checkpoint_step=step),
    )


def put_on_import_path(assignment: Assignment) -> None:
    """See that the workload is found."""
    for folder in reversed(assignment.import_path):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def seed_global_streams(trial: Trial) -> None:
    """A reused process carries no random state from one trial to the next, even into code that uses global streams."""
    random.seed(trial.stream_seed("python"))
    np.random.seed(trial.stream_seed("numpy") % 2**32)  # noqa: NPY002 - the global stream is the point
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(trial.stream_seed("torch"))


def report_final(metrics: object, trial: Trial, outbox: Outbox) -> None:
    """Report what the function returned, at its last step, or one further where it says otherwise than a report.

    Raises: TypeError for what is no dict of metrics.
    """
    if metrics is None:
        metrics = {}
    if not isinstance(metrics, dict):
        raise TypeError(f"a trial function returns a dict of its final metrics, not {type(metrics).__name__}")
    if metrics:
        differs = any(
            name in outbox.last_row and outbox.last_row[name] != value and value == value
            for name, value in metrics.items()
        )
        trial.report(outbox.last_step + int(differs), metrics)


def good_ending(trial: Trial, outbox: Outbox) -> Ending:
    """The ending of a trial whose function has returned."""
    return Ending(metrics=dict(outbox.last_row), notes=trial.notes, texts=trial.texts)


def failed_ending(error: BaseException, trial: Trial) -> Ending:
    """The ending of a trial that an exception ended; its traceback is printed where it is a fault."""
    if isinstance(error, TrialStopped):
        return Ending("exception", f"TrialStopped was raised, but no one had asked for it: {error}", notes=trial.notes)
    if isinstance(error, TrialDiverged):
        return Ending("diverged", str(error) or "the objective is not finite", notes=trial.notes)
    traceback.print_exception(error)
    return Ending("exception", f"{type(error).__name__}: {error}", notes=trial.notes)


@contextlib.contextmanager
def time_limit() -> Iterator[Callable[[float], None]]:
    """End the process, with every thread's stack in its output, once its time is up: the only way out of a hang.

    Yields a function that sets how many seconds it has from now on; without a call it has all time.
    """
    with os.fdopen(os.dup(2), "w") as stderr:
        try:
            yield lambda seconds: faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
        finally:
            faulthandler.cancel_dump_traceback_later()
