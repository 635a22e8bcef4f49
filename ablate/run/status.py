"""Where a study stands: counts by state, failures with reasons, time left."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ablate.record.frames import Study
from ablate.run.progress import duration, seconds_left
from ablate.run.summary import Failure, failures_of

STATES = ("WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAIL")


@dataclass(frozen=True)
class Status:
    """Where a study stands.

    Attributes:
        states: number of planned trials in each state.
        holder: the process that runs it now, or None.
        eta_s: seconds left by the pace of finished trials, or None.
        to_come: trials of searches that no one can name yet.
    """

    study: str
    states: dict[str, int]
    failures: tuple[Failure, ...]
    holder: str | None
    eta_s: float | None
    to_come: int = 0

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        failures = [
            {"trial_id": f.trial_id, "arm": f.arm, "seed": f.seed, "reason": f.reason, "error": f.error}
            for f in self.failures
        ]
        return {
            "study": self.study,
            "states": self.states,
            "failures": failures,
            "running": self.holder is not None,
            "holder": self.holder,
            "eta_s": self.eta_s,
            "to_come": self.to_come,
        }

    def as_line(self) -> str:
        """In one line."""
        counts = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        counts += f", {self.to_come} to come of searches" if self.to_come else ""
        held = f"; run by {self.holder}" if self.holder else ""
        left = f"; about {duration(self.eta_s)} left" if self.eta_s is not None and self.eta_s >= 1 else ""
        return f"{self.study}: {counts}{held}{left}"

    def as_text(self) -> str:
        """With every failure."""
        lines = [self.as_line()]
        for failure in self.failures:
            first = failure.error.splitlines()[0] if failure.error else ""
            lines.append(f"  FAIL {failure.arm} · seed {failure.seed} ({failure.trial_id}) {failure.reason}: {first}")
        return "\n".join(lines)


def busy_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of these trials ran, from when each began and how long it lasted."""
    ran, until = 0.0, -math.inf
    for began, lasted in sorted(spans):
        ran += max(began + lasted - max(began, until), 0.0)
        until = max(until, began + lasted)
    return ran


def worker_s(study: Study, started: Iterable[datetime], lasted: Iterable[float]) -> float | None:
    """Mean seconds of one worker that trials took, from when they began and how long they lasted; None without any.

    On this machine no worker is counted twice for trials that it trained together.
    """
    ended = _spans(started, lasted)
    if not ended:
        return None
    mean = sum(seconds for _, seconds in ended) / len(ended)
    return mean if study.spec.run.address is not None else min(mean, busy_s(ended) / len(ended) * _slots(study))


def _spans(started: Iterable[datetime], lasted: Iterable[float]) -> list[tuple[float, float]]:
    """When each trial that has ended began, and how long it lasted."""
    times = zip(started, lasted, strict=True)
    return [(began.timestamp(), float(seconds)) for began, seconds in times if seconds == seconds]


def _slots(study: Study) -> int:
    return max(1, int((os.cpu_count() or 1) / study.spec.run.resources.cpu))


def status_of(study: Study) -> Status:
    """Where a study stands now."""
    frame = study.trials()
    counts = Counter(frame["state"]) if len(frame) else Counter()
    planned = {trial.trial_id for trial in study.plan.trials}
    entries = [entry for trial_id, entry in study.latest.items() if trial_id in planned]
    to_come = sum(part.trials for part in study.plan.pending)
    left = counts["WAITING"] + counts["RUNNING"] + to_come
    return Status(
        study.spec.study,
        {state: counts[state] for state in STATES},
        failures_of(entries),
        study.folder.holder(),
        _eta_s(frame["started"], frame["duration_s"], frame["state"], left) if left and len(frame) else None,
        to_come,
    )


def _eta_s(started: Iterable[datetime], lasted: Iterable[float], states: Iterable[str], left: int) -> float | None:
    """Seconds that so many trials take, those that run among them; None before one has ended."""
    now = time.time()
    spans, ages, lasted_s, failed = [], [], [], 0
    for began, seconds, state in zip(started, lasted, states, strict=True):
        if state == "RUNNING":
            ages.append(max(now - began.timestamp(), 0.0))
            spans.append((began.timestamp(), ages[-1]))
        elif seconds == seconds:
            spans.append((began.timestamp(), seconds))
            lasted_s += [seconds] if state != "FAIL" else []
            failed += state == "FAIL"
    return seconds_left(failed + len(lasted_s) + left, failed, lasted_s, ages, busy_s(spans))
