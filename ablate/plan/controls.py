"""Arms that show what a difference can be due to: twins at the baseline's scale, A/A replicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ablate.plan.arms import BASELINE, relative
from ablate.plan.model import Arm, Role
from ablate.spec.checks import AGGREGATION, RESCALE
from ablate.spec.designs import TERM_WEIGHTS
from ablate.spec.models import MISSING, Factor, StudySpec
from ablate.spec.paths import matching, same, value_at, with_value


def with_twins(spec: StudySpec, arms: Iterable[Arm]) -> Iterator[Arm]:
    """Each arm, followed by its twin at the baseline's scale where the controls ask for one.

    An arm that takes a term out and changes the aggregation has one twin: both would be the same training.
    """
    terms = [factor for factor in spec.factors if matching(TERM_WEIGHTS, [factor.path])]
    for arm in arms:
        yield arm
        if arm.role != "arm" or arm.relative:
            continue
        role: Role | None = None
        if spec.controls.rescaled and any(_removed(factor, arm.factors) for factor in terms):
            role = "rescaled"
        elif spec.controls.match_scale and value_at(arm.config, AGGREGATION) != value_at(spec.baseline, AGGREGATION):
            role = "matched"
        if role is not None:
            config = with_value(arm.config, RESCALE, BASELINE)
            yield Arm(f"{arm.label} ~{role}", config, (role,), arm.factors, role=role, relative=True)


def _removed(factor: Factor, values: Mapping[str, Any]) -> bool:
    """Whether these values take the factor's term out of the loss."""
    value = values[factor.path]
    return factor.ablate_to is not MISSING and same(value, factor.ablate_to) and not same(value, factor.baseline)


def replicates(spec: StudySpec) -> Iterator[Arm]:
    """The A/A arms: the baseline again, with other streams."""
    base = {factor.path: factor.baseline for factor in spec.factors}
    for number in range(1, spec.controls.aa + 1):
        yield Arm(
            f"aa-{number}", spec.baseline, ("aa",), base, role="aa", replicate=number, relative=relative(spec.baseline)
        )
