"""What each design would find out for a number of trials: precision, aliases, estimand and cost side by side."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablate.errors import SpecError
from ablate.plan.arms import ArmBuilder
from ablate.plan.cost import Cost
from ablate.plan.factorial import ROMAN, fractions, plackett_burman
from ablate.plan.power import test_power
from ablate.spec.designs import removable, units
from ablate.spec.models import MISSING, Design, StudySpec

AT_THE_FULL_MODEL = "effect of taking one out, the others at baseline"
AT_THE_EMPTY_MODEL = "effect of one alone, the others out"
AVERAGED = "effect of taking one out, averaged over the others"
FEWEST_SEEDS = 1


@dataclass(frozen=True)
class Option:
    """One design and what it finds out for the budget.

    Attributes:
        design: as it is written under `designs`.
        arms: arms with the baseline.
        seeds: as many as the budget gives each arm.
        standard_error: of one effect, in SDs of a trial once what its seed shares over arms is taken out.
        detectable: smallest effect found with probability 0.8, in the same unit; inf where nothing can be.
        smallest_p: the smallest p value attainable.
        estimand: what an effect is.
        aliases: what it cannot tell from what, or "".
    """

    design: str
    arms: int
    seeds: int
    standard_error: float
    detectable: float
    smallest_p: float
    estimand: str
    aliases: str

    @property
    def trials(self) -> int:
        """Trials that it takes."""
        return self.arms * self.seeds


@dataclass(frozen=True)
class _Candidate:
    design: Design
    written: str
    estimand: str
    aliases: str = ""
    averaged: bool = False
    holds_baseline: bool = False


def design_menu(spec: StudySpec, config_type: type[BaseModel] | None, budget: int) -> list[Option]:
    """What each design over all factors that can be taken out finds out for so many trials; controls cost extra.

    Raises: SpecError where no factor can be taken out, or the budget is smaller than the smallest design.
    """
    factors = {factor.path: factor for factor in spec.factors}
    over = tuple(path for path, factor in factors.items() if factor.ablate_to is not MISSING)
    moved = [unit for unit in units(over, factors, spec.together) if removable(unit)]
    moved = [unit for unit in moved if all(factor.ablate_to is not MISSING for factor in unit)]
    if not moved:
        raise SpecError(f"{spec.source}: --budget compares designs over factors with `ablate_to`; there is none")
    paths = tuple(factor.path for unit in moved for factor in unit)
    sizes: list[tuple[_Candidate, int]] = []
    for candidate in _candidates(paths, len(moved)):
        try:
            sizes.append((candidate, len(ArmBuilder(_alone(spec, candidate.design), config_type).arms())))
        except SpecError:
            continue  # constraints leave nothing of it
    least = min(sizes, key=lambda item: item[1], default=None)
    if least is None or budget < least[1]:
        what = (
            f"the smallest design, {least[0].written}, takes {least[1]} trials with one seed" if least else "no design"
        )
        raise SpecError(f"--budget: got {budget}; {what}")
    alpha = spec.analysis.alpha / spec.analysis.looks
    options = [_option(candidate, arms, budget // arms, len(moved), alpha) for candidate, arms in sizes]
    return [option for option in options if option.seeds >= FEWEST_SEEDS]


def _alone(spec: StudySpec, design: Design) -> StudySpec:
    quiet = tuple(dataclasses.replace(factor, when=None) for factor in spec.factors)
    return dataclasses.replace(spec, designs=(design,), factors=quiet)


def _candidates(over: tuple[str, ...], size: int) -> Iterator[_Candidate]:
    def factorial(**settings: Any) -> Design:
        return Design("factorial", "factorial", over, {"resolution": None, "fraction": None} | settings)

    yield _Candidate(Design("leave_one_out", "leave_one_out", over), "leave_one_out", AT_THE_FULL_MODEL)
    yield _Candidate(Design("add_one_in", "add_one_in", over), "add_one_in", AT_THE_EMPTY_MODEL)
    if size < 2:
        return
    screening = plackett_burman(size)
    if screening is not None:
        regular = len(screening).bit_count() == 1
        aliases = f"main effects {'=' if regular else '~'} interactions of two"
        written = "factorial {fraction: plackett_burman}"
        yield _Candidate(factorial(fraction="plackett_burman"), written, AVERAGED, aliases, averaged=True)
    for fraction in fractions(size):
        resolution = ROMAN[fraction.resolution]
        if fraction.resolution > max(RESOLUTIONS):
            continue
        aliases = RESOLUTIONS[fraction.resolution]
        written = f"factorial {{resolution: {resolution}}}"
        yield _Candidate(factorial(resolution=resolution), written, AVERAGED, aliases, averaged=True)
    if size <= LARGEST_FULL:
        full = factorial(fraction="full")
        yield _Candidate(full, "factorial {fraction: full}", AVERAGED, "none", averaged=True, holds_baseline=True)


LARGEST_FULL = 12
RESOLUTIONS = {
    3: "main effects = interactions of two",
    4: "interactions of two = each other",
    5: "interactions of two = of three",
    6: "interactions of two = of four",
}
"""The gravest aliases of each resolution."""


def _option(candidate: _Candidate, arms: int, seeds: int, size: int, alpha: float) -> Option:
    """Precision of a difference of two arms, or of two halves of the rows.

    With sigma the SD of a trial once what its seed shares is taken out, a difference of two arms over n seeds has
    SE = sigma sqrt(2 / n); the difference of two halves of m rows has SE = 2 sigma / sqrt(n m).
    """
    rows = arms if candidate.holds_baseline else arms - 1
    per_seed = 2 / math.sqrt(max(rows, 1)) if candidate.averaged else math.sqrt(2)
    power = test_power(seeds, size, alpha) if seeds else None
    return Option(
        candidate.written,
        arms,
        seeds,
        per_seed / math.sqrt(seeds) if seeds else math.inf,
        per_seed * power.detectable_effect_sd if power else math.inf,
        power.smallest_p if power else 1.0,
        candidate.estimand,
        candidate.aliases,
    )


def menu_json(options: list[Option], cost: Cost) -> list[dict[str, Any]]:
    """The menu as JSON values."""
    return [
        dataclasses.asdict(option)
        | {
            "trials": option.trials,
            "detectable": option.detectable if math.isfinite(option.detectable) else None,
            "worker_s": cost.worker_s(option.trials),
            "gpu_hours": cost.gpu_hours(option.trials),
        }
        for option in options
    ]


def menu_text(options: list[Option], budget: int, cost: Cost) -> RenderableType:
    """The menu for a terminal: one row a design, the finest detectable effect first."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns: dict[str, Callable[[Option], str]] = {
        "design": lambda option: option.design,
        "arms": lambda option: str(option.arms),
        "seeds": lambda option: str(option.seeds),
        "trials": lambda option: str(option.trials),
        "SE": lambda option: f"{option.standard_error:.2f}",
        "detectable": lambda option: f"{option.detectable:.2f}" if math.isfinite(option.detectable) else "nothing",
        "smallest p": lambda option: f"{option.smallest_p:.2g}",
        "an effect is": lambda option: option.estimand,
        "aliases": lambda option: option.aliases or "none",
    }
    if cost.known:
        columns["cost"] = lambda option: cost.text(option.trials)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name not in ("design", "an effect is", "aliases"))
    for option in sorted(options, key=lambda option: (option.detectable, option.standard_error)):
        table.add_row(*(Text(cell(option)) for cell in columns.values()))
    legend = (
        "SE and detectable effect (found with probability 0.8) in SDs of a trial, once what its seed shares over the "
        "arms is taken out; controls and searches cost extra"
    )
    return Group(Text(f"{budget} trials", style="bold"), table, Text(legend, style="dim"))
