"""How far terms point in different directions, from the inner products of their weight matrices. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from ablate.workloads.weight_gram import WeightGram

Floats = NDArray[np.float64]

THRESHOLD = 0.95
"""Cosine from which terms are one group, unless another is asked for."""

EXACT = 1e-9
"""A part of a squared norm below which it is taken for rounding."""


@dataclass(frozen=True)
class TermGeometry:
    """What the data can tell apart at one setting.

    Attributes:
        names: of K terms.
        cosines: [K, K] between the weight matrices; nan where a matrix is 0 everywhere.
        singular_values: of the K matrices, each divided by its norm, largest first.
        effective_rank: exp of the entropy of the squared singular values; between 1 and K.
        variance_inflation: [K], 1 / (1 - R^2) of each matrix on the others; inf where they make it up.
        groups: indices of the terms, joined where every cosine within a group reaches the threshold.
    """

    names: tuple[str, ...]
    cosines: Floats
    singular_values: Floats
    effective_rank: float
    variance_inflation: Floats
    groups: tuple[tuple[int, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values; what is not finite is null."""
        return {
            "cosines": [[_finite(value) for value in row] for row in self.cosines],
            "singular_values": [float(value) for value in self.singular_values],
            "effective_rank": _finite(self.effective_rank),
            "variance_inflation": [_finite(value) for value in self.variance_inflation],
            "groups": [[self.names[index] for index in group] for group in self.groups],
        }


def term_geometry(gram: WeightGram, index: int, threshold: float = THRESHOLD) -> TermGeometry:
    """The geometry of the terms at the setting of that index."""
    matrix = gram.at(index)
    cosines = cosine_matrix(matrix)
    values = singular_values(cosines)
    return TermGeometry(
        gram.names,
        cosines,
        values,
        effective_rank(values),
        variance_inflation(cosines),
        collinear_groups(cosines, threshold),
    )


def cosine_matrix(gram: Floats) -> Floats:
    """cos_kl = G_kl / sqrt(G_kk G_ll), [K, K]; nan in the rows of a matrix without length."""
    lengths = np.sqrt(np.diagonal(gram))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines: Floats = np.clip(gram / np.outer(lengths, lengths), -1.0, 1.0)
    present = lengths > 0
    cosines[np.diag_indices_from(cosines)] = np.where(present, 1.0, np.nan)
    return cosines


def singular_values(cosines: Floats) -> Floats:
    """Singular values of the matrices, each of unit norm, largest first; a matrix without length counts as 0."""
    eigenvalues = np.linalg.eigvalsh(np.nan_to_num(cosines, nan=0.0))
    values: Floats = np.sqrt(np.clip(eigenvalues[::-1], 0.0, None))
    return values


def effective_rank(values: Floats) -> float:
    """exp(-sum_j p_j log p_j) with p_j = sigma_j^2 / sum sigma^2; nan where all are 0.

    Source: Roy & Vetterli 2007, of the squared singular values.
    """
    total = float(np.sum(values**2))
    if not total:
        return float("nan")
    shares = values**2 / total
    shares = shares[shares > 0]
    return float(np.exp(-np.sum(shares * np.log(shares))))


def variance_inflation(cosines: Floats) -> Floats:
    """1 / (1 - R_k^2), R_k^2 the part of matrix k's squared norm that a combination of the others gives.

    Uncentred: an objective is W itself, its mean included. inf where the others make it up, nan for a matrix of no
    length, 1 where there is no other.
    """
    found = np.full(len(cosines), np.nan)
    present = ~np.isnan(np.diagonal(cosines))
    for term in np.flatnonzero(present):
        others = present.copy()
        others[term] = False
        toward, among = cosines[others, term], cosines[np.ix_(others, others)]
        explained = float(toward @ np.linalg.pinv(among, rcond=EXACT, hermitian=True) @ toward) if others.any() else 0.0
        found[term] = 1.0 / (1.0 - explained) if explained < 1.0 - EXACT else np.inf
    return found


def collinear_groups(cosines: Floats, threshold: float) -> tuple[tuple[int, ...], ...]:
    """The terms in groups within which every cosine is at least `threshold` (complete linkage).

    A matrix without length is a group of its own. Groups and members stand in the order of the terms.
    """
    present = np.flatnonzero(~np.isnan(np.diagonal(cosines)))
    labels: dict[int, tuple[int, ...]] = {term: (term,) for term in range(len(cosines))}
    if len(present) > 1:
        distances = squareform(1.0 - np.clip(cosines[np.ix_(present, present)], -1.0, 1.0), checks=False)
        tree = linkage(np.maximum(distances, 0.0), method="complete")
        clusters = fcluster(tree, t=1.0 - threshold + EXACT, criterion="distance")
        for cluster in np.unique(clusters):
            members = tuple(int(term) for term in present[clusters == cluster])
            labels.update(dict.fromkeys(members, members))
    return tuple(dict.fromkeys(labels[term] for term in range(len(cosines))))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
