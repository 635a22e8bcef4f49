"""What packs of several sizes cost on this machine, by training a few steps of each."""

from __future__ import annotations

import itertools
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ablate.workloads.contract import PackCost, Trial
from ablate.workloads.sequence_vae.checkpoint import State
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.reference import one_thread
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.training_pack import train_together
from ablate.workloads.sequence_vae.trial_setup import Setup, set_up, trial_settings

BUDGET_S = 3.0
"""Sizes are measured in turns for so long; a larger one is not begun where a turn of the last took a third of it."""

FEWEST_TURNS, MOST_TURNS = 3, 20

GAIN = 0.95
"""Nor is a larger one begun once two in a row have not taken less than this part of the least time a member."""


def pack_costs(
    config: Mapping[str, Any], table: ReferenceTable, sizes: Sequence[int], device: str
) -> dict[int, PackCost]:
    """Seconds a step and peak memory of packs of these sizes, in turns so that a busy machine slows all of them.

    The peak is that of the process so far, so that of a smaller size is part of it, and what members keep to be
    evaluated.

    Returns: by size, from the smallest on; without those that would take too long to measure or promise no gain.
    """
    settings = trial_settings(config)
    plain = settings.model_copy(update={"reconstruction": settings.reconstruction.model_copy(update=_ALONE)})
    made: list[tuple[State, Setup]] = []
    steps: dict[int, Step] = {}
    first: dict[int, float] = {}
    peaks: dict[int, int] = {}
    with one_thread():
        for size in sorted(sizes):
            made += [set_up(plain, table, Trial(seed=seed), device) for seed in range(len(made), size)]
            steps[size] = _step_of(made, device)
            _seconds(steps[size])
            first[size] = _seconds(steps[size])
            kept = sum(data.nbytes for data in made[0][1].held_out.values())
            peaks[size] = _peak_bytes(device) + size * kept
            if FEWEST_TURNS * first[size] > BUDGET_S or _no_gain(first):
                break
        medians = _medians(steps)
    return {size: PackCost(medians[size], peaks[size]) for size in steps}


Step = Callable[[], object]


def _no_gain(seconds: Mapping[int, float]) -> bool:
    """Whether the last two sizes gain nothing over a smaller one."""
    by_member = [taken / size for size, taken in seconds.items()]
    return len(by_member) > 2 and min(by_member[-2:]) > GAIN * min(by_member[:-2])


def _medians(steps: Mapping[int, Step]) -> dict[int, float]:
    times: dict[int, list[float]] = {size: [] for size in steps}
    began = time.perf_counter()
    for turn in range(MOST_TURNS):
        if turn >= FEWEST_TURNS and time.perf_counter() - began > BUDGET_S:
            break
        for size, step in steps.items():
            times[size].append(_seconds(step))
    return {size: statistics.median(taken) for size, taken in times.items()}


_ALONE = {"rescale": None, "shares": None}
"""Of the section `reconstruction`: without what needs the baseline, which costs nothing in a step."""


def _step_of(made: Sequence[tuple[State, Setup]], device: str) -> Step:
    """Takes the next step of all these trials together."""
    setups = [setup for _, setup in made]
    models, states = [state.model for state, _ in made], [state.optimiser for state, _ in made]
    pack = ModelPack(models, [setup.settings.training for setup in setups], states)
    number = itertools.count()

    def step() -> None:
        train_together(pack, setups, [next(number)] * len(setups))
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def _seconds(step: Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _peak_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
