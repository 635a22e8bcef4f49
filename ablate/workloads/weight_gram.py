"""Inner products of the terms' weight matrices over a training set: all that the geometry of terms and arms needs.

Every term is linear in the token NLL, so it is a weight matrix W_k over (example, position) that the frozen reference
decides, and an arm is W = sum_k lambda_k W_k. Imports no torch: the matrices themselves are in sequence_vae.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losses.config import ReconstructionLossConfig

Floats = NDArray[np.float64]
Value = float | str

SCALE = "zfree_reference_scale"
SETTING_FIELDS = tuple(
    field.name
    for field in fields(ReconstructionLossConfig)
    if not field.name.endswith("_weight") and field.name != SCALE
)
"""Fields that decide the weight matrices; all others only multiply them."""

MODE = "token_aggregation"

Setting = tuple[Value, ...]
"""A value for each of SETTING_FIELDS."""


def setting_of(section: Mapping[str, Any]) -> Setting:
    """The setting of a `reconstruction` section of a configuration."""
    return tuple(value if isinstance(value, str) else float(value) for value in (section[n] for n in SETTING_FIELDS))


def setting_change(setting: Setting, base: Setting) -> str:
    """What a setting has other than another: `token_weight_alpha=2`, joined by commas."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else f'{value:.4g}'}"
        for name, value, other in zip(SETTING_FIELDS, setting, base, strict=True)
        if value != other
    )


@dataclass(frozen=True)
class TermFacts:
    """A term of the loss stack: its name, the field of its weight, and whether it is divided by the scale c."""

    name: str
    weight_field: str
    per_scale: bool


@dataclass(frozen=True)
class WeightGram:
    """Inner products of the weight matrices A_k = N W_k (c = 1) of every term at every setting.

    Attributes:
        terms: K terms, in the order of the loss stack's table.
        settings: S settings, the baseline's first.
        gram: [S K, S K], sum_bt A_i,bt A_j,bt over the training split; setting by setting, term by term.
        sums: [S K], sum_bt A_i,bt.
        tokens, examples: of the training split, sum_b n_b and the examples with n_b > 0.
        scales: the scale c of each aggregation mode, nats.
        sha256: of the reference table's surprisals.
    """

    terms: tuple[TermFacts, ...]
    settings: tuple[Setting, ...]
    gram: Floats
    sums: Floats
    tokens: int
    examples: int
    scales: dict[str, float]
    sha256: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms."""
        return tuple(term.name for term in self.terms)

    @property
    def weight_fields(self) -> tuple[str, ...]:
        """The field of each term's weight."""
        return tuple(term.weight_field for term in self.terms)

    def block(self, index: int) -> slice:
        """Where the terms of a setting stand."""
        return slice(index * len(self.terms), (index + 1) * len(self.terms))

    def at(self, index: int) -> Floats:
        """[K, K], the inner products at one setting."""
        return self.gram[self.block(index), self.block(index)]

    def mean_weights(self, index: int) -> Floats:
        """[K], mean token weight of each term at one setting for lambda_k = 1, its c included."""
        mode = str(self.settings[index][SETTING_FIELDS.index(MODE)])
        scales = np.array([self.scales[mode] if term.per_scale else 1.0 for term in self.terms])
        means: Floats = self.sums[self.block(index)] / scales / max(self.tokens, 1)
        return means

    def coefficients(self, section: Mapping[str, Any]) -> Floats | None:
        """[S K], of N W = sum_i coefficient_i A_i for a `reconstruction` section; None for a setting not in here.

        `rescale` is not looked at; `shares` s_k make lambda_k = s_k / (mean token weight of term k), of mean 1.
        """
        setting = setting_of(section)
        if setting not in self.settings:
            return None
        block = self.block(self.settings.index(setting))
        found = np.zeros(len(self.sums))
        shares = section.get("shares")
        if shares is not None:
            means = self.sums[block] / max(self.tokens, 1)
            own = np.array([float(shares.get(term.weight_field, 0.0)) for term in self.terms])
            found[block] = np.divide(own, means, out=np.zeros_like(own), where=means > 0)
            return found
        scale = section.get(SCALE, "auto")
        scale = self.scales[str(section[MODE])] if scale == "auto" else float(scale)
        found[block] = [float(section[term.weight_field]) / (scale if term.per_scale else 1.0) for term in self.terms]
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"gram": self.gram.tolist(), "sums": self.sums.tolist()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WeightGram:
        """What `to_json` gave."""
        return cls(
            tuple(TermFacts(**term) for term in values["terms"]),
            tuple(tuple(setting) for setting in values["settings"]),
            np.asarray(values["gram"], dtype=np.float64),
            np.asarray(values["sums"], dtype=np.float64),
            int(values["tokens"]),
            int(values["examples"]),
            dict(values["scales"]),
            values["sha256"],
        )


def gram_file(table: Path, settings: Iterable[Setting]) -> Path:
    """Where the inner products at these settings are kept, in the folder of the reference table."""
    content = json.dumps([SETTING_FIELDS, *settings])
    return table / f"gram-{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"


def read_gram(table: Path, settings: Iterable[Setting]) -> WeightGram | None:
    """The inner products at these settings, or None where they were not measured or the file is damaged."""
    return _read(gram_file(table, settings))


def nearest_gram(table: Path, settings: Sequence[Setting]) -> WeightGram | None:
    """The inner products at as many of these settings as were measured together; the first among them, or None."""
    exact = read_gram(table, settings)
    if exact is not None:
        return exact
    found = [gram for path in sorted(table.glob("gram-*.json")) if (gram := _read(path)) is not None]
    fit = [gram for gram in found if gram.settings[0] == settings[0]]
    return max(fit, key=lambda gram: len(set(settings).intersection(gram.settings)), default=None)


def _read(path: Path) -> WeightGram | None:
    try:
        return WeightGram.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
