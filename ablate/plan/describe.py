"""A plan for a machine and for a reader. Nothing here starts anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablate.plan.geometry import StudyGeometry, geometry_json
from ablate.plan.geometry_text import distance_text, geometry_warnings, resolution
from ablate.plan.model import Plan

WAITING = "WAITING"
SMALL_SHARE = 0.05
FINISHED = ("COMPLETE", "PRUNED", "FAIL")


class Scale(Protocol):
    """What the reference table says of an arm before it trains."""

    @property
    def beta_eff(self) -> float:
        """KL weight relative to the mean effective token weight."""

    @property
    def shares(self) -> dict[str, float]:
        """Each term's share of the mean effective token weight."""


def plan_json(plan: Plan, states: Mapping[str, str], geometry: StudyGeometry | None = None) -> dict[str, Any]:
    """A plan as JSON values.

    Args:
        states: state of the trials on record, by trial_id.
        geometry: what the reference table says of terms and arms; left out where it was not measured.
    """
    effect = plan.power.detectable_effect_sd
    return {
        "study": plan.spec.study,
        "arms": [{"arm": arm.label, "designs": list(arm.designs), "factors": arm.factors} for arm in plan.arms],
        "trials": [
            {
                "trial_id": trial.trial_id,
                "arm": trial.arm.label,
                "seed": trial.seed,
                "state": states.get(trial.trial_id, WAITING),
            }
            for trial in plan.trials
        ],
        "power": {
            "smallest_p": plan.power.smallest_p,
            "detectable_effect_sd": effect if math.isfinite(effect) else None,
            "can_reject": plan.power.can_reject,
        },
        **({"geometry": geometry_json(geometry, plan.spec.study)} if geometry is not None else {}),
    }


def plan_text(
    plan: Plan,
    states: Mapping[str, str],
    cost: float | None,
    scales: Sequence[Scale | None] | None,
    geometry: StudyGeometry | None = None,
) -> list[RenderableType]:
    """A plan for a terminal.

    Args:
        states: state of the trials on record, by trial_id.
        cost: mean seconds of a finished trial, None where there is none.
        scales: what the reference table says of each arm, None where it is missing; None for a workload that
            has no such table.
        geometry: what it says of terms and arms; None where it was not measured.
    """
    weighted = scales is not None
    scales = scales if scales is not None else [None] * len(plan.arms)
    parts: list[RenderableType] = [_heading(plan), arms_table(plan, scales, geometry)]
    first = next((scale for scale in scales if scale is not None), None)
    if weighted and first is None:
        made = "once the reference is trained, by `ablate terms FILE` or `ablate run FILE`."
        parts.append(Text(f"β_eff, shares and distances: {made}", style="dim"))
    elif first is not None:
        parts.append(Text(f"shares of the mean effective token weight: {', '.join(first.shares)}", style="dim"))
        if geometry is None:
            parts.append(Text("distance of each arm from the baseline: `ablate terms FILE` measures it.", style="dim"))
    lines = [_trials(plan, states), _cost(plan, states, cost), conclusion(plan)]
    lines += [resolution(geometry)] if geometry is not None else []
    parts.append(Group(*map(Text, lines)))
    parts += [Text(f"note: {note}") for note in plan.notes]
    warnings = [*plan.warnings, *small_shares(plan, scales)]
    warnings += geometry_warnings(geometry) if geometry is not None else []
    parts += [Text(f"warning: {warning}", style="yellow") for warning in warnings]
    return parts


def _heading(plan: Plan) -> Text:
    heading = Text(plan.spec.study, style="bold")
    return heading.append(f"\n{plan.spec.question}", style="") if plan.spec.question else heading


def arms_table(plan: Plan, scales: Sequence[Scale | None], geometry: StudyGeometry | None = None) -> Table:
    """One row an arm: what it changes, whose row it is, and its scale and distance where they are known."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    known = any(scale is not None for scale in scales)
    for name in ("arm", "designs", *(("β_eff", "shares") if known else ())):
        table.add_column(name, overflow="fold")
    if geometry is not None:
        table.add_column("distance", justify="right")
    for arm, scale in zip(plan.arms, scales, strict=True):
        cells = [arm.label, ", ".join(arm.designs)]
        if known:
            cells += [f"{scale.beta_eff:.3g}", _shares(scale)] if scale is not None else ["", ""]
        if geometry is not None:
            found = geometry.arms.get(arm.label)
            cells.append(distance_text(found.distance) if found is not None else "")
        table.add_row(*map(Text, cells))
    return table


def _shares(scale: Scale) -> str:
    return " ".join(f"{100 * share:.0f}%" for share in scale.shares.values())


def _trials(plan: Plan, states: Mapping[str, str]) -> str:
    counts = Counter(states.get(trial.trial_id, WAITING) for trial in plan.trials)
    done = sum(counts[state] for state in FINISHED)
    by_state = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    seeds = plan.spec.seeds
    return (
        f"trials: {len(plan.trials)} = {len(plan.arms)} arms x {seeds.count} seeds ({seeds.start} to "
        f"{seeds.start + seeds.count - 1}); {done} done, {len(plan.trials) - done} to do ({by_state})"
    )


def _cost(plan: Plan, states: Mapping[str, str], cost: float | None) -> str:
    left = sum(states.get(trial.trial_id, WAITING) not in FINISHED for trial in plan.trials)
    if cost is None:
        return f"cost: {left} trials; no trial is finished yet to tell how long one takes"
    return f"cost: {left} trials x {duration(cost)} = {duration(left * cost)} of one worker"


def duration(seconds: float) -> str:
    """A duration in the unit that fits it."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def conclusion(plan: Plan) -> str:
    """What the study can conclude, in one sentence."""
    power, analysis = plan.power, plan.spec.analysis
    family = sum(arm.role == "arm" for arm in plan.arms)
    looks = f" / {analysis.looks} looks" if analysis.looks > 1 else ""
    found = (
        f"a difference of {power.detectable_effect_sd:.2g} SD of the paired differences is found with probability 0.8"
        if power.can_reject
        else "no difference can be found"
    )
    return (
        f"test: {analysis.test}, alpha {analysis.alpha:g}{looks}, a family of {family} arms, "
        f"{plan.spec.seeds.count} pairs; smallest p {power.smallest_p:.2g}; {found}"
    )


def small_shares(plan: Plan, scales: Sequence[Scale | None]) -> list[str]:
    """A warning for each term of the baseline that hardly takes part."""
    baseline = next((scale for arm, scale in zip(plan.arms, scales, strict=True) if arm.role == "baseline"), None)
    if baseline is None:
        return []
    return [
        f"{term} has {100 * share:.1f} % of the baseline's effective token weight; leaving it out changes little"
        for term, share in baseline.shares.items()
        if 0 < share < SMALL_SHARE
    ]
