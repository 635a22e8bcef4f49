"""What other seeds might have shown: ranks and Pareto fronts over bootstrap samples of whole seed blocks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.analysis.outcomes import arms_of, outcomes

Array = npt.NDArray[np.float64]

RESAMPLES = 2000


def rank_uncertainty(
    trials: pd.DataFrame, *, metric: str, goal: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Rank of each arm (1 is best) with its interval over resampled seeds, and how often it comes first.

    Seeds are drawn with replacement as whole blocks; ties share their mean rank. Arms without a value at every
    common seed are left out: their mean would be over other seeds.

    Returns: `arm, n, mean, rank, low, high, p_best`, best first; empty below two arms or two seeds.
    """
    values, arms = complete_block(trials, [metric], baseline)
    if len(arms) < 2 or len(values[metric]) < 2:
        return pd.DataFrame(columns=["arm", "n", "mean", "rank", "low", "high", "p_best"])
    sign = 1.0 if goal == "minimize" else -1.0
    block = sign * values[metric]
    means = block[_draws(len(block))].mean(axis=1)
    ranks = pd.DataFrame(means).rank(axis=1).to_numpy(dtype=float)
    best = means == means.min(axis=1, keepdims=True)
    table = pd.DataFrame(
        {
            "arm": arms,
            "n": len(block),
            "mean": sign * block.mean(axis=0),
            "rank": pd.Series(block.mean(axis=0)).rank().to_numpy(),
            "low": np.quantile(ranks, alpha / 2, axis=0),
            "high": np.quantile(ranks, 1 - alpha / 2, axis=0),
            "p_best": (best / best.sum(axis=1, keepdims=True)).mean(axis=0),
        }
    )
    return table.sort_values(["rank", "arm"], kind="stable").reset_index(drop=True)


def pareto(trials: pd.DataFrame, *, goals: Mapping[str, str], baseline: str = "baseline") -> pd.DataFrame:
    """Arms that no other arm beats on every metric, and how often that holds over resampled seeds.

    Args:
        goals: metric -> `minimize` or `maximize`; two or more.
    Returns: `arm, n, <metric>…, on_front, p_front` in plan order; empty without two arms with values at common seeds.
    """
    names = list(goals)
    values, arms = complete_block(trials, names, baseline)
    columns = ["arm", "n", *names, "on_front", "p_front"]
    if len(arms) < 2 or not len(values[names[0]]):
        return pd.DataFrame(columns=columns)
    signs = np.array([1.0 if goals[name] == "minimize" else -1.0 for name in names])
    blocks = np.stack([values[name] for name in names], axis=2) * signs
    member = np.mean([non_dominated(blocks[draw].mean(axis=0)) for draw in _draws(len(blocks))], axis=0)
    centre = blocks.mean(axis=0)
    table = pd.DataFrame({"arm": arms, "n": len(blocks)})
    for index, name in enumerate(names):
        table[name] = centre[:, index] * signs[index]
    table["on_front"] = non_dominated(centre)
    table["p_front"] = member
    return table[columns]


def non_dominated(points: Array) -> npt.NDArray[np.bool_]:
    """Which of [A, K] points, smaller is better, have no point that is nowhere larger and somewhere smaller."""
    distinct, where = np.unique(points, axis=0, return_inverse=True)
    if points.shape[1] == 2:  # sorted by the first, a point is on the front where the second has never been so small
        before = np.concatenate([[np.inf], np.minimum.accumulate(distinct[:-1, 1])])
        front = distinct[:, 1] < before
    else:
        no_larger = (distinct[:, None, :] <= distinct[None, :, :]).all(axis=2)
        front = no_larger.sum(axis=0) == 1  # by itself alone
    return np.asarray(front[where.ravel()], dtype=np.bool_)


def complete_block(
    trials: pd.DataFrame, metrics: list[str], baseline: str = "baseline"
) -> tuple[dict[str, Array], list[str]]:
    """Values of every metric at seeds where all arms have all of them: metric -> [S, A], and the arms.

    A/A arms are left out, and what searches proposed, often on fewer seeds. An arm that lacks values at more than
    half of the seeds is left out too, so that one arm that failed throughout doesn't empty the block.
    """
    kept = arms_of(trials, "baseline", "comparison", "twin", baseline=baseline)
    frames = [outcomes(trials, metric).value.reindex(columns=kept) for metric in metrics]
    if not frames or frames[0].empty:
        return {metric: np.empty((0, 0)) for metric in metrics}, []
    known = pd.concat([frame.notna() for frame in frames], axis=1).T.groupby(level=0, sort=False).all().T[kept]
    seeds = known.any(axis=1)
    arms = [arm for arm in kept if known.loc[seeds, arm].mean() > 0.5]
    common = known[arms].all(axis=1) if arms else seeds & False
    return {
        metric: frame.loc[common, arms].to_numpy(dtype=float) for metric, frame in zip(metrics, frames, strict=True)
    }, arms


def _draws(n: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, n, size=(RESAMPLES, n))
