"""What trials cost, by the time that finished ones took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Mean cost of a trial.

    Attributes:
        trial_s: mean seconds of a finished trial; None where none has finished.
        gpus: GPUs that a worker holds.
    """

    trial_s: float | None
    gpus: float = 0.0

    @property
    def known(self) -> bool:
        """Whether some trial has finished."""
        return self.trial_s is not None

    def worker_s(self, trials: int) -> float | None:
        """Seconds of one worker for so many trials."""
        return None if self.trial_s is None else trials * self.trial_s

    def gpu_hours(self, trials: int) -> float | None:
        """GPU-hours of so many trials."""
        return None if self.trial_s is None else trials * self.trial_s * self.gpus / 3600

    def text(self, trials: int) -> str:
        """In words: `1.2 h of one worker, 1.2 GPU-hours`."""
        seconds, hours = self.worker_s(trials), self.gpu_hours(trials)
        if seconds is None or hours is None:
            return "no trial is finished yet to tell how long one takes"
        gpu = f", {hours:.2g} GPU-hours" if hours else ""
        return f"{duration(seconds)} of one worker{gpu}"


def duration(seconds: float) -> str:
    """A duration in the unit that fits it."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
