"""How well single codes tell the generative factors apart, by mutual information: its gap (MIG), and modularity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.sequence_vae.data import Array

BINS = 20
"""Equal-width bins of a continuous code (Locatello et al. 2019)."""
CHANCE = 0.001
"""Information that is less rare than this between independent variables counts as none, for modularity."""


def mutual_information_gap(codes: Array, factors: Array) -> float:
    """MIG, the mean over factors k of (I(c_j1; v_k) - I(c_j2; v_k)) / H(v_k).

    j1 and j2 are the two codes that know most of v_k. Empirical mutual information over the examples; continuous
    codes are binned. A factor that does not vary is left out.

    Args:
        codes: [n, J]; of an integer type where they are categories.
        factors: [n, F] integers.
    Returns: in [0, 1]; with one code its own information counts in full; 0 where no factor varies.
    Source: Chen et al. 2018, eq. 6.
    """
    information, entropy = _information_table(codes, factors)
    gaps = []
    for known, whole in zip(information.T, entropy, strict=True):
        ordered = sorted(known, reverse=True)
        gaps.append((ordered[0] - (ordered[1] if len(ordered) > 1 else 0.0)) / whole)
    return float(np.mean(gaps)) if gaps else 0.0


def modularity(codes: Array, factors: Array) -> float:
    """Whether each code knows of one factor alone: the mean over codes j of 1 - delta_j.

    delta_j = sum_{k != k*} m_jk^2 / (m_jk*^2 (F - 1)), m_jk = I(c_j; v_k), k* the factor that code j knows most of.
    Information is measured as for the gap, and is 0 where independent variables would look as dependent in one of a
    thousand cases (Pearson's test): else codes of noise would count as modular, each knowing most of the factor with
    the most levels. A code that knows of no factor counts 0.

    Args, as mutual_information_gap.
    Returns: in [0, 1]; 0 where fewer than two factors vary: there is nothing to tell apart.
    Source: Ridgeway & Mozer 2018, eq. 2.
    """
    information, _ = _information_table(codes, factors)
    squared = np.where(_beyond_chance(codes, factors), information, 0.0) ** 2
    if squared.shape[1] < 2:
        return 0.0
    largest = squared.max(axis=1)
    informed = largest > 0
    others = (squared.sum(axis=1) - largest)[informed] / (largest[informed] * (squared.shape[1] - 1))
    return float((1 - others).sum() / len(largest))


def _information_table(codes: Array, factors: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """I(c_j; v_k) [J, F'] and H(v_k) [F'], nats, over the factors that vary."""
    values = _varying(factors)
    categories = [_categories(code) for code in codes.T]
    table = np.asarray([[_information(code, value) for value in values] for code in categories])
    return table.reshape(len(categories), len(values)), np.asarray([_entropy(np.bincount(v)) for v in values])


def _beyond_chance(codes: Array, factors: Array) -> NDArray[np.bool_]:
    """[J, F'] whether code and factor that vary are dependent, by Pearson's chi-squared test."""
    from scipy.special import chdtrc

    rows = []
    for category in (np.unique(_categories(code), return_inverse=True)[1] for code in codes.T):
        row = []
        for value in _varying(factors):
            counts = np.bincount(
                category * (value.max() + 1) + value, minlength=(category.max() + 1) * (value.max() + 1)
            )
            table = counts.reshape(category.max() + 1, value.max() + 1)
            expected = np.outer(table.sum(1), table.sum(0)) / len(value)
            statistic = float(((table - expected) ** 2 / expected).sum())
            row.append(bool(category.any()) and chdtrc(category.max() * value.max(), statistic) < CHANCE)
        rows.append(row)
    return np.asarray(rows, dtype=bool)


def _varying(factors: Array) -> list[NDArray[np.int64]]:
    """The factors that vary, as 0, 1, ..."""
    values = [np.unique(factor, return_inverse=True)[1].astype(np.int64) for factor in factors.T]
    return [value for value in values if value.any()]


def _categories(code: Array) -> NDArray[np.int64]:
    if np.issubdtype(code.dtype, np.integer):
        return code.astype(np.int64)
    edges = np.linspace(code.min(), code.max(), BINS + 1)
    return np.digitize(code, edges[1:-1]).astype(np.int64)


def _information(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """I(a; b) = H(a) + H(b) - H(a, b), nats."""
    joint = np.bincount(a * (b.max() + 1) + b)
    return _entropy(np.bincount(a)) + _entropy(np.bincount(b)) - _entropy(joint)


def _entropy(counts: NDArray[np.integer]) -> float:
    """Entropy of the empirical distribution, nats."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())
