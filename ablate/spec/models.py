"""A study as plain values: what a study file says once it is read, checked and complete.

The sections that need no resolution are pydantic models and stand in the file as they stand here.
Pure data: no torch, ray, optuna or mlflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Config = dict[str, Any]
"""A nested mapping of plain JSON values; the configuration of one arm."""


class Section(BaseModel):
    """A section of the file: unknown keys are refused, values keep their type, nothing changes later."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Seeds(Section):
    """The block of seeds that every arm is run on."""

    count: Annotated[int, Field(ge=1, le=100_000)] = 8
    """How many seeds; fewer than 6 can reject nothing at alpha 0.05."""
    start: Annotated[int, Field(ge=0, le=2**53)] = 0
    """The first of them."""
    vary: tuple[Literal["training", "data", "split", "reference"], ...] = Field(("training",), strict=False)
    """What is drawn anew with each seed, paired over the arms."""


VARIED = {"data": "data.seed", "split": "data.split_seed", "reference": "reference.seed"}
"""The path that each part of `seeds.vary` moves: its baseline value plus the seed. `training` moves none."""


class Controls(Section):
    """Arms that show what a difference can be due to."""

    aa: Annotated[int, Field(ge=0, le=1000)] = 0
    """So many times the baseline again, with other streams: what chance alone can do."""
    rescaled: bool = False
    """Beside each arm that removes a term, a twin at the baseline's scale: a term's information, not its size."""
    match_scale: bool = False
    """Beside each arm of another aggregation mode, a twin at the baseline's scale."""


Goal = Literal["minimize", "maximize"]
At = Annotated[str, Field(pattern=r"^(last|step:[0-9]+)$")]


class Metric(Section):
    """A metric that arms are compared by."""

    name: str
    """As the workload reports it, such as `eval/neg_elbo_per_token`."""
    goal: Goal = "minimize"
    """Its better side."""
    sesoi: Annotated[float, Field(gt=0)] | None = None
    """Smallest effect size of interest, in the metric's unit; without it there is no verdict."""
    at: At = "last"
    """Which value counts: `last`, or `step:N`."""


class SecondaryMetric(Section):
    """A metric that is read beside the primary one."""

    name: str
    """As the workload reports it."""
    goal: Goal | None = None
    """Without a goal it has no better side."""
    sesoi: Annotated[float, Field(gt=0)] | None = None
    """Smallest effect size of interest, in the metric's unit."""
    at: At = "last"
    """Which value counts: `last`, or `step:N`."""


class Metrics(Section):
    """What arms are compared by."""

    primary: Metric
    """The verdicts are about this one."""
    secondary: tuple[SecondaryMetric, ...] = Field((), strict=False)
    """Exploratory: read beside it."""
    gradient_cosines: bool = False
    """Measure how far the terms pull the baseline's parameters apart: a backward pass a term at each evaluation."""


class Analysis(Section):
    """How the comparison is tested."""

    alpha: Annotated[float, Field(ge=1e-9, lt=1)] = 0.05
    """Level of the family of tests."""
    test: Literal["maxt_signflip"] = "maxt_signflip"
    """Largest |t| over sign flips of whole seed blocks."""
    looks: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often the results are looked at before the last seed; alpha / looks is spent each time."""


class EarlyStop(Section):
    """Stopping of unpromising proposals of a search."""

    kind: Literal["none", "asha", "median", "hyperband"] = "none"
    """For searches alone; arms that are compared run to their end."""
    reduction_factor: Annotated[int, Field(ge=2, le=100)] = 3
    """asha and hyperband: one in so many goes on from each rung to the next, which is so many times as far."""
    startup_trials: Annotated[int, Field(ge=1)] = 5
    """median: so many proposals run to their end before one may be stopped."""


SamplerName = Literal["tpe", "gp", "cmaes", "nsga2", "nsga3", "random", "qmc", "grid", "brute_force"]


class Objective(Section):
    """What a search looks for."""

    name: str
    """A metric that is not read on the report split, such as `select/neg_elbo_per_token`."""
    goal: Goal = "minimize"
    """Its better side."""


class Confirm(Section):
    """The winners of a search, and the baseline, run again on seeds that nothing was chosen by."""

    top: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many winners."""
    seeds: Annotated[int, Field(ge=1, le=100_000)] = 8
    """How many fresh seeds, the same for all of them."""


