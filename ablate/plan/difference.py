"""What an edited study file would run: trials kept, new and dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablate.plan.cost import Cost
from ablate.plan.model import Plan, PlannedTrial


@dataclass(frozen=True)
class Difference:
    """Trials of a new plan that the old one has (`kept`) and has not (`new`), and those of the old one alone.

    `pending_before`, `pending_after`: trials that searches of the old and of the new plan have yet to name.
    """

    kept: tuple[PlannedTrial, ...]
    new: tuple[PlannedTrial, ...]
    dropped: tuple[PlannedTrial, ...]
    pending_before: int = 0
    pending_after: int = 0

    @property
    def to_run(self) -> int:
        """Trials that the change adds."""
        return len(self.new) + max(self.pending_after - self.pending_before, 0)


def plan_difference(old: Plan, new: Plan) -> Difference:
    """Compare two plans by the identity of their trials; labels, order and run settings change nothing."""
    before = {trial.trial_id for trial in old.trials}
    after = {trial.trial_id for trial in new.trials}
    return Difference(
        kept=tuple(trial for trial in new.trials if trial.trial_id in before),
        new=tuple(trial for trial in new.trials if trial.trial_id not in before),
        dropped=tuple(trial for trial in old.trials if trial.trial_id not in after),
        pending_before=sum(part.trials for part in old.pending),
        pending_after=sum(part.trials for part in new.pending),
    )


def difference_json(difference: Difference, cost: Cost) -> dict[str, Any]:
    """A difference as JSON values, with what its new trials cost."""
    new = difference.to_run
    return {
        name: [{"trial_id": trial.trial_id, "arm": trial.arm.label, "seed": trial.seed} for trial in trials]
        for name, trials in _named(difference).items()
    } | {
        "pending": {"before": difference.pending_before, "after": difference.pending_after},
        "cost": {"worker_s": cost.worker_s(new), "gpu_hours": cost.gpu_hours(new)},
    }


def difference_text(difference: Difference, cost: Cost) -> RenderableType:
    """A difference for a terminal: one row an arm, and what the new trials cost."""
    counts = {name: _by_arm(trials) for name, trials in _named(difference).items()}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("arm", overflow="fold")
    for name in counts:
        table.add_column(name, justify="right")
    for arm in dict.fromkeys(arm for by_arm in counts.values() for arm in by_arm):
        table.add_row(Text(arm), *(str(by_arm[arm] or "") for by_arm in counts.values()))
    total = ", ".join(f"{len(trials)} {name}" for name, trials in _named(difference).items())
    lines = [f"trials: {total}"]
    if difference.pending_before or difference.pending_after:
        lines.append(f"to come of searches: {difference.pending_after}, before {difference.pending_before}")
    lines.append(f"cost: {difference.to_run} trials; {cost.text(difference.to_run)}")
    return Group(table, *map(Text, lines))


def _named(difference: Difference) -> Mapping[str, tuple[PlannedTrial, ...]]:
    return {"kept": difference.kept, "new": difference.new, "dropped": difference.dropped}


def _by_arm(trials: Iterable[PlannedTrial]) -> Counter[str]:
    return Counter(trial.arm.label for trial in trials)
