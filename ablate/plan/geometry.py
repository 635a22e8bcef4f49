"""The geometry of a study, before any training: what its data can tell apart, and where its arms stand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.spatial import cKDTree

from ablate.plan.canonical import ROUNDING, Canonical, CanonicalFrame
from ablate.plan.model import Arm, Plan
from ablate.spec.models import Config, StudySpec
from ablate.spec.paths import canonical, value_at, with_value
from ablate.workloads.collinearity import THRESHOLD, TermGeometry, term_geometry
from ablate.workloads.weight_gram import (
    MODE,
    SETTING_FIELDS,
    Setting,
    WeightGram,
    nearest_gram,
    setting_change,
    setting_of,
)

SECTION = "reconstruction"

MOST_SETTINGS = 64
"""Settings of alpha, the epsilons and the mode that are measured for one study; arms at others have no coordinates."""

PROPOSED = {"proposal", "tuning", "confirm"}
"""Roles of arms that hang on what a sampler proposes: what is measured does not."""

MODES = ("token_sum", "token_mean")

SAME = 1e-3
"""Distance of D, and relative distance of beta_eff, below which two arms are one training."""


class Workload(Protocol):
    """What the geometry of a study needs to know of a workload."""

    @property
    def geometry(self) -> str | None:
        """`module:function` that measures the inner products; None for a workload that cannot."""

    @property
    def prepared_key(self) -> Callable[[Mapping[str, Any]], str] | None:
        """Configuration to the key of its reference table."""


@dataclass(frozen=True)
class GramRequest:
    """Inner products that a study needs of one reference table.

    Attributes:
        key: of the table.
        config: of the baseline arm, whose table it is.
        settings: at which they are measured, the baseline's first; at most MOST_SETTINGS.
    """

    key: str
    config: Config
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Point:
    """The terms at one setting; `change` says what it has other than the baseline's, "" for that one."""

    setting: Setting
    change: str
    terms: TermGeometry
    mean_weights: tuple[float, ...]


@dataclass(frozen=True)
class SamePair:
    """Two arms that are one training up to the objective's scale; `same_scale`: and in that too."""

    first: str
    second: str
    distance: float
    beta_eff: tuple[float, float]
    same_scale: bool

    def sentence(self) -> str:
        """What a researcher needs to know of it."""
        betas = " and ".join(f"{beta:.4g}" for beta in self.beta_eff)
        same = "the same numbers up to rounding" if self.distance == 0 else "nearly the same numbers"
        end = (
            f"their scale is the same too, so seed by seed they give {same}"
            if self.same_scale
            else "a difference between them shows step size and clipping, not information"
        )
        return (
            f"{self.first} and {self.second} are one training up to the objective's scale: token weights differ by "
            f"{100 * self.distance:.2g} % of their mean, β_eff {betas}; {end}"
        )


@dataclass(frozen=True)
class StudyGeometry:
    """What the reference table says of a study's terms and arms.

    Attributes:
        threshold: cosine from which terms are one group.
        points: the terms at the baseline's setting first, then over the studied range.
        arms: coordinates of each arm by label, in plan order; None where its setting or table was not measured.
        pairs: arms that are one training, each with the first of them.
        together: groups of studied weights that the data cannot tell apart and that do not move as one yet.
        unmeasured: how many arms of the designs have no coordinates, by the reason.
    """

    gram: WeightGram
    threshold: float
    points: tuple[Point, ...]
    arms: dict[str, Canonical | None]
    pairs: tuple[SamePair, ...]
    together: tuple[tuple[str, ...], ...]
    unmeasured: dict[str, int]


# --- what has to be measured ----------------------------------------------------------------------


def gram_request(spec: StudySpec, arms: Sequence[Arm], workload: Workload) -> GramRequest | None:
    """What has to be measured of the baseline's reference table; None where the workload has no loss stack.

    At the baseline's setting, the other mode, each level of each studied setting, and the settings of the arms.
    """
    config = next(arm.config for arm in arms if arm.role == "baseline")
    if workload.geometry is None or workload.prepared_key is None or not has_terms(config):
        return None
    planned = (arm for arm in arms if arm.role not in PROPOSED and same_table(arm.config, config))
    of_arms = (setting_of(arm.config[SECTION]) for arm in planned)
    settings = tuple(dict.fromkeys((setting_of(config[SECTION]), *studied_settings(spec), *of_arms)))
    return GramRequest(workload.prepared_key(config), config, settings[:MOST_SETTINGS])


