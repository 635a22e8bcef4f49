"""Which trial is to blame where several died together.

Trials of one process: each is set apart, which means that it has a process of its own from then on, beside others.

Trials of several: when a node runs out of memory, Ray kills some worker there and gives up all trials of the round.
Whoever ran is a suspect. Suspects run alone, one after the other, and only what dies alone has died. A suspect that
gets past where it stood is cleared and makes room for the next; one that is suspected again runs alone to its end.
"""

from __future__ import annotations


class Suspects:
    """The trials under suspicion, and how far each had come."""

    def __init__(self) -> None:
        self._stood_at: dict[str, int] = {}
        self._cleared: set[str] = set()
        self._apart: set[str] = set()

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._stood_at

    def __len__(self) -> int:
        return len(self._stood_at)

    def add(self, trial_id: str, step: int) -> None:
        """Suspect a trial whose last step on record is `step`."""
        self._stood_at[trial_id] = step
        self.set_apart(trial_id)

    def set_apart(self, trial_id: str) -> None:
        """Have a trial share its process no more."""
        self._apart.add(trial_id)

    def may_share(self, trial_id: str) -> bool:
        """Whether a trial may share a process with others."""
        return trial_id not in self._apart

    def drop(self, trial_id: str) -> None:
        """Suspect a trial no longer: it has ended."""
        self._stood_at.pop(trial_id, None)

    def clear(self, trial_id: str, checkpoint_step: int | None) -> bool:
        """Clear a trial that has a checkpoint past where it stood. Returns: whether it is cleared now."""
        if checkpoint_step is None or trial_id in self._cleared or trial_id not in self:
            return False
        if checkpoint_step <= self._stood_at[trial_id]:
            return False
        self._cleared.add(trial_id)
        del self._stood_at[trial_id]
        return True
