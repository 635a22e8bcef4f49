"""How well single codes tell the generative factors apart: the mutual information gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.sequence_vae.data import Array

BINS = 20
"""Equal-width bins of a continuous code (Locatello et al. 2019)."""


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
    gaps = []
    for factor in factors.T:
        value = np.unique(factor, return_inverse=True)[1]
        entropy = _entropy(np.bincount(value))
        if entropy > 0:
            information = sorted((_information(_categories(code), value) for code in codes.T), reverse=True)
            gaps.append((information[0] - (information[1] if len(information) > 1 else 0.0)) / entropy)
    return float(np.mean(gaps)) if gaps else 0.0


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
