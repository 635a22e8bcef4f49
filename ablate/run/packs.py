"""How many waiting trials go to a worker together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ablate.plan.model import PlannedTrial


@dataclass
class _Wave:
    """Packs that begin at about the same time, one on each worker: as many trials in each."""

    share: int
    packs_left: int


@dataclass
class Packs:
    """What may be trained together, and how many at a time.

    Attributes:
        key: what trials that can train together have in common; None for one that cannot.
        size: the most trials a pack. Trials are shared out evenly among the workers.
        sizes: where `size` is None: that by key; 1 for a key that is not there.
        slots: how many workers run at once.
    """

    key: Callable[[PlannedTrial], str | None] = lambda _trial: None
    size: int | None = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    slots: Callable[[], int] = lambda: 1
    _waves: dict[str, _Wave] = field(default_factory=dict)
    _keys: dict[str, str | None] = field(default_factory=dict)

    def take(self, waiting: deque[PlannedTrial], may_share: Callable[[str], bool]) -> list[PlannedTrial]:
        """Take the first waiting trial, and those further on, in their order, that are trained together with it.

        Args:
            waiting: not empty; what is taken is removed.
            may_share: whether a trial, by trial_id, may share a process.
        """
        first = waiting[0]
        key = self._key_of(first) if may_share(first.trial_id) else None
        most = 1 if key is None else self._most(key)
        if key is None or most == 1:
            return [waiting.popleft()]
        alike = [trial for trial in waiting if may_share(trial.trial_id) and self._key_of(trial) == key]
        taken = alike[: self._share(key, most, len(alike))]
        ids = {trial.trial_id for trial in taken}
        rest = [trial for trial in waiting if trial.trial_id not in ids]
        waiting.clear()
        waiting.extend(rest)
        return taken

    def _key_of(self, trial: PlannedTrial) -> str | None:
        if trial.trial_id not in self._keys:
            self._keys[trial.trial_id] = self.key(trial)
        return self._keys[trial.trial_id]

    def _most(self, key: str) -> int:
        return self.sizes.get(key, 1) if self.size is None else self.size

    def _share(self, key: str, most: int, count: int) -> int:
        """How many of `count` trials the next pack gets: of 20 for two workers and 8 at most, four times 5."""
        wave = self._waves.get(key)
        if wave is None or wave.packs_left == 0:
            slots = self.slots()
            rounds = math.ceil(count / (most * slots))
            wave = self._waves[key] = _Wave(math.ceil(count / (rounds * slots)), slots)
        wave.packs_left -= 1
        return wave.share
