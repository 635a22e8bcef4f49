"""How well predictors that see the codes tell the generative factors: DCI and the attribute predictability score.

Fitted by scikit-learn; the packages that bundle these metrics need another Python, TensorFlow 1 or torchvision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.sequence_vae.data import Array

TREES, SMALLEST_LEAF = 10, 5

Floats = NDArray[np.float64]


class DCI(NamedTuple):
    """Disentanglement, completeness and informativeness, each in [0, 1]."""

    disentanglement: float
    completeness: float
    informativeness: float


def dci(codes: Array, factors: Array) -> DCI:
    """DCI by a random forest for each factor, which sees every code at every split.

    R_jk is the share of code j in what the forest of factor k gains (decrease of Gini impurity), its shares of one
    factor summing to 1. With P the rows and Q the columns of R made to sum to 1, and entropies to the base that
    makes them at most 1,

        D = sum_j rho_j (1 - H(P_j.)),  rho_j = sum_k R_jk / sum R     C = mean_k (1 - H(Q_.k))

    and I is the mean over factors of the accuracy. Forests are fitted on the first half of the examples, which R is of,
    and scored on the second. A factor is left out that does not vary, or that has more levels than half the examples:
    there is nothing to learn of it.

    Args:
        codes: [n, J]; of an integer type where they are categories.
        factors: [n, F] integers.
    Returns: zeros where no factor is left.
    Source: Eastwood & Williams 2018, sec. 2, with accuracy for the error of a factor that is a category.
    """
    kept = learnable(factors)
    if not kept:
        return DCI(0.0, 0.0, 0.0)
    columns, owner = _columns(codes)
    shares, accuracies = np.zeros((codes.shape[1], len(kept))), []
    for place, value in enumerate(kept):
        importance, accuracy = _forest(columns, value)
        np.add.at(shares[:, place], owner, importance)
        accuracies.append(accuracy)
    rows, total = shares.sum(axis=1), shares.sum()
    certainty = 1 - _entropy(shares, axis=1)
    disentanglement = float((rows * certainty).sum() / total) if total else 0.0
    completeness = np.where(shares.any(axis=0), 1 - _entropy(shares, axis=0), 0.0)
    return DCI(disentanglement, float(completeness.mean()), float(np.mean(accuracies)))


def separated_attribute_predictability(codes: Array, factors: Array) -> float:
    """SAP, the mean over factors k of S_j1k - S_j2k, j1 and j2 the two codes that predict v_k best.

    S_jk is the balanced accuracy, on the second half of the examples, of thresholds on code j (for categories: of
    the likeliest level in each) that the first half sets: a perfect code and no other gives 1 - 1/K for K levels.
    Factors are left out as for DCI.

    Args, as dci.
    Returns: in [0, 1]; 0 where no factor is left.
    Source: Kumar et al. 2018, sec. 4.
    """
    gaps = []
    for value in learnable(factors):
        scores = sorted((_threshold_accuracy(code, value) for code in codes.T), reverse=True)
        chance = 1 / (value.max() + 1)
        gaps.append(scores[0] - (scores[1] if len(scores) > 1 else chance))
    return float(np.clip(np.mean(gaps), 0, 1)) if gaps else 0.0


def learnable(factors: Array) -> list[NDArray[np.int64]]:
    """The factors that vary and have at most half as many levels as there are examples, as 0, 1, ..."""
    values = [np.unique(factor, return_inverse=True)[1].astype(np.int64) for factor in factors.T]
    return [value for value in values if 0 < value.max(initial=0) < len(value) / 2]


def _columns(codes: Array) -> tuple[Array, NDArray[np.int64]]:
    """What a predictor sees, [n, C]: continuous codes as they are, categories one by one; and each column's code."""
    if not np.issubdtype(codes.dtype, np.integer):
        return codes, np.arange(codes.shape[1])
    parts = [code[:, None] == np.unique(code) for code in codes.T]
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    return np.concatenate(parts, axis=1).astype(np.float32), owner


def _forest(columns: Array, value: NDArray[np.int64]) -> tuple[Floats, float]:
    """Importance of each column, summing to 1 or all 0, and the accuracy on the second half."""
    from sklearn.ensemble import RandomForestClassifier

    half = len(value) // 2
    forest = RandomForestClassifier(TREES, max_features=None, min_samples_leaf=SMALLEST_LEAF, random_state=0)
    forest.fit(columns[:half], value[:half])
    return np.asarray(forest.feature_importances_), float((forest.predict(columns[half:]) == value[half:]).mean())


def _threshold_accuracy(code: Array, value: NDArray[np.int64]) -> float:
    """Balanced accuracy on the second half of the examples, over the levels that it has."""
    from sklearn.tree import DecisionTreeClassifier

    columns, _ = _columns(code[:, None])
    levels, half = int(value.max()) + 1, len(value) // 2
    leaves = None if np.issubdtype(code.dtype, np.integer) else max(levels, 2)
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, class_weight="balanced", random_state=0)
    right = tree.fit(columns[:half], value[:half]).predict(columns[half:]) == value[half:]
    seen = np.bincount(value[half:], minlength=levels)
    return float((np.bincount(value[half:], right, levels)[seen > 0] / seen[seen > 0]).mean())


def _entropy(shares: Floats, axis: int) -> Floats:
    """Entropy along an axis made to sum to 1, to the base of its length; 0 where that is 1 or all shares are 0."""
    from scipy.special import entr

    total = shares.sum(axis=axis, keepdims=True)
    p = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return np.asarray(entr(p).sum(axis=axis) / np.log(max(shares.shape[axis], 2)))
