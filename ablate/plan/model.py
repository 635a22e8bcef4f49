"""What a plan is made of: arms, trials, and what they can conclude."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ablate.spec.models import Config, StudySpec
from ablate.spec.paths import with_value

Role = Literal["baseline", "arm", "rescaled", "matched", "aa", "proposal", "tuning", "confirm"]


@dataclass(frozen=True, slots=True)
class Arm:
    """A full configuration, compared with others.

    Attributes:
        label: what changed from the baseline, in words of the file.
        config: the whole configuration; symbolic where it needs the reference (`reconstruction.rescale`).
        designs: names of the designs that have it as a row.
        factors: every studied path with its value in this arm.
        role: `arm` is in the family of tests; twins (`rescaled`, `matched`) are a family of their own, and so are
            the arms that confirm a search; what a search proposes (`proposal`) or tries (`tuning`) is in none.
        replicate: 0, or the number of the A/A replicate.
        relative: whether the configuration is defined relative to the baseline's.
    """

    label: str
    config: Config
    designs: tuple[str, ...]
    factors: dict[str, Any]
    role: Role = "arm"
    replicate: int = 0
    relative: bool = False


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One training that the plan asks for: an arm under a seed. `trial_id` depends on content alone.

    `varied`: what the seed changes in the arm's configuration, by path.
    """

    trial_id: str
    arm: Arm
    seed: int
    varied: Mapping[str, Any] | None = None

    @property
    def config(self) -> Config:
        """The arm's configuration under this seed."""
        config = self.arm.config
        for path, value in (self.varied or {}).items():
            config = with_value(config, path, value)
        return config


@dataclass(frozen=True)
class Proposal:
    """What a search proposed, and what came of it.

    Attributes:
        number: in the order in which the sampler was asked.
        state: `RUNNING | COMPLETE | PRUNED | FAIL`.
        values: value by path of the factors that were asked for.
        shares: share of the effective token weight by path, of a simplex; else empty.
        seeds: what it is trained on.
        arm: label of the arm that it is.
        trial_ids: one for each seed.
        objectives: mean over the seeds of each objective; the last value of a PRUNED one; else None.
        reason: `infeasible` where no arm can be made of it; else why it is FAIL, or "".
        warm_start: whether it is an arm of another design that the sampler was told of.
        params: what the sampler answered, by dimension.
        again: number of the failed proposal that this one is, its trainings run again; None for all others.
    """

    number: int
    state: str
    values: Mapping[str, Any]
    shares: Mapping[str, float]
    seeds: tuple[int, ...]
    arm: str
    trial_ids: tuple[str, ...]
    objectives: tuple[float, ...] | None = None
    reason: str = ""
    warm_start: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)
    again: int | None = None

    @property
    def own(self) -> bool:
        """Whether the search made it and it can be trained."""
        return not self.warm_start and self.reason != "infeasible"

    @property
    def ended(self) -> bool:
        """Whether the sampler was told how it ended."""
        return self.state != "RUNNING"


@dataclass(frozen=True)
class SearchResult:
    """What a search has proposed so far; `exhausted` where its space holds nothing more."""

    proposals: tuple[Proposal, ...] = ()
    exhausted: bool = False


@dataclass(frozen=True)
class Pending:
    """Trials that the plan asks for and that no one can name yet, because they hang on what comes out before.

    `search`: the one that will propose them; "" where they follow from what it found.
    """

    what: str
    trials: int
    search: str = ""


@dataclass(frozen=True)
class Power:
    """What the declared test can conclude with the declared seeds.

    Attributes:
        smallest_p: the smallest p value attainable.
        detectable_effect_sd: smallest true difference found with probability 0.8, in SDs of paired
            differences; inf where the test can never reject.
        can_reject: whether smallest_p <= alpha.
    """

    smallest_p: float
    detectable_effect_sd: float
    can_reject: bool


@dataclass(frozen=True)
class Plan:
    """Arms by trials of a study. `trials` are in the order in which they run: by seed block.

    `files`: SHA-256 of each file that a configuration names, by its name as written. `pending`: what is to come
    beside `trials`. `searches`: what they have proposed, by name.
    """

    spec: StudySpec
    arms: tuple[Arm, ...]
    trials: tuple[PlannedTrial, ...]
    power: Power
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    searches: Mapping[str, SearchResult] = field(default_factory=dict)
