"""What a reader of a plan has to know before the first trial."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.plan.model import Power
from ablate.plan.power import least_pairs
from ablate.spec.checks import NORMALIZED, RAW, one_term_twice
from ablate.spec.designs import units
from ablate.spec.models import StudySpec


def plan_warnings(spec: StudySpec, power: Power, family: int) -> list[str]:
    """Warnings that need no reference table. `family`: how many arms are compared."""
    found = []
    if family and not power.can_reject:
        alpha = spec.analysis.alpha / spec.analysis.looks
        found.append(
            f"the test can never reject: with {spec.seeds.count} seeds the smallest p value is {power.smallest_p:.3g}, "
            f"above alpha {alpha:g}; it takes {least_pairs(alpha)} seeds"
        )
    data = spec.baseline.get("data")
    if "data" in spec.seeds.vary and isinstance(data, Mapping) and data.get("share") == 1:
        found.append(
            "seeds.vary: data.seed draws a share of a file, and data.share is 1: every seed has the same data; lower "
            "data.share, or vary the split instead"
        )
    factors = {factor.path: factor for factor in spec.factors}
    for design in spec.designs:
        if design.kind == "leave_one_out" and one_term_twice(units(design.over, factors, spec.together)):
            found.append(
                "raw and distribution-normalized are one term up to 1/c: left out one at a time each looks droppable, "
                f"because the other stays; move them as one: `together: [[{RAW}, {NORMALIZED}]]`"
            )
            break
    return found
