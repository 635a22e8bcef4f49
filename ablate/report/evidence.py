"""The tables that several sections of a report read, each made once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ablate.analysis.accounting import noise_floor
from ablate.analysis.arms import arm_means, arm_states
from ablate.analysis.configurations import factor_paths
from ablate.analysis.effects import effects
from ablate.analysis.outcomes import Family, Role, arm_roles, metric_names
from ablate.analysis.rate_distortion import SHIFT, rate_distortion
from ablate.analysis.term_geometry import arm_coordinates, canonical_columns
from ablate.analysis.verdicts import contrasts
from ablate.plan.labels import short_names
from ablate.report.looks import Look, after_extension
from ablate.report.wording import coordinates_text
from ablate.spec.models import Metric, SecondaryMetric, StudySpec

BASELINE = "baseline"

_DIAGNOSTIC = re.compile(
    r"eval/(token_weighted_base_loss|token_concentration_factor|inverse_token_weighted_base_loss"
    r"|inverse_token_base_scale_factor|(inverse_)?token_weighting/.+)"
)


class Study(Protocol):
    """What a report reads of a study."""

    @property
    def spec(self) -> StudySpec: ...  # noqa: D102

    @property
    def path(self) -> Path | None: ...  # noqa: D102

    @property
    def facts(self) -> Mapping[str, Any]: ...  # noqa: D102

    def trials(self) -> pd.DataFrame: ...  # noqa: D102

    def curves(self) -> pd.DataFrame: ...  # noqa: D102


@dataclass(frozen=True)
class Evidence:
    """A study's frames and spec, and the tables made of them.

    Attributes:
        path: the run folder; None for an exported study.
        out: the folder that the report goes to; links are relative to it.
        now: when the report is made.
        looks: every look at outcomes so far, this one among them.
        changes: changes of metrics or analysis after results existed.
    """

    spec: StudySpec
    trials: pd.DataFrame
    curves: pd.DataFrame
    path: Path | None
    facts: Mapping[str, Any]
    out: Path
    now: str
    looks: tuple[Look, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.spec.metrics.primary

    @property
    def alpha(self) -> float:
        """Family-wise error of one look."""
        return self.spec.analysis.alpha / self.spec.analysis.looks

    @property
    def extended(self) -> bool:
        """Whether seeds were added after outcomes had been looked at, undeclared."""
        return after_extension(self.looks, self.spec.analysis.looks)

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The role of each arm, in plan order."""
        return arm_roles(self.trials, BASELINE) if len(self.trials) else {}

    @cached_property
    def anchors(self) -> dict[str, str]:
        """Where the page lists each arm's trials."""
        return {arm: f"#arm-{index}" for index, arm in enumerate(self.roles)}

    @cached_property
    def tips(self) -> dict[str, str]:
        """The canonical coordinates of each arm that has them, in a line."""
        if not canonical_columns(self.trials):
            return {}
        known = arm_coordinates(self.trials).dropna(subset=["scale"])
        return {row["arm"]: coordinates_text(row) for row in known.to_dict("records")}

    @cached_property
    def measured(self) -> list[str]:
        """Metrics with at least one value from a COMPLETE trial."""
        if not len(self.trials):
            return []
        complete = self.trials.loc[self.trials["state"] == "COMPLETE"]
        return [name for name in metric_names(self.trials) if complete[f"metric.{name}"].notna().any()]

    @property
    def has_primary(self) -> bool:
        """Whether any COMPLETE trial has a value of the primary metric."""
        return self.primary.name in self.measured

    @cached_property
    def compared(self) -> list[Metric | SecondaryMetric]:
        """The declared metrics that were measured, the primary first."""
        declared: list[Metric | SecondaryMetric] = [self.primary, *self.spec.metrics.secondary]
        return [metric for metric in declared if metric.name in self.measured]

    @cached_property
    def diagnostics(self) -> list[str]:
        """The measured diagnostics of the token weighting."""
        return [name for name in self.measured if _DIAGNOSTIC.fullmatch(name)]

    @cached_property
    def names(self) -> dict[str, str]:
        """The shortest unambiguous name of each studied path."""
        paths = factor_paths(self.trials)
        return short_names(paths, paths)

    @cached_property
    def together(self) -> dict[str, str]:
        """What moves with a term, by the term's name in labels: a zip goes by its first path."""
        known = [group for group in self.spec.together if all(path in self.names for path in group)]
        return {self.names[group[0]]: " and ".join(self.names[path] for path in group[1:]) for group in known}

    @cached_property
    def states(self) -> pd.DataFrame:
        """How each arm's trials ended."""
        return arm_states(self.trials, BASELINE)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean of every measured metric by arm."""
        return arm_means(self.trials, self.measured, self.spec.analysis.alpha)

    @cached_property
    def contrasts(self) -> pd.DataFrame:
        """The family of the primary metric with its verdicts; empty where it was not measured."""
        return self.contrast_table(self.primary)

    def contrast_table(self, metric: Metric | SecondaryMetric, family: Family = "comparison") -> pd.DataFrame:
        """A family of one metric."""
        if metric.name not in self.measured:
            return pd.DataFrame(columns=["arm", "verdict"])
        return contrasts(
            self.trials,
            metric=metric.name,
            goal=metric.goal,
            sesoi=metric.sesoi,
            alpha=self.alpha,
            baseline=BASELINE,
            family=family,
        )

    @cached_property
    def effects(self) -> pd.DataFrame:
        """Effect sizes of every arm on every declared metric."""
        tables = [
            effects(self.trials, metric=metric.name, goal=metric.goal, alpha=self.spec.analysis.alpha)
            for metric in self.compared
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["arm", "metric"])

    @cached_property
    def noise(self) -> tuple[float, pd.DataFrame]:
        """The A/A noise floor of the primary metric, and the A/A arms."""
        if not self.has_primary:
            return math.nan, pd.DataFrame(columns=["arm", "flagged"])
        return noise_floor(self.trials, metric=self.primary.name, alpha=self.spec.analysis.alpha)

    @cached_property
    def rate_distortion(self) -> pd.DataFrame:
        """Rate and distortion by arm; empty where the workload has none."""
        if not len(self.trials):
            return pd.DataFrame(columns=["arm", "note"])
        return rate_distortion(self.trials, alpha=self.spec.analysis.alpha)

    @cached_property
    def shifted(self) -> set[str]:
        """Arms whose rate and distortion moved in opposite directions."""
        table = self.rate_distortion
        return set(table.loc[table["note"] == SHIFT, "arm"])

    def pictured(self, limit: int, *roles: Role) -> tuple[list[str], str]:
        """Arms of these roles for a picture with room for `limit`, and a note that says which were left out."""
        arms = [arm for arm, role in self.roles.items() if role in roles]
        if len(arms) <= limit:
            return arms, ""
        own = self.effects.loc[self.effects["metric"] == self.primary.name]
        size = own.set_index("arm")["difference"].abs().reindex(arms).fillna(-np.inf)
        largest = set(size.sort_values(ascending=False, kind="stable").index[:limit])
        note = f"The {limit} of {len(arms)} arms that differ most from the baseline; the table holds all."
        return [arm for arm in arms if arm in largest], note

    def trial_folder(self, trial_id: str) -> str:
        """A trial's folder as a link from the report, or nothing where the study has no run folder."""
        if self.path is None:
            return ""
        return Path(os.path.relpath(self.path / "trials" / trial_id, self.out)).as_posix()

    def baseline_mean(self, metric: str) -> float:
        """The baseline's mean of a metric, NaN where it has none."""
        own = self.means.loc[(self.means["arm"] == BASELINE) & (self.means["metric"] == metric), "mean"]
        return float(own.iloc[0]) if len(own) else math.nan
