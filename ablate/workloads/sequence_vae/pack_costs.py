"""What packs of several sizes cost on this machine, by training a few steps of each."""

from __future__ import annotations

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
"""A size is measured for so long at most, and a larger one is not begun once a smaller took longer for three steps."""

FEWEST_STEPS, MOST_STEPS = 3, 20


def pack_costs(
    config: Mapping[str, Any], table: ReferenceTable, sizes: Sequence[int], device: str
) -> dict[int, PackCost]:
    """Seconds a step and peak memory of packs of these sizes, smallest first.

    The peak is that of the process so far, so that of a smaller size is part of it.

    Returns: by size; without the sizes that would take too long to measure, which are the largest.
    """
    settings = trial_settings(config)
    plain = settings.model_copy(update={"reconstruction": settings.reconstruction.model_copy(update=_ALONE)})
    made: list[tuple[State, Setup]] = []
    found: dict[int, PackCost] = {}
    with one_thread():
        for size in sorted(sizes):
            made += [set_up(plain, table, Trial(seed=seed), device) for seed in range(len(made), size)]
            step_s = _median_s(_steps(made), device)
            found[size] = PackCost(step_s, _peak_bytes(device))
            if FEWEST_STEPS * step_s > BUDGET_S:
                break
    return found


_ALONE = {"rescale": None, "shares": None}
"""Of the section `reconstruction`: without what needs the baseline, which costs nothing in a step."""


def _steps(made: Sequence[tuple[State, Setup]]) -> Callable[[int], object]:
    """A function that takes a step of all these trials together."""
    setups = [setup for _, setup in made]
    models, states = [state.model for state, _ in made], [state.optimiser for state, _ in made]
    pack = ModelPack(models, [setup.settings.training for setup in setups], states)
    return lambda step: train_together(pack, setups, [step] * len(setups))


def _median_s(step: Callable[[int], object], device: str) -> float:
    step(0)
    times: list[float] = []
    while len(times) < FEWEST_STEPS or (sum(times) < BUDGET_S and len(times) < MOST_STEPS):
        started = time.perf_counter()
        step(len(times) + 1)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _peak_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
