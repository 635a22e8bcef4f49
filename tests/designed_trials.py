"""Trials frames of designed studies, with outcomes made by a known function of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

Truth = Callable[[Mapping[str, Any]], float]

METRIC = "eval/x"


def designed_trials(
    arms: Mapping[str, Mapping[str, Any]],
    truth: Truth,
    *,
    seeds: int = 8,
    noise: float = 0.0,
    seed_sd: float = 0.3,
    designs: Mapping[str, str] | None = None,
    rng_seed: int = 0,
) -> pd.DataFrame:
    """Arms (label -> configuration) by seeds; outcome = truth(configuration) + seed + noise.

    Args:
        designs: label -> names of its designs; `grid` where absent.
    """
    rng = np.random.default_rng(rng_seed)
    of_seed = rng.normal(0, seed_sd, seeds)
    rows = [
        {
            "trial_id": f"{label}/{seed}",
            "arm": label,
            "seed": seed,
            "replicate": 0,
            "designs": (designs or {}).get(label, "grid"),
            "state": "COMPLETE",
            "reason": "",
            **{f"config.{path}": value for path, value in config.items()},
            f"metric.{METRIC}": truth(config) + of_seed[seed] + rng.normal(0, noise),
        }
        for seed in range(seeds)
        for label, config in arms.items()
    ]
    return pd.DataFrame(rows)


def removal_label(config: Mapping[str, float]) -> str:
    """The label of an arm that takes the zeros of a configuration out."""
    return ", ".join(f"-{path}" for path, value in config.items() if value == 0) or "baseline"


def full_factorial(paths: str, *, with_empty: bool = False) -> dict[str, dict[str, float]]:
    """Every on/off configuration of the paths (one letter each), the baseline first, all off only if asked for."""
    configs = [dict(zip(paths, levels, strict=True)) for levels in product([1.0, 0.0], repeat=len(paths))]
    return {removal_label(c): c for c in configs if with_empty or any(c.values())}


def fraction(paths: str, generators: Mapping[str, tuple[int, str]]) -> dict[str, dict[str, float]]:
    """A regular two-level fraction (levels +1 on, -1 off), beside the baseline.

    Args:
        generators: path -> (sign, word): its level is the sign times the product of the word's.
    """
    base = [path for path in paths if path not in generators]
    arms = {"baseline": dict.fromkeys(paths, 1.0)}
    for levels in product([1, -1], repeat=len(base)):
        level = dict(zip(base, levels, strict=True))
        for path, (sign, word) in generators.items():
            level[path] = sign * int(np.prod([level[letter] for letter in word]))
        config = {path: float(level[path] > 0) for path in paths}
        arms[removal_label(config)] = config
    return arms
