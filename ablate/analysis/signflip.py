"""Max-T over sign flips of whole seed blocks: p values and simultaneous intervals of paired differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: Up to this many seed blocks every flip is visited; beyond, MONTE_CARLO_FLIPS are drawn with a fixed seed.
EXACT_BLOCKS = 16
MONTE_CARLO_FLIPS = 100_000
#: With fewer pairs no two-sided flip test can reject at 5 % and no interval is given.
MINIMUM_PAIRS = 6

_CHUNK = 8192
_TIE = 1e-9


@dataclass(frozen=True)
class Simultaneous:
    """Inference for m contrasts at once; every field has shape [m], `quantile` is one number.

    `p_value` is each contrast's own flip test, `p_adjusted` that of the maximum over the family.
    """

    n_pairs: npt.NDArray[np.int64]
    difference: Array
    standard_error: Array
    low: Array
    high: Array
    p_value: Array
    p_adjusted: Array
    quantile: float


def flip_blocks(n: int, seed: int = 0) -> Iterator[Array]:
    """Sign vectors of n seed blocks in chunks [<=8192, n]; the first vector of all is the identity.

    |t| is the same for a vector and its negative, so the exact set holds one of each pair: 2^(n-1) vectors.
    """
    if n <= EXACT_BLOCKS:
        total = 2 ** max(n - 1, 0)
        for start in range(0, total, _CHUNK):
            index = np.arange(start, min(start + _CHUNK, total))
            bits = (index[:, None] >> np.arange(max(n - 1, 0))) & 1
            signs = np.ones((len(index), n))
            signs[:, 1:] -= 2.0 * bits
            yield signs
        return
    rng = np.random.default_rng(seed)
    yield np.ones((1, n))
    for start in range(0, MONTE_CARLO_FLIPS, _CHUNK):
        signs = np.ones((min(_CHUNK, MONTE_CARLO_FLIPS - start), n))
        signs -= 2.0 * rng.integers(0, 2, size=signs.shape)
        yield signs


def studentised(signs: Array, differences: Array) -> Array:
    """|t| of flipped differences: |mean| / (sd / sqrt(n)) for each flip and contrast.

    Args:
        signs: [F, S], +1 or -1 for each of S seed blocks.
        differences: [S, m]; NaN where a contrast lacks that pair.
    Returns: [F, m]; inf where the flipped differences are all equal and not 0; 0 where all are 0 or n < 2.
    """
    present = ~np.isnan(differences)
    n = present.sum(axis=0)
    filled = np.where(present, differences, 0.0)
    square = (filled**2).sum(axis=0)
    size = np.maximum(n, 1)
    mean = signs @ filled / size
    spread = square - size * mean**2
    spread = np.where(spread <= 1e-12 * square, 0.0, spread)  # what rounding leaves of equal differences
    error = np.sqrt(spread / (np.maximum(n - 1, 1) * size))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean) / error
    t = np.where((error == 0.0) & (mean == 0.0), 0.0, t)
    return np.where(n < 2, 0.0, t)


def simultaneous(differences: Array, alpha: float = 0.05) -> Simultaneous:
    """Max-T inference for paired differences that share seed blocks.

    p_adjusted_j = P(max_k |t_k(flip)| >= |t_j|) over flips of whole seed blocks, and
    [low, high]_j = mean_j -+ q SE_j with q the (1-alpha) quantile of max_k |t_k| over flips of the differences
    less their means. Flips keep the correlation of contrasts that share the baseline's seeds.

    A contrast with fewer than six pairs has an infinite interval and doesn't enter the maximum of the others.

    Args:
        differences: [S, m], arm minus baseline, a row a seed block; NaN where the pair is missing.
    Source: Westfall and Young 1993, section 2.3 (single-step maxT); Winkler et al. 2014 (whole-block sign flips).
    """
    differences = differences[~np.isnan(differences).all(axis=1)]
    blocks, m = differences.shape
    present = ~np.isnan(differences)
    n = present.sum(axis=0)
    mean = np.where(n > 0, np.where(present, differences, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)
    centred = np.where(present, differences - mean, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt((centred**2).sum(axis=0) / (n - 1) / n)
    error = np.where(n < 2, np.nan, error)
    enough = n >= MINIMUM_PAIRS
    observed = studentised(np.ones((1, blocks)), differences)[0]
    own, joint, flips, quantile = _null(differences, np.where(present, centred, np.nan), observed, enough, alpha)
    with np.errstate(invalid="ignore"):
        half = np.where(enough, np.where(error == 0.0, 0.0, quantile * error), np.inf)
    return Simultaneous(
        n_pairs=n.astype(np.int64),
        difference=mean,
        standard_error=error,
        low=np.where(n > 0, mean - half, -np.inf),
        high=np.where(n > 0, mean + half, np.inf),
        p_value=np.where(n < 2, np.nan, own / flips) if m else own,
        p_adjusted=np.where(n < 2, np.nan, joint / flips) if m else joint,
        quantile=quantile,
    )


def _null(
    differences: Array, centred: Array, observed: Array, enough: npt.NDArray[np.bool_], alpha: float
) -> tuple[Array, Array, int, float]:
    """Counts of flips at least as extreme (own, joint), the number of flips, and q."""
    own = np.zeros(len(observed))
    joint = np.zeros(len(observed))
    flips = 0
    maxima: list[Array] = []
    threshold = observed * (1.0 - _TIE)
    for signs in flip_blocks(len(differences)):
        flips += len(signs)
        t = studentised(signs, differences)
        own += (t >= threshold).sum(axis=0)
        # A contrast with few pairs has wild t values: it is held against the family, never the family against it.
        family = t[:, enough].max(axis=1, initial=0.0)
        joint += (np.maximum(family[:, None], t) >= threshold).sum(axis=0)
        maxima.append(studentised(signs, centred[:, enough]).max(axis=1, initial=0.0))
    if not enough.any():
        return own, joint, flips, float("inf")
    return own, joint, flips, float(np.quantile(np.concatenate(maxima), 1.0 - alpha, method="inverted_cdf"))