class Evaluation(Section):
    """When and how finely a trial is evaluated."""

    every: Annotated[float, Field(gt=0, le=1)] = 0.1
    """A fraction of the steps."""
    iwae_samples: Annotated[int, Field(ge=1)] = 64
    """Samples of the importance-weighted bound, at the end of a trial."""
    iwae_examples: Annotated[int, Field(ge=1)] = 512
    """Examples of the report split that it is computed on."""


class Resources(Section):
    """What one worker holds, in Ray's units; other keys are Ray's custom resources."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[float, Field(ge=0)]]

    cpu: Annotated[float, Field(gt=0)] = 1
    """Cores; fractions as Ray has them."""
    gpu: Annotated[float, Field(ge=0)] = 0
    """GPUs; fractions as Ray has them."""


class Run(Section):
    """Where and how trials run; no part of a trial's identity."""

    address: str | None = None
    """Null: this machine; else a Ray cluster's address, or `auto`."""
    resources: Resources = Resources()
    """What one worker holds."""
    storage: str | None = None
    """Where checkpoints go; null: the run folder. Several nodes need a place that all of them see."""
    keep: Literal["last", "none"] = "last"
    """Weights kept after a trial's end."""
    pack: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """How many trials are trained together in one worker process: a number, or as many as measured to be fastest."""
    max_concurrent: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """The most workers at a time."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a trial is run again whose worker died."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """The longest a trial may take, in seconds."""
    max_failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Share of failed trials past which the study stops."""


class Track(Section):
    """Where records go."""

    mlflow: str | None = None
    """Tracking URI; null: a sqlite file in the run folder. `${NAME}` is filled in from the environment."""
    optuna: str | None = None
    """SQLAlchemy URL; null: a sqlite file in the run folder. `${NAME}` is filled in from the environment."""


class ReportSettings(Section):
    """What `ablate report` writes."""

    formats: tuple[Literal["html", "markdown", "latex"], ...] = Field(("html", "markdown", "latex"), strict=False)
    """Forms of the report."""


# --- factors ------------------------------------------------------------------------------------


class Missing(Enum):
    """Stands for "not given" where null is a value that a factor may take."""

    MISSING = "missing"


MISSING: Any = Missing.MISSING


class FactorModel(Section):
    """A factor as written in the file. `kx` strings (multiples of the baseline) are still strings here."""

    values: tuple[Any, ...] | None = Field(None, strict=False, min_length=1)
    """Its levels; `0.5x` is half the baseline's value."""
    min: float | None = None
    """Lower end of a range."""
    max: float | None = None
    """Upper end of a range."""
    levels: Annotated[int, Field(ge=2, le=10_000)] = 5
    """How many points of its range designs step through."""
    distribution: Literal["uniform", "log_uniform"] = "uniform"
    """How its range is spaced, and sampled."""
    ablate_to: Any = Field(default_factory=lambda: MISSING)
    """The value that takes it out."""
    when: str | None = None
    """Expression under which it varies; else it keeps its baseline value."""

    @model_validator(mode="after")
    def _range_is_whole(self) -> FactorModel:
        if (self.min is None) != (self.max is None):
            raise ValueError("min and max are given together")
        if self.min is not None and self.values is not None:
            raise ValueError("a factor has values or a range, not both")
        if self.min is not None and self.max is not None and not self.min < self.max:
            raise ValueError(f"got min {self.min:g} and max {self.max:g}; allowed: min below max")
        if self.distribution == "log_uniform" and (self.min is None or self.min <= 0):
            raise ValueError("log_uniform needs a range with min > 0")
        return self


