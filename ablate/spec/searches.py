"""Searches as the file has them: what they look for, and whether sampler, space and early stopping fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.spec.checks import SHARES, WEIGHTED_TOTALS
from ablate.spec.designs import TERM_WEIGHTS, Unit, levels, units
from ablate.spec.file_model import NuisanceModel, Search
from ablate.spec.findings import Findings, Loc
from ablate.spec.models import Config, Design, EarlyStop, Factor, Goal, Metrics, Objective, SearchSettings
from ablate.spec.paths import leaf_paths, matching, value_at
from ablate.spec.wording import hint, listed, shown

REPORT_SPLIT = "eval/"
CHOICE_SPLIT = "select/"
FINITE = ("grid", "brute_force")
"""Samplers that step through levels, and end when each combination was proposed."""
ONE_OBJECTIVE = ("cmaes",)
NUMBERS_ALONE = ("cmaes",)
"""Samplers that know no choices and no conditions."""
SHARED_DATA = ("data", "reference")
"""Sections that decide what an objective is measured on: a search that moved them would compare unlike numbers."""


@dataclass(frozen=True)
class Searching:
    """What searches are read against.

    Attributes:
        metrics: the study's, or None where something is wrong with them.
        known: every metric of the workload; None: not known before it runs.
    """

    findings: Findings
    metrics: Metrics | None
    known: frozenset[str] | None
    baseline: Config

    def search(self, model: Search, loc: Loc, moved: Sequence[Unit]) -> SearchSettings | None:
        """The settings of a search over these units; None where something is wrong with it."""
        objectives = self._objectives(model.objective, (*loc, "objective"))
        problems = [*_unfit_space(moved, model.sampler, simplex=model.simplex)]
        if model.simplex:
            problems += _unfit_simplex(moved, model.sampler, self.baseline)
        if model.sampler in ONE_OBJECTIVE and objectives is not None and len(objectives) > 1:
            problems.append(
                f"{model.sampler} takes one objective, got {len(objectives)}; allowed: tpe, gp, nsga2, nsga3, random"
            )
        for problem in problems:
            self.findings.add(loc, problem)
        if objectives is None or problems:
            return None
        return SearchSettings(
            model.sampler, model.trials, objectives, model.seeds, model.seed, model.simplex, model.warm_start,
            model.confirm,
        )  # fmt: skip

    def nuisance(
        self,
        model: NuisanceModel | None,
        designs: Iterable[Design],
        over: tuple[str, ...] | None,
        factors: Mapping[str, Factor],
        together: Sequence[Sequence[str]],
    ) -> Design | None:
        """The factors that are tuned for each arm; None where there are none, or something is wrong with them."""
        if model is None or not over:
            return None
        moved = units(over, factors, together)
        objectives = self._objectives(model.objective, ("nuisance", "objective"))
        problems = list(_unfit_space(moved, model.sampler, simplex=False))
        tuned = {factor.path for unit in moved for factor in unit}
        problems += [
            f"{design.name} proposes its own; put these factors into its `over`"
            for design in designs
            if design.kind == "search"
        ]
        problems += [
            f"{path} is moved by {design.name}; a factor is studied or tuned, not both"
            for design in designs
            for path in sorted(tuned.intersection(design.over))
        ]
        for problem in problems:
            self.findings.add(("nuisance", "over"), problem)
        if objectives is None or problems:
            return None
        settings = SearchSettings(model.sampler, model.trials, objectives, model.seeds, model.seed, warm_start=False)
        return Design("nuisance", "nuisance", over, search=settings)

    def _objectives(self, written: Any, loc: Loc) -> tuple[Objective, ...] | None:
        """What is looked for; None where that cannot be said."""
        if self.metrics is None:
            return None
        named: tuple[Objective | None, ...]
        named = written if isinstance(written, tuple) else (self._single(written, loc),)
        found = []
        for index, objective in enumerate(named):
            if objective is None:
                return None
            place = (*loc, index, "name") if isinstance(written, tuple) else loc
            if message := self._unfit_objective(objective.name):
                self.findings.add(place, message)
                return None
            found.append(objective)
        return tuple(found)

    def _single(self, written: str | None, loc: Loc) -> Objective | None:
        """One objective by its name, or by default: its goal is that of the metric whose twin it is."""
        assert self.metrics is not None
        primary = self.metrics.primary
        if written is None:
            if not primary.name.startswith(REPORT_SPLIT):
                message = (
                    f"missing; the primary metric {primary.name} has no {CHOICE_SPLIT} twin; name a metric that is "
                    "read on a split that no result is reported on"
                )
                self.findings.add(loc, message)
                return None
            return Objective(name=_twin(primary.name), goal=primary.goal)
        goals: dict[str, Goal] = {metric.name: metric.goal for metric in self.metrics.secondary if metric.goal}
        goals[primary.name] = primary.goal
        goal = goals.get(written) or {_twin(name): goal for name, goal in goals.items()}.get(written)
        if goal is None:
            self.findings.add(
                loc,
                f"got {shown(written)}, which has no goal: it is the twin of no metric of the study that has one; "
                f"allowed: [{{name: {written}, goal: minimize}}]",
            )
            return None
        return Objective(name=written, goal=goal)

    def _unfit_objective(self, name: str) -> str | None:
        if name.startswith(REPORT_SPLIT):
            return (
                f"got {name}, which is read on the report split: what is chosen by it cannot be reported by it; "
                f"did you mean {_twin(name)}?"
            )
        if WEIGHTED_TOTALS.fullmatch(name):
            return f"got {name}, which depends on the weights under study; allowed: a fixed metric"
        if self.known is not None and name not in self.known:
            allowed = sorted(metric for metric in self.known if metric.startswith(CHOICE_SPLIT))
            return f"got {shown(name)}; allowed: {listed(allowed)}{hint(name, allowed)}"
        return None


def _twin(name: str) -> str:
    return CHOICE_SPLIT + name.removeprefix(REPORT_SPLIT)


def _unfit_space(moved: Sequence[Unit], sampler: str, *, simplex: bool) -> Iterator[str]:
    """Why a sampler cannot search these units."""
    paths = [factor.path for unit in moved for factor in unit]
    shared = [path for path in paths if path.partition(".")[0] in SHARED_DATA]
    if shared:
        yield (
            f"{', '.join(shared)} decides what the objective is measured on, so its values cannot be ranked by it; "
            "allowed in one_at_a_time, grid and factorial"
        )
    if simplex:
        return
    for unit in moved:
        if len(levels(unit)) < 2 and not searched_as_range(unit, sampler):
            yield f"{unit[0].path} has one level; allowed: at least two values, or a range"
    chosen = [unit[0].path for unit in moved if not searched_as_range(unit, sampler)]
    if sampler in NUMBERS_ALONE and chosen:
        yield f"{sampler} searches ranges of numbers (`min` and `max`); {', '.join(chosen)} has values"
    conditional = [factor.path for unit in moved for factor in unit if factor.when is not None]
    if sampler in NUMBERS_ALONE and conditional:
        yield f"{sampler} knows no conditions; {', '.join(conditional)} has `when`"
    if sampler in NUMBERS_ALONE and len(moved) < 2:
        yield f"{sampler} needs at least two factors"


def searched_as_range(unit: Unit, sampler: str) -> bool:
    """Whether a unit is searched over its range, not over levels."""
    return sampler not in FINITE and all(factor.low is not None for factor in unit)


def _unfit_simplex(moved: Sequence[Unit], sampler: str, baseline: Config) -> Iterator[str]:
    """Why shares of the effective token weight cannot be searched over these units."""
    paths = list(leaf_paths(baseline))
    weights = matching(TERM_WEIGHTS, paths)
    if SHARES not in paths or not weights:
        yield f"simplex: the workload's configuration has no {SHARES} and weights that it stands for; allowed: false"
        return
    searched = [factor.path for unit in moved for factor in unit]
    foreign = [path for path in searched if path not in weights]
    if foreign:
        yield f"simplex: {', '.join(foreign)} is no weight of a term; allowed: {TERM_WEIGHTS}"
    fixed = [factor.path for unit in moved for factor in unit if all(level == 0 for level in factor.levels)]
    if fixed:
        yield f"simplex: {', '.join(fixed)} is fixed at 0, and a simplex gives every term in it a share; leave it out"
    on = [path for path in weights if path not in searched and value_at(baseline, path) != 0]
    if on:
        yield f"simplex: {', '.join(on)} is on and not in `over`; the shares of all terms that are on add up to one"
    if len(moved) < 2:
        yield "simplex: one factor; allowed: at least two"
    if sampler in FINITE:
        yield f"simplex: {sampler} steps through levels, shares have none; allowed: any other sampler"


def check_early_stop(findings: Findings, early_stop: EarlyStop | None, searches: Sequence[SearchSettings]) -> None:
    """Add a problem where there is nothing that may stop early."""
    if early_stop is None or early_stop.kind == "none":
        return
    if not searches:
        findings.add(
            ("early_stop", "kind"),
            f"got {early_stop.kind}, and there is no search; arms that are compared all run to their end: one that is "
            "stopped where it looks bad has no outcome, and the rest is a selection; allowed: none",
        )
    elif any(len(search.objectives) > 1 for search in searches):
        findings.add(
            ("early_stop", "kind"),
            f"got {early_stop.kind}, and a search has several objectives, none of which says who is behind; "
            "allowed: none",
        )
