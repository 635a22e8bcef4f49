"""How many trials are worth training together: measured before the first trial, on the machine that trains them."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.plan.model import PlannedTrial
from ablate.run.progress import StudyProgress, duration
from ablate.run.ray_tune.session import Session
from ablate.run.stopping import StopRequest
from ablate.spec.models import Run
from ablate.workloads.contract import PackCost, Workload

SIZES = (1, 2, 4, 8, 16, 32)
#: Trials that take no longer than this in all are trained one by one: measuring takes about what packs could save.
SHORT_STUDY_S = 60.0
#: A pack has to take at most so much of the time that its members take alone.
WORTH = 0.9
#: The smallest pack is taken that takes at most so much more than the fastest.
TIE = 1.03
#: Share of a worker's memory that a pack may take.
MEMORY_SHARE = 0.8


def best_size(costs: Mapping[int, PackCost], room_bytes: float) -> int:
    """The size of pack with the least seconds a step and member, among those with room; 1 where none is worth it.

    Args:
        costs: by size; 1 among them.
        room_bytes: memory that a worker has.
    """
    fitting = {
        size: cost.step_s / size
        for size, cost in sorted(costs.items())
        if size == 1 or cost.peak_bytes <= MEMORY_SHARE * room_bytes
    }
    fastest = min(fitting.values())
    if fastest > WORTH * fitting[1]:
        return 1
    return next(size for size, seconds in fitting.items() if seconds <= min(TIE * fastest, WORTH * fitting[1]))


def candidates(trials: int, slots: int) -> tuple[int, ...]:
    """The sizes that so many trials can fill on every worker."""
    return tuple(size for size in SIZES if size <= math.ceil(trials / slots))


def place_of(hardware: Mapping[str, Any], code: str, run: Run, slots: int) -> str:
    """A hash of all that makes packs cost what they do, beside their kind."""
    place = [dict(hardware), code, run.resources.model_dump(), run.address, slots]
    return hashlib.sha256(json.dumps(place, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Measured:
    """What packs of one kind cost, where it was measured.

    Attributes:
        where: hash of machine, code and resources; on others it says nothing.
        tried: sizes that were measured; one that is not in `costs` did not fit.
    """

    where: str
    tried: tuple[int, ...]
    costs: dict[int, PackCost]
    room_bytes: float

    def to_fact(self) -> dict[str, Any]:
        """As a JSON value."""
        costs = {str(size): [cost.step_s, cost.peak_bytes] for size, cost in self.costs.items()}
        return {"where": self.where, "tried": list(self.tried), "costs": costs, "room_bytes": self.room_bytes}

    @staticmethod
    def from_fact(fact: Mapping[str, Any]) -> Measured:
        """The inverse of to_fact."""
        costs = {int(size): PackCost(*cost) for size, cost in fact["costs"].items()}
        return Measured(fact["where"], tuple(fact["tried"]), costs, fact["room_bytes"])


#: Measures packs of these sizes; None where that failed or the study is to stop.
Measure = Callable[[Mapping[str, Any], Sequence[int]], Measured | None]


def measure_in_worker(
    session: Session,
    workload: Workload,
    shared_dir: Path,
    import_path: tuple[str, ...],
    where: str,
    stop: StopRequest,
    progress: StudyProgress,
) -> Measure:
    """What measures packs in a worker like those that train."""
    assert workload.pack_costs is not None
    function = workload.pack_costs

    def measure(config: Mapping[str, Any], sizes: Sequence[int]) -> Measured | None:
        future = session.measure_packs(function, config, shared_dir, sizes, import_path)
        while not session.ready({"": future}):
            if stop.reason:
                session.cancel({"": future})
                return None
        try:
            costs, room = session.pack_costs(future)
        except Exception as error:  # noqa: BLE001 - the workload's own code may raise anything, and one by one goes too
            progress.warn(f"packs could not be measured ({type(error).__name__}: {error})")
            return None
        return Measured(where, tuple(sizes), costs, room)

    return measure


def pack_key_of(workload: Workload) -> Callable[[PlannedTrial], str | None]:
    """What tells which trials can train together: a hash of their `pack_key`; None for one that trains alone."""

    def key_of(trial: PlannedTrial) -> str | None:
        key = None if workload.pack_key is None else workload.pack_key(trial.config)
        return None if key is None else hashlib.sha256(key.encode()).hexdigest()[:16]

    return key_of


def pack_sizes(
    trials: Iterable[PlannedTrial],
    workload: Workload,
    slots: int,
    known: Mapping[str, Measured],
    measure: Measure,
    say: Callable[[str], None],
) -> tuple[dict[str, int], dict[str, Measured]]:
    """The size of pack for each kind of waiting trials.

    Args:
        known: what was measured before, in the same place, by the key that `pack_key_of` gives.
        measure: called for each kind with at least two trials of which that is not known.
        say: is told what was found.
    Returns: the sizes by that key, and all that is known now.
    """
    key_of = pack_key_of(workload)
    kinds: dict[str, list[PlannedTrial]] = defaultdict(list)
    for trial in trials:
        if (key := key_of(trial)) is not None:
            kinds[key].append(trial)
    sizes, found = {}, dict(known)
    for key, alike in kinds.items():
        wanted = candidates(len(alike), slots)
        if len(wanted) == 1:
            continue
        measured = found.get(key)
        if measured is None or not set(wanted) <= set(measured.tried):
            measured = _measure_unless_short(alike, workload, slots, wanted, measure, say)
        if measured is None or 1 not in measured.costs:
            continue
        found[key] = measured
        costs = {size: cost for size, cost in measured.costs.items() if size in wanted}
        sizes[key] = best_size(costs, measured.room_bytes)
        say(_account(len(alike), sizes[key], costs))
    return sizes, found


def _measure_unless_short(
    trials: Sequence[PlannedTrial],
    workload: Workload,
    slots: int,
    sizes: Sequence[int],
    measure: Measure,
    say: Callable[[str], None],
) -> Measured | None:
    config = trials[0].config
    say(f"measuring what training some of {len(trials)} trials together would save")
    if workload.steps is not None:
        alone = measure(config, (1,))
        if alone is None or 1 not in alone.costs:
            return None
        seconds = alone.costs[1].step_s * sum(workload.steps(trial.config) for trial in trials) / slots
        if seconds < SHORT_STUDY_S:
            say(f"{len(trials)} trials are trained one by one: their steps take some {duration(seconds)} in all")
            return None
    return measure(config, sizes)


def _account(trials: int, size: int, costs: Mapping[int, PackCost]) -> str:
    alone = f"alone {_ms(costs[1].step_s)} a step"
    if size > 1:
        together = _ms(costs[size].step_s / size)
        return f"{trials} trials are trained in packs of up to {size}: {together} a step and trial, {alone}"
    tried = ", ".join(str(each) for each in costs if each > 1)
    return f"{trials} trials are trained one by one, {alone}: packs of {tried} gain less than {1 - WORTH:.0%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.{0 if seconds >= 0.1 else 1}f} ms"
