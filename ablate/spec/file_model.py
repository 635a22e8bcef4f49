"""The study file as it is written: every key, its type, and what an editor says of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from ablate.spec.models import (
    Analysis,
    Confirm,
    Controls,
    EarlyStop,
    Evaluation,
    FactorModel,
    Metrics,
    Objective,
    ReportSettings,
    Run,
    SamplerName,
    Section,
    Seeds,
    Track,
)

FILE_VERSION = 1

Globs = str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
"""A factor path or glob, or a list of them."""


def _is_known(version: int) -> int:
    if version != FILE_VERSION:
        raise ValueError(f"got {version}; allowed: {FILE_VERSION}")
    return version


Groups = Annotated[
    tuple[Annotated[tuple[str, ...], Field(strict=False, min_length=1)], ...], Field(strict=False, min_length=1)
]
"""Lists of factor paths or globs."""


class Factorial(Section):
    """Two levels of each factor: its baseline value (+) and its `ablate_to` (-); all combinations, or a fraction."""

    over: Literal["auto"] | Globs | Groups
    """The factors, each with `ablate_to`; lists of them move as one; `auto`: groups of terms that the data cannot tell
    apart."""
    resolution: Literal["III", "IV", "V", "VI"] | None = None
    """The least resolution of a regular fraction."""
    fraction: Literal["full", "plackett_burman"] | None = None
    """All combinations, or a Plackett-Burman design; instead of a resolution. `full` where neither is given."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Factorial:
        if self.resolution is not None and self.fraction is not None:
            raise ValueError(f"got resolution {self.resolution} and fraction {self.fraction}; allowed: one of the two")
        return self


class Search(Section):
    """Arms proposed by a sampler."""

    over: Literal["canonical"] | Globs
    """The factors that are searched; `canonical`: shares of the effective token weight, one for each group of terms
    that the data cannot tell apart."""
    sampler: SamplerName = "tpe"
    """Optuna's sampler of that name."""
    trials: Annotated[int, Field(ge=1, le=100_000)] = 40
    """How many arms are proposed."""
    simplex: bool = False
    """Search shares of the effective token weight, which keeps the effective beta fixed."""
    objective: str | Annotated[tuple[Objective, ...], Field(strict=False, min_length=1)] | None = None
    """A `select/` metric, or a list of metrics with their goals; null: the twin of the primary metric."""
    seeds: Annotated[int, Field(ge=1)] | None = None
    """So many of the study's seeds train each proposed arm; null: all of them. The sampler is told the mean."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of the sampler."""
    warm_start: bool = True
    """Tell the sampler of the comparison arms that lie in the space, before it proposes any."""
    confirm: Confirm | None = None
    """Run the winners, and the baseline, again on the same fresh seeds, and read those on the report split."""


class NuisanceModel(Section):
    """Factors tuned again for each arm, on seeds that are never reported and with the same budget."""

    over: Globs
    """The factors that are tuned; no design may move them."""
    sampler: SamplerName = "tpe"
    """Optuna's sampler of that name."""
    trials: Annotated[int, Field(ge=1, le=100_000)] = 8
    """How many settings are tried for each arm."""
    seeds: Annotated[int, Field(ge=1)] = 1
    """How many tuning seeds train each setting."""
    objective: str | None = None
    """A `select/` metric; null: the twin of the primary metric."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of the sampler."""


class DesignModel(Section):
    """One design: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    leave_one_out: Globs | None = None
    """One matched factor at `ablate_to`, the rest at baseline."""
    leave_group_out: Literal["auto"] | Groups | None = None
    """All factors of one group at `ablate_to`, the rest at baseline; `auto`: groups of terms that the data cannot tell
    apart, as the reference table has them."""
    add_one_in: Globs | None = None
    """All matched factors at `ablate_to` but one."""
    one_at_a_time: Globs | None = None
    """Each level of each factor but the baseline's, the rest at baseline."""
    grid: Globs | None = None
    """Every combination of the levels of the matched factors."""
    factorial: Factorial | None = None
    """Two levels of each factor: baseline value and `ablate_to`."""
    search: Search | None = None
    """Arms proposed by a sampler."""


class StudyFile(Section):
    """A study file of an ablation study."""

    model_config = ConfigDict(title="Study")

    version: Annotated[int, Field(strict=True, json_schema_extra={"const": 1}), AfterValidator(_is_known)] = 1
    """Version of this file's format."""
    study: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    """Names the run folder and the records: 1 to 64 of a-z, 0-9 and -."""
    question: str = ""
    """The question that the study answers, in one sentence."""
    extends: str | None = None
    """A study file that this one is merged over; relative to this file."""
    workload: str
    """`synthetic_sequences`, `sequence_file`, or `package.module:function`."""
    code_version: Annotated[str, Field(min_length=1)] | None = None
    """Your own word for the version of the workload's code; null: a hash of its source files."""
    baseline: dict[str, Any] = Field(default_factory=dict)
    """The reference arm, over the workload's own defaults."""
    factors: dict[str, FactorModel | list[Any]]
    """What is studied: a path of the baseline, or a glob, and its values."""
    together: Annotated[tuple[Annotated[tuple[str, ...], Field(strict=False)], ...], Field(strict=False)] = ()
    """Groups of factors that move as one."""
    constraints: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Expressions that are true of every arm."""
    designs: Annotated[tuple[DesignModel, ...], Field(strict=False, min_length=1)]
    """Which arms there are; expanded in order, merged, the same arm once."""
    seeds: Seeds = Seeds()
    controls: Controls = Controls()
    metrics: Metrics
    analysis: Analysis = Analysis()
    early_stop: EarlyStop = EarlyStop()
    nuisance: NuisanceModel | None = None
    """Factors that are tuned again for each arm."""
    evaluation: Evaluation = Evaluation()
    run: Run = Run()
    track: Track = Track()
    report: ReportSettings = ReportSettings()