def same_table(config: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    """Whether an arm is trained over the baseline's reference table."""
    return all(config.get(name) == baseline.get(name) for name in ("data", "reference"))


def has_terms(config: Mapping[str, Any]) -> bool:
    """Whether a configuration has the settings of the loss stack."""
    section = config.get(SECTION)
    return isinstance(section, Mapping) and all(name in section for name in SETTING_FIELDS)


def studied_settings(spec: StudySpec) -> Iterator[Setting]:
    """The other mode, and each level of each studied setting, the rest at baseline."""
    for mode in MODES:
        yield setting_of(with_value(spec.baseline, f"{SECTION}.{MODE}", mode)[SECTION])
    for factor in spec.factors:
        section, _, name = factor.path.rpartition(".")
        if section == SECTION and name in SETTING_FIELDS:
            for level in factor.levels:
                yield setting_of(with_value(spec.baseline, factor.path, level)[SECTION])


# --- what follows from it -------------------------------------------------------------------------


def read_geometry(
    plan: Plan, workload: Workload, shared_dir: Path, threshold: float = THRESHOLD, keys: Sequence[str] = ()
) -> StudyGeometry | None:
    """The geometry of a study as far as it was measured; None where it was not.

    Args:
        shared_dir: the folder of reference tables.
        threshold: cosine from which terms are one group.
        keys: of tables that do where the one that the workload names was not measured.
    """
    request = gram_request(plan.spec, plan.arms, workload)
    if request is None:
        return None
    found = (nearest_gram(shared_dir / key, request.settings) for key in (request.key, *keys))
    gram = next((gram for gram in found if gram is not None), None)
    if gram is None or not gram.tokens:
        return None
    points = tuple(_points(gram, request.settings, threshold))
    frame = CanonicalFrame(gram, request.config)
    arms = {arm.label: _coordinates(arm, request.config, frame) for arm in plan.arms}
    return StudyGeometry(
        gram,
        threshold,
        points,
        arms,
        tuple(same_training(plan.arms, arms, frame)),
        tuple(_together(plan.spec, gram, points[0].terms)),
        dict(Counter(_why_unmeasured(arm, request.config) for arm in plan.arms if _left_out(arm, arms))),
    )


def _points(gram: WeightGram, settings: Sequence[Setting], threshold: float) -> Iterator[Point]:
    for index, setting in enumerate(gram.settings):
        if setting in settings:
            change = setting_change(setting, gram.settings[0])
            means = tuple(float(mean) for mean in gram.mean_weights(index))
            yield Point(setting, change, term_geometry(gram, index, threshold), means)


def _coordinates(arm: Arm, baseline: Config, frame: CanonicalFrame) -> Canonical | None:
    return frame.of(arm.config) if same_table(arm.config, baseline) else None


def _left_out(arm: Arm, coordinates: Mapping[str, Canonical | None]) -> bool:
    return coordinates[arm.label] is None and arm.role not in PROPOSED


def _why_unmeasured(arm: Arm, baseline: Config) -> str:
    if not same_table(arm.config, baseline):
        return "over another reference table than the baseline's"
    return f"at a setting that was not measured; at most {MOST_SETTINGS} are, by `ablate terms FILE`"


def same_training(
    arms: Sequence[Arm], coordinates: Mapping[str, Canonical | None], frame: CanonicalFrame
) -> Iterator[SamePair]:
    """Each arm with the first of those before it that have its D, beta_eff and mu_eff and differ in nothing else."""
    alike: dict[str, list[tuple[Arm, Canonical]]] = {}
    for arm in arms:
        found = coordinates[arm.label]
        if found is not None and arm.role != "aa" and math.isfinite(found.distance):
            alike.setdefault(_rest(arm.config), []).append((arm, found))
    for group in alike.values():
        places = frame.embedding([arm.config for arm, _ in group])
        tree = cKDTree(places)
        for other, (second, b) in enumerate(group):
            near = sorted(tree.query_ball_point(places[other], SAME))
            for one in near[: near.index(other)]:
                first, a = group[one]
                if _close(a.beta_eff, b.beta_eff) and _all_close(a.auxiliary_eff, b.auxiliary_eff):
                    apart = float(np.linalg.norm(places[one] - places[other]))
                    apart = apart if apart > math.sqrt(ROUNDING) else 0.0
                    betas, same_scale = (a.beta_eff, b.beta_eff), _close(a.scale, b.scale)
                    yield SamePair(first.label, second.label, apart, betas, same_scale)
                    break


def _rest(config: Config) -> str:
    """What of a configuration the coordinates say nothing of."""
    kl = {name: value for name, value in config.get("kl", {}).items() if name != "beta"}
    return canonical({**config, "kl": kl, SECTION: None, "auxiliary": None})


def _close(one: float, other: float) -> bool:
    return bool(math.isclose(one, other, rel_tol=SAME)) or (math.isnan(one) and math.isnan(other))


def _all_close(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)


def _together(spec: StudySpec, gram: WeightGram, terms: TermGeometry) -> Iterator[tuple[str, ...]]:
    """Paths of the weights of each group that are studied, are on, and do not move as one yet."""
    studied = {factor.path for factor in spec.factors}
    for group in terms.groups:
        paths = tuple(f"{SECTION}.{gram.weight_fields[index]}" for index in group)
        own = tuple(path for path in paths if path in studied and value_at(spec.baseline, path))
        if len(own) > 1 and not any(set(own) <= set(known) for known in spec.together):
            yield own


# --- for a machine ------------------------------------------------------------------------------------


def geometry_json(geometry: StudyGeometry, study: str) -> dict[str, Any]:
    """As JSON values; what is not finite, or not measured, is null."""
    gram = geometry.gram
    return {
        "study": study,
        "reference_sha256": gram.sha256,
        "examples": gram.examples,
        "tokens": gram.tokens,
        "threshold": geometry.threshold,
        "terms": list(gram.names),
        "weights": list(gram.weight_fields),
        "points": [
            {
                "setting": dict(zip(SETTING_FIELDS, point.setting, strict=True)),
                "change": point.change,
                **point.terms.to_json(),
                "mean_token_weights": list(point.mean_weights),
            }
            for point in geometry.points
        ],
        "arms": [
            {"arm": label, **({} if found is None else {k: _finite(v) for k, v in found.columns().items()})}
            for label, found in geometry.arms.items()
        ],
        "same_training": [
            {"arms": [pair.first, pair.second], "distance": pair.distance, "sentence": pair.sentence()}
            for pair in geometry.pairs
        ],
        "together": [list(paths) for paths in geometry.together],
        "unmeasured": geometry.unmeasured,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
