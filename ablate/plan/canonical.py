"""Canonical coordinates of an arm: what its training is, whichever weights lambda_k say so.

J = W_mean (sum_bt D_bt x_bt / N + beta_eff L_KL + sum_a mu_eff,a L_a) with D = N W / W_mean, whose mean over the
training tokens is 1. Two arms with the same D, beta_eff and mu_eff differ by the scale W_mean of the objective alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.collinearity import EXACT, cosine_matrix
from ablate.workloads.weight_gram import WeightGram

Floats = NDArray[np.float64]

ROUNDING = 1e-13
"""What sums over all tokens of a data set are exact to, relative to them."""


@dataclass(frozen=True)
class Canonical:
    """An arm in coordinates that no rescaling of its weights changes, and that scale.

    Attributes:
        scale: W_mean, the mean effective token weight.
        beta_eff: KL weight relative to it; nan where there is none.
        auxiliary_eff: mu_eff of the auxiliary terms that are on, by name.
        effective_token_count: (sum W)^2 / sum W^2 over the training tokens (Kish): how many of them count.
        distance: root mean square over the training tokens of D minus the baseline's D; in units of the mean weight.
        direction: D along the principal directions of the terms at the baseline's setting, in the same units;
            the largest direction first.
        outside: what of D lies in none of them; 0 at the baseline's setting.
        shares: of each term in W_mean, by its name.
    """

    scale: float
    beta_eff: float
    auxiliary_eff: dict[str, float]
    effective_token_count: float
    distance: float
    direction: tuple[float, ...]
    outside: float
    shares: dict[str, float]

    def columns(self) -> dict[str, float]:
        """As columns of the frame of trials."""
        axes = {f"direction_{number}": value for number, value in enumerate(self.direction, 1)}
        return {
            "scale": self.scale,
            "beta_eff": self.beta_eff,
            "effective_token_count": self.effective_token_count,
            "distance": self.distance,
            **axes,
            "outside": self.outside,
        }


class CanonicalFrame:
    """The coordinate system of one study on one reference table."""

    def __init__(self, gram: WeightGram, baseline: Mapping[str, Any]) -> None:
        """`baseline` is the whole configuration of the baseline arm, whose setting is the gram's first."""
        self._gram = gram
        self._tokens = max(gram.tokens, 1)
        self._axes = _principal_axes(gram)
        found = gram.coefficients(baseline["reconstruction"])
        if found is None:
            raise ValueError("the setting of the baseline is not among those measured")
        self._base_mean = self._mean(found)
        self._base = found / self._base_mean if self._base_mean else found

    def of(self, config: Mapping[str, Any]) -> Canonical | None:
        """The coordinates of an arm; None for a setting that was not measured."""
        found = self.unit(config)
        if found is None:
            return None
        direction, scale = found
        gram = self._gram.gram
        square = float(direction @ gram @ direction) / self._tokens
        gap = direction - self._base
        axes = self._axes @ (gram @ direction) / math.sqrt(self._tokens)
        return Canonical(
            scale,
            _ratio(config.get("kl", {}).get("beta", math.nan), scale),
            {name: _ratio(mu, scale) for name, mu in config.get("auxiliary", {}).items() if mu},
            self._tokens / square if square else math.nan,
            _root(float(gap @ gram @ gap) / self._tokens, square),
            tuple(float(value) for value in axes),
            _root(square - float(axes @ axes), square),
            self._shares(direction),
        )

    def unit(self, config: Mapping[str, Any]) -> tuple[Floats, float] | None:
        """D of an arm as coefficients of the measured matrices, and its scale."""
        section = config["reconstruction"]
        found = self._gram.coefficients(section)
        if found is None:
            return None
        mean = self._mean(found)
        relative = section.get("rescale") is not None or section.get("shares") is not None
        scale = self._base_mean if relative else mean
        return found / mean if mean else found * math.nan, scale

    def _shares(self, direction: Floats) -> dict[str, float]:
        parts = (direction * self._gram.sums / self._tokens).reshape(-1, len(self._gram.terms)).sum(axis=0)
        return dict(zip(self._gram.names, parts.tolist(), strict=True))

    def embedding(self, configs: Sequence[Mapping[str, Any]]) -> Floats:
        """[n, R], places of arms whose setting was measured: their distances are those of D, as `distance` has them."""
        units = np.stack([found[0] for config in configs if (found := self.unit(config)) is not None])
        lengths = np.sqrt(np.diagonal(self._gram.gram))
        values, vectors = np.linalg.eigh(np.nan_to_num(cosine_matrix(self._gram.gram), nan=0.0))
        kept = values > ROUNDING * values[-1]
        places: Floats = (units * lengths) @ vectors[:, kept] * np.sqrt(values[kept] / self._tokens)
        return places

    def _mean(self, coefficients: Floats) -> float:
        return float(coefficients @ self._gram.sums) / self._tokens


def _principal_axes(gram: WeightGram) -> Floats:
    """[r, S K], the principal directions of the terms at the first setting as combinations of the matrices.

    They are the left singular vectors of the matrices, each of unit norm; r is their rank. Of each the largest loading
    is positive.
    """
    own = gram.at(0)
    lengths = np.sqrt(np.diagonal(own))
    cosines = np.nan_to_num(cosine_matrix(own), nan=0.0)
    values, vectors = np.linalg.eigh(cosines)
    kept = np.flatnonzero(values > EXACT * max(float(values[-1]), EXACT))[::-1]
    axes = np.zeros((len(kept), len(gram.sums)))
    for row, column in enumerate(kept):
        loadings = vectors[:, column] * np.sign(vectors[np.argmax(np.abs(vectors[:, column])), column])
        axes[row, gram.block(0)] = np.divide(loadings, lengths, out=np.zeros_like(loadings), where=lengths > 0)
        axes[row] /= math.sqrt(values[column])
    return axes


def _ratio(value: float, scale: float) -> float:
    return value / scale if scale else math.nan


def _root(square: float, of: float) -> float:
    """The root of a difference of squares of the size `of`, which is 0 where it is rounding."""
    if math.isnan(square):
        return math.nan
    return math.sqrt(square) if square > ROUNDING * of else 0.0
