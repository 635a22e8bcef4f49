"""How far a study is: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ablate.plan.model import PlannedTrial
from ablate.record.optuna_storage import Outcome

#: Where no terminal shows a live line, a line is printed at most this often.
PLAIN_INTERVAL_S = 10.0


class StudyProgress(Protocol):
    """Who is told how far a study is."""

    def say(self, text: str) -> None:
        """Something happened."""

    def warn(self, text: str) -> None:
        """Something happened that the user should know."""

    def trials(self, planned: int, to_run: int, slots: int) -> contextlib.AbstractContextManager[None]:
        """Trials run while the context lasts."""

    def expect(self, to_run: int) -> None:
        """So many trials are to run in all, as far as it is known now."""

    def started(self, trial: PlannedTrial) -> None:
        """A trial was handed to a worker."""

    def ended(self, trial: PlannedTrial, outcome: Outcome) -> None:
        """A trial has ended."""

    def put_back(self, trial: PlannedTrial, why: str) -> None:
        """A trial waits again."""


class ConsoleProgress:
    """Writes to a console, standard error by default."""

    def __init__(self, study: str, console: Console | None = None) -> None:
        self._study = study
        self._console = console or Console(stderr=True)
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._lasted: list[float] = []
        self._failed = 0
        self._running: dict[str, float] = {}  # trial_id -> when it began
        self._to_run = 0
        self._began = 0.0
        self._printed_at = 0.0

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"{self._study}: {text}", markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a line that stands out."""
        self._console.print(f"{self._study}: {text}", markup=False, highlight=False, soft_wrap=True, style="yellow")

    @contextlib.contextmanager
    def trials(self, planned: int, to_run: int, slots: int) -> Iterator[None]:
        """Show the live line while trials run."""
        self._to_run, self._began = to_run, time.monotonic()
        done = planned - to_run
        self.say(f"{to_run} trials to run on {slots} workers" + (f", {done} already recorded" if done else ""))
        if not self._console.is_terminal:
            yield
            self._print_plain()
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Bar(*columns, TimeElapsedColumn(), console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task(self._study, total=to_run, note="")
            try:
                yield
            finally:
                self._bar.refresh()
        self._bar = None
        self.say(self._line())

    def expect(self, to_run: int) -> None:
        """Count on another number of trials."""
        self._to_run = to_run
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=to_run)

    def started(self, trial: PlannedTrial) -> None:
        """Count a trial that began."""
        self._running[trial.trial_id] = time.monotonic()
        self._refresh()

    def ended(self, trial: PlannedTrial, outcome: Outcome) -> None:
        """Count a trial that ended; name it where it failed."""
        lasted = time.monotonic() - self._running.pop(trial.trial_id)
        if outcome.state != "FAIL":
            self._lasted.append(lasted)
        else:
            self._failed += 1
            first = outcome.error.splitlines()[0] if outcome.error else ""
            self.warn(f"{trial.arm.label} · seed {trial.seed} failed, {outcome.reason}: {first} ({trial.trial_id})")
        self._refresh()

    def put_back(self, trial: PlannedTrial, why: str) -> None:
        """Count a trial that waits again."""
        del self._running[trial.trial_id]
        if why != "stopped":
            self.warn(f"{trial.arm.label} · seed {trial.seed}: {why}")
        self._refresh()

    def _refresh(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._ended(), note=self._note())
        elif time.monotonic() - self._printed_at > PLAIN_INTERVAL_S:
            self._print_plain()

    def _print_plain(self) -> None:
        self._printed_at = time.monotonic()
        self.say(self._line())

    def _line(self) -> str:
        return f"{self._ended()} of {self._to_run} done, {self._note()}"

    def _note(self) -> str:
        failed = f"{self._failed} failed, " if self._failed else ""
        return f"{failed}{len(self._running)} running{self._eta()}"

    def _ended(self) -> int:
        return len(self._lasted) + self._failed

    def _eta(self) -> str:
        now = time.monotonic()
        ages = [now - began for began in self._running.values()]
        left = seconds_left(self._to_run, self._failed, self._lasted, ages, now - self._began)
        return "" if left is None or left < 1 else f", about {duration(left)} left"


def seconds_left(
    trials: int, failed: int, lasted: Sequence[float], ages: Sequence[float], ran_s: float
) -> float | None:
    """Seconds left by the pace so far; None before a trial has come to an end without failing.

    A trial that runs is done for the share of the mean duration d that it has run, since those of a pack end together:
    x = n_ended + sum_i min(age_i / d, 1),  r = ran (n - x) / x.

    Args:
        trials: n, in all.
        failed: how many have failed, which may take no time at all.
        lasted: seconds of each other that has ended.
        ages: seconds since each that runs began.
        ran_s: seconds in which at least one ran.
    """
    if not lasted:
        return None
    mean = sum(lasted) / len(lasted)
    done = failed + len(lasted) + sum(min(age / mean, 1.0) if mean > 0 else 1.0 for age in ages)
    return ran_s * max(trials - done, 0.0) / done


def duration(seconds: float) -> str:
    """A duration in words: `45 s`, `3 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
