"""What a study file may not ask for, once each part of it is sound: metrics, the scale c, the run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ablate.spec.baseline import Baseline
from ablate.spec.designs import TERM_WEIGHTS, Unit
from ablate.spec.expressions import ExpressionError, holds, parse
from ablate.spec.findings import Findings, Loc
from ablate.spec.models import VARIED, Config, Controls, Factor, Metrics, Run, Seeds
from ablate.spec.paths import leaf_paths, matching, same, value_at
from ablate.spec.wording import hint, listed, shown

RAW = "reconstruction.raw_weight"
NORMALIZED = "reconstruction.distribution_normalized_weight"
SCALE = "reconstruction.zfree_reference_scale"
RESCALE = "reconstruction.rescale"
SHARES = "reconstruction.shares"
AGGREGATION = "reconstruction.token_aggregation"

#: What is ablated scales these: no comparison of them between arms means anything.
WEIGHTED_TOTALS = re.compile(r"(train|eval|select)/objective")
PRIMARY: Loc = ("metrics", "primary")
STEP = re.compile(r"step:([0-9]{1,18})", re.ASCII)
METRIC_NAME = re.compile(r"[\w\-. :/]+", re.ASCII)
DISTORTION = "eval/nll_per_token"
FIXED = "eval/neg_elbo_per_token"


# --- metrics --------------------------------------------------------------------------------------


def check_metrics(findings: Findings, metrics: Any, known: frozenset[str] | None, config: Config | None) -> list[str]:
    """Add what is wrong with the names and steps of the metrics as written; returns warnings."""
    seen: set[str] = set()
    for loc, metric in _named(metrics):
        name, at = metric["name"], metric.get("at")
        if name in seen:
            findings.add((*loc, "name"), f"{shown(name)} is named twice")
        elif message := _unfit_metric(name, known):
            findings.add((*loc, "name"), message)
        if isinstance(at, str) and (message := _unreached(at, config)):
            findings.add((*loc, "at"), message)
        seen.add(name)
    if any(loc == PRIMARY and metric["name"] == DISTORTION for loc, metric in _named(metrics)):
        return [
            f"metrics.primary: {DISTORTION} is the distortion, which KL buys: an arm that spends more rate always wins "
            f"on it; {FIXED} charges the rate"
        ]
    return []


def _named(metrics: Any) -> Iterator[tuple[Loc, Mapping[str, Any]]]:
    """The metrics that have a name, whatever else is wrong with them."""
    if isinstance(metrics, Mapping):
        secondary = metrics.get("secondary")
        entries: list[tuple[Loc, Any]] = [(PRIMARY, metrics.get("primary"))]
        if isinstance(secondary, list):
            entries += [(("metrics", "secondary", index), entry) for index, entry in enumerate(secondary)]
        for loc, entry in entries:
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
                yield loc, entry


def _unfit_metric(name: str, known: frozenset[str] | None) -> str | None:
    if WEIGHTED_TOTALS.fullmatch(name):
        return f"got {name}, which depends on the weights under study; allowed: a fixed metric; did you mean {FIXED}?"
    if known is not None and name not in known:
        near = hint(name, known)
        allowed = "" if near else f": {listed(known)}"
        return f"got {shown(name)}; allowed: a metric of the workload{allowed}{near}"
    if not METRIC_NAME.fullmatch(name):
        return f"got {shown(name)}; allowed: letters, digits, '_', '-', '.', ' ', ':' and '/'"
    return None


def _unreached(at: str, config: Config | None) -> str | None:
    training = (config or {}).get("training", {})
    last = training.get("steps") if isinstance(training, Mapping) else None
    step = STEP.fullmatch(at)
    if step is None or not isinstance(last, int) or int(step[1]) <= last:
        return None
    return f"got {shown(at)}; allowed: last, or a step up to training.steps, {last}"


# --- constraints --------------------------------------------------------------------------------


def check_constraints(findings: Findings, constraints: Iterable[str], baseline: Baseline) -> None:
    """Add expressions that cannot be read, and those that the baseline breaks."""
    paths = list(leaf_paths(baseline.config))
    for index, source in enumerate(constraints):
        try:
            term = parse(source, paths)
            kept = not baseline.sound or holds(term, baseline.config)
        except ExpressionError as error:
            findings.add(("constraints", index), f"got {shown(source)}: {error}")
            continue
        if not kept:
            findings.add(("constraints", index), f"got {shown(source)}, which the baseline breaks")


def check_terms(findings: Findings, baseline: Config) -> None:
    """Add a problem where the baseline has no term on: there would be nothing to learn, and nothing to leave out."""
    paths = matching(TERM_WEIGHTS, leaf_paths(baseline))
    if paths and all(value_at(baseline, path) == 0 for path in paths):
        message = f"every weight is 0; allowed: at least one of {TERM_WEIGHTS} above 0"
        findings.add(("baseline", "reconstruction"), message)


def check_gradient_cosines(findings: Findings, metrics: Metrics | None, baseline: Config) -> None:
    """Add a problem where gradients of terms are asked for and the configuration has none."""
    if metrics is not None and metrics.gradient_cosines and not matching(TERM_WEIGHTS, leaf_paths(baseline)):
        message = f"got true; the workload's configuration has no {TERM_WEIGHTS}, so no terms; allowed: false"
        findings.add(("metrics", "gradient_cosines"), message)


def check_controls(findings: Findings, controls: Controls | None, baseline: Config) -> None:
    """Add a problem for twins that the configuration has no place for."""
    paths = set(leaf_paths(baseline))
    for name, needed in (("rescaled", [RESCALE]), ("match_scale", [RESCALE, AGGREGATION])):
        lacking = [path for path in needed if path not in paths]
        if getattr(controls, name, False) and lacking:
            message = f"got true; the workload's configuration has no {', '.join(lacking)}; allowed: false"
            findings.add(("controls", name), message)


def check_scale(findings: Findings, baseline: Config, factors: Iterable[Factor], seeds: Seeds | None) -> None:
    """Add a problem where c is a number although it changes between arms."""
    scale = baseline.get("reconstruction", {})
    scale = scale.get("zfree_reference_scale") if isinstance(scale, Mapping) else None
    studied = list(factors)
    numbers = [scale, *(level for factor in studied if factor.path == SCALE for level in factor.levels)]
    if not any(isinstance(number, int | float) for number in numbers):
        return
    moving = [
        factor.path
        for factor in studied
        if factor.path == AGGREGATION or factor.path.partition(".")[0] in ("data", "reference")
    ]
    moving += [f"seeds.vary {part}" for part in (seeds.vary if seeds else ()) if part in ("data", "reference")]
    if moving:
        message = f"got a number, but it changes with {', '.join(moving)}, which is studied; allowed: auto"
        findings.add(("baseline", "reconstruction", "zfree_reference_scale"), message)


def check_vary(findings: Findings, seeds: Seeds | None, baseline: Config, factors: Iterable[Factor]) -> None:
    """Add a problem for each thing to vary with the seed that the configuration has no seed for."""
    paths = set(leaf_paths(baseline))
    studied = {factor.path for factor in factors}
    for index, part in enumerate(seeds.vary if seeds else ()):
        path = VARIED.get(part)
        loc: Loc = ("seeds", "vary", index)
        if path is not None and path not in paths:
            findings.add(loc, f"got {part}; the workload's configuration has no {path}")
        elif path in studied:
            findings.add(loc, f"got {part}, but {path} is a factor of the study; allowed: one of the two")


# --- the run --------------------------------------------------------------------------------------


def check_unpacked(findings: Findings, run: Run | None, workload: str) -> None:
    """Add a problem where trials are to be trained together, of a workload that trains them one by one."""
    if run is not None and run.pack not in ("auto", 1):
        whose = "a training function of one's own" if ":" in workload else workload
        findings.add(("run", "pack"), f"got {run.pack}; {whose} trains one trial at a time; allowed: auto, 1")


# --- what is allowed, and misleads ----------------------------------------------------------------


def one_term_twice(moved: Iterable[Unit]) -> bool:
    """Whether raw and distribution-normalized are moved one without the other."""
    alone = {unit[0].path for unit in moved if len(unit) == 1}
    return {RAW, NORMALIZED} <= alone


def constant_factors(factors: Iterable[Factor]) -> list[str]:
    """A warning for each factor that takes the baseline's value alone."""
    return [
        f"factors.{factor.path}: its one level is the baseline's; it changes nothing"
        for factor in factors
        if all(same(level, factor.baseline) for level in factor.levels)
    ]
