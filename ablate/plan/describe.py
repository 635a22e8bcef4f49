"""A plan for a machine and for a reader. Nothing here starts anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablate.plan.cost import Cost, duration
from ablate.plan.geometry import StudyGeometry, geometry_json
from ablate.plan.geometry_text import distance_text, geometry_warnings, resolution
from ablate.plan.model import Pending, Plan

WAITING = "WAITING"
SMALL_SHARE = 0.05
FINISHED = ("COMPLETE", "PRUNED", "FAIL")
UNCOMPARED = ("proposal", "tuning")


class Scale(Protocol):
    """What the reference table says of an arm before it trains."""

    @property
    def beta_eff(self) -> float:
        """KL weight relative to the mean effective token weight."""

    @property
    def shares(self) -> dict[str, float]:
        """Each term's share of the mean effective token weight."""


def plan_json(
    plan: Plan, states: Mapping[str, str], geometry: StudyGeometry | None = None, cost: Cost | None = None
) -> dict[str, Any]:
    """A plan as JSON values.

    Args:
        states: state of the trials on record, by trial_id.
        cost: by the time that finished trials took; left out where none is given.
        geometry: what the reference table says of terms and arms; left out where it was not measured.
    """
    effect = plan.power.detectable_effect_sd
    left = _left(plan, states)
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
        **({"pending": [{"what": part.what, "trials": part.trials} for part in plan.pending]} if plan.pending else {}),
        **({"cost": {"worker_s": cost.worker_s(left), "gpu_hours": cost.gpu_hours(left)}} if cost is not None else {}),
        **({"geometry": geometry_json(geometry, plan.spec.study)} if geometry is not None else {}),
    }


def plan_text(
    plan: Plan,
    states: Mapping[str, str],
    cost: Cost,
    scales: Sequence[Scale | None] | None,
    geometry: StudyGeometry | None = None,
) -> list[RenderableType]:
    """A plan for a terminal.

    Args:
        states: state of the trials on record, by trial_id.
        cost: by the time that finished trials took.
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
    lines = [_trials(plan, states), *map(_to_come, plan.pending), _cost(plan, states, cost), conclusion(plan)]
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
    """One row an arm: what it changes, whose row it is, and its scale and distance where they are known.

    What searches proposed is no row: there may be thousands, and none of them is compared.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    known = any(scale is not None for scale in scales)
    for name in ("arm", "designs", *(("β_eff", "shares") if known else ())):
        table.add_column(name, overflow="fold")
    if geometry is not None:
        table.add_column("distance", justify="right")
    for arm, scale in zip(plan.arms, scales, strict=True):
        if arm.role in UNCOMPARED:
            continue
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
    compared = sum(arm.role not in (*UNCOMPARED, "confirm") for arm in plan.arms)
    block = f"{compared} arms x {seeds.count} seeds ({seeds.start} to {seeds.start + seeds.count - 1})"
    others = len(plan.trials) - compared * seeds.count
    count = f"{len(plan.trials)} = {block}" + (f" + {others} of searches" if others > 0 else "")
    return f"trials: {count}; {done} done, {len(plan.trials) - done} to do ({by_state})"


def _to_come(part: Pending) -> str:
    return f"to come: {part.what}, {part.trials} trials"


def _left(plan: Plan, states: Mapping[str, str]) -> int:
    known = sum(states.get(trial.trial_id, WAITING) not in FINISHED for trial in plan.trials)
    return known + sum(part.trials for part in plan.pending)


def _cost(plan: Plan, states: Mapping[str, str], cost: Cost) -> str:
    left = _left(plan, states)
    if cost.trial_s is None:
        return f"cost: {left} trials; {cost.text(left)}"
    return f"cost: {left} trials x {duration(cost.trial_s)} = {cost.text(left)}"


def conclusion(plan: Plan) -> str:
    """What the study can conclude, in one sentence."""
    power, analysis = plan.power, plan.spec.analysis
    family = sum(arm.role == "arm" for arm in plan.arms)
    if not family:
        return "test: no arm is compared with the baseline"
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