Kind = Literal["float", "int", "choice", "free"]


@dataclass(frozen=True)
class Factor:
    """One studied path of the configuration, resolved.

    Attributes:
        path: dotted path in the configuration.
        kind: how the configuration types it. `choice`: a closed set (enumeration, bool); `free`: no type is known.
        baseline: its value in the baseline.
        levels: the values that designs step through, in order, the baseline's among them where the file says so.
        ablate_to: the value that takes it out; MISSING where the file gives none.
        low, high: bounds of its range, or None.
        log: whether the range is sampled on a log scale.
        choices: for `choice`, every value the configuration's type allows; else ().
        when: source of the expression under which it varies, or None.
    """

    path: str
    kind: Kind
    baseline: Any
    levels: tuple[Any, ...]
    ablate_to: Any = MISSING
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()
    when: str | None = None


# --- designs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchSettings:
    """How a search proposes arms, and what it tells its sampler of them.

    Attributes:
        sampler: name of one of Optuna's samplers.
        trials: how many arms are proposed and trained.
        objectives: what is looked for; the sampler is told the mean of each over an arm's seeds.
        seeds: the first so many of the study's block train each proposed arm; None: the whole block.
        seed: of the sampler.
        simplex: whether shares of the effective token weight are searched, instead of weights.
        warm_start: whether the sampler is told of the comparison arms that lie in the space.
        confirm: what is run again in the end, or None.
    """

    sampler: SamplerName
    trials: int
    objectives: tuple[Objective, ...]
    seeds: int | None = None
    seed: int = 0
    simplex: bool = False
    warm_start: bool = True
    confirm: Confirm | None = None


@dataclass(frozen=True)
class Design:
    """One entry of `designs`, or the section `nuisance`.

    Attributes:
        kind: a key of DesignModel, or `nuisance`.
        name: its name in records: the kind, a second one `kind-2`; searches are `search-1`, `search-2`.
        over: the factor paths it ranges over, globs expanded, in the file's order.
        settings: the groups of a leave_group_out, the other keys of a factorial.
        search: how arms are proposed, where they are.
    """

    kind: str
    name: str
    over: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    search: SearchSettings | None = None


# --- the study ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudySpec:
    """A study file, read, checked and complete.

    Attributes:
        baseline: the whole configuration of the baseline arm, the workload's defaults filled in.
        factors: the studied paths, globs expanded, in the file's order.
        together: groups of factor paths that move as one.
        constraints: sources of the expressions that every arm satisfies.
        code_version: the user's own word for the code of a workload, or None.
        source: the file's name as given, for messages.
        folder: the folder of the file: on the import path of commands and workers.
        nuisance: the factors that are tuned again for each arm, or None.
        places: file, line and column of what a plan may still find wrong: a design by its name, the `when` of a
            factor by its path, `seeds.count`, `factors.<path>` and `baseline.<path>` as written, and the addresses.
        files: SHA-256 of files that configurations name, by the name as written, of a study that is read back: its
            plan needs no file.
    """

    study: str
    question: str
    workload: str
    baseline: Config
    factors: tuple[Factor, ...]
    together: tuple[tuple[str, ...], ...]
    constraints: tuple[str, ...]
    designs: tuple[Design, ...]
    seeds: Seeds
    controls: Controls
    metrics: Metrics
    analysis: Analysis
    early_stop: EarlyStop
    evaluation: Evaluation
    run: Run
    track: Track
    report: ReportSettings
    nuisance: Design | None = None
    code_version: str | None = None
    warnings: tuple[str, ...] = ()
    source: str = ""
    folder: str = ""
    files: dict[str, str] = field(default_factory=dict)
    document: Config = field(default_factory=dict)
    """The merged file itself (after `extends` and `--set`), what `study.yaml` of a run folder holds."""
    places: dict[str, tuple[str, int, int]] = field(default_factory=dict, compare=False, repr=False)
