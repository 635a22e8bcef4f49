"""What a plan is made of: arms, trials, and what they can conclude."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ablate.spec.models import Config, StudySpec

Role = Literal["baseline", "arm", "rescaled", "matched", "aa"]


@dataclass(frozen=True, slots=True)
class Arm:
    """A full configuration, compared with others.

    Attributes:
        label: what changed from the baseline, in words of the file.
        config: the whole configuration; symbolic where it needs the reference (`reconstruction.rescale`).
        designs: names of the designs that have it as a row.
        factors: every studied path with its value in this arm.
        role: `arm` is in the family of tests; twins (`rescaled`, `matched`) are a family of their own.
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
    """One training that the plan asks for: an arm under a seed. `trial_id` depends on content alone."""

    trial_id: str
    arm: Arm
    seed: int


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

    `files`: SHA-256 of each file that a configuration names, by its name as written.
    """

    spec: StudySpec
    arms: tuple[Arm, ...]
    trials: tuple[PlannedTrial, ...]
    power: Power
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
