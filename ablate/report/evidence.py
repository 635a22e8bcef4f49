"""The tables that several sections of a report read, each made once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from ablate.analysis.arms import arm_means, arm_states
from ablate.analysis.effects import effects
from ablate.analysis.outcomes import Role, arm_roles, metric_names
from ablate.analysis.verdicts import contrasts
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
        out: the folder that the report goes to; links are relative to it.
    """

    spec: StudySpec
    trials: pd.DataFrame
    curves: pd.DataFrame
    path: Path | None
    facts: Mapping[str, Any]
    out: Path
    now: str = field(default="")

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.spec.metrics.primary

    @property
    def alpha(self) -> float:
        """Family-wise error of one look."""
        return self.spec.analysis.alpha / self.spec.analysis.looks

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The role of each arm, in plan order."""
        return arm_roles(self.trials, BASELINE)

    @cached_property
    def measured(self) -> list[str]:
        """Metrics with at least one value from a COMPLETE trial."""
        complete = self.trials.loc[self.trials["state"] == "COMPLETE"]
        return [name for name in metric_names(self.trials) if complete[f"metric.{name}"].notna().any()]

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

    def contrast_table(self, metric: Metric | SecondaryMetric) -> pd.DataFrame:
        """The family of one metric."""
        if metric.name not in self.measured:
            return pd.DataFrame(columns=["arm", "verdict"])
        return contrasts(
            self.trials, metric=metric.name, goal=metric.goal, sesoi=metric.sesoi, alpha=self.alpha, baseline=BASELINE
        )

    @cached_property
    def effects(self) -> pd.DataFrame:
        """Effect sizes of every arm on every declared metric."""
        tables = [
            effects(self.trials, metric=metric.name, goal=metric.goal, alpha=self.spec.analysis.alpha)
            for metric in self.compared
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["arm", "metric"])

    def trial_folder(self, trial_id: str) -> str:
        """A trial's folder as a link from the report, or nothing where the study has no run folder."""
        if self.path is None:
            return ""
        return Path(os.path.relpath(self.path / "trials" / trial_id, self.out)).as_posix()

    def fact(self, *names: str) -> float:
        """The first of these facts that is a finite number, else NaN."""
        for name in names:
            value = self.facts.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                return float(value)
        return math.nan


def gather(study: Study, out: Path, now: str = "") -> Evidence:
    """Read a study's frames once."""
    return Evidence(study.spec, study.trials(), study.curves(), study.path, study.facts, out, now)
