"""Factors: what paths an entry stands for, and the values each takes, read as the configuration's type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ablate.spec.baseline import Baseline, ConfigType, concerns, not_finite, read_value
from ablate.spec.config_types import annotation_at, kind_of
from ablate.spec.expressions import ExpressionError, holds, parse
from ablate.spec.findings import Findings, Loc, add_errors, worded_value
from ablate.spec.models import MISSING, Config, Factor, FactorModel, Kind
from ablate.spec.paths import all_paths, canonical, leaf_paths, matching, value_at
from ablate.spec.wording import hint, listed, shown

MULTIPLE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)x")
SIGNIFICANT_DIGITS = 12


@dataclass(frozen=True)
class Setting:
    """What the values of a factor are read against."""

    findings: Findings
    baseline: Baseline
    config_type: ConfigType | None


def read_entry(findings: Findings, key: str, written: Any) -> FactorModel | None:
    """One entry of `factors` as it stands, or None where something is wrong with it."""
    loc: Loc = ("factors", key)
    if isinstance(written, list):
        if not written:
            findings.add(loc, "got an empty list; allowed: at least one value")
            return None
        return FactorModel(values=tuple(written))
    if not isinstance(written, Mapping):
        findings.add(loc, f"got {shown(written)}; allowed: a list of values or a mapping")
        return None
    try:
        model = FactorModel.model_validate(written)
    except ValidationError as error:
        add_errors(findings, error, loc, FactorModel)
        return None
    if model.values is None and model.min is None and model.ablate_to is MISSING:
        findings.add(loc, "no values; allowed: `values`, `min` and `max`, or `ablate_to`")
        return None
    return model


def expand(findings: Findings, keys: list[str], baseline: Config) -> dict[str, str]:
    """The key that speaks for each studied path. A path of its own speaks before a glob that matches it."""
    everything = list(all_paths(baseline))
    leaves = list(leaf_paths(baseline))
    owners: dict[str, str] = {}
    for key in keys:
        paths = matching(key, leaves) if "*" in key else [key] if key in everything else []
        if not paths:
            findings.add(("factors", key), _no_path(key, everything), at_key=True)
        for path in paths:
            owner = owners.get(path)
            if owner is not None and "*" in owner and "*" in key:
                findings.add(("factors", key), f"matches {path}, which {owner} matches too", at_key=True)
            elif owner is None or "*" not in key:
                owners[path] = key
    for path, key in owners.items():
        around = next((other for other in owners if path.startswith(f"{other}.")), None)
        if around is not None:
            findings.add(("factors", key), f"{path} lies inside {around}, which is a factor too", at_key=True)
    return owners


def _no_path(key: str, everything: list[str]) -> str:
    """Wording for a path or glob that the baseline does not have, with what stands beside it."""
    around = key
    beside: list[str] = []
    while around and not beside:
        around = around.rpartition(".")[0]
        prefix = f"{around}." if around else ""
        beside = [path for path in everything if path.startswith(prefix) and "." not in path[len(prefix) :]]
    what = "matches no path" if "*" in key else "no path"
    return f"{what} of the baseline; allowed: {listed(beside)}{hint(key, everything)}"


def resolve_factor(setting: Setting, key: str, model: FactorModel, path: str) -> Factor | None:
    """One studied path with its values, or None where something is wrong with them."""
    kind, choices = kind_of(annotation_at(setting.config_type, path.split(".")))
    baseline = value_at(setting.baseline.config, path)
    reader = _Reader(setting, path, kind, baseline)
    loc: Loc = ("factors", key)
    ablate_to = model.ablate_to
    if ablate_to is not MISSING:
        ablate_to = reader.read(ablate_to, (*loc, "ablate_to"))
    levels: tuple[Any, ...] = (baseline, ablate_to)
    if model.values is not None:
        shorthand = isinstance(setting.findings.root.value["factors"].node.value[key].node.value, list)
        at_values = loc if shorthand else (*loc, "values")
        levels = tuple(reader.read(value, (*at_values, index)) for index, value in enumerate(model.values))
    elif model.min is not None and model.max is not None:
        levels = reader.range(model, loc)
    return (
        None
        if reader.failed
        else Factor(
            path=path,
            kind=kind,
            baseline=baseline,
            levels=tuple({canonical(level): level for level in levels}.values()),
            ablate_to=ablate_to,
            low=model.min,
            high=model.max,
            log=model.distribution == "log_uniform",
            choices=choices,
            when=model.when,
        )
    )


class _Reader:
    """Reads the values of one factor; `failed` once one of them is wrong."""

    def __init__(self, setting: Setting, path: str, kind: Kind, baseline: Any) -> None:
        self.setting = setting
        self.path = path
        self.kind = kind
        self.baseline = baseline
        self.failed = False

    def fail(self, loc: Loc, message: str) -> None:
        self.failed = True
        self.setting.findings.add(loc, message)

    def read(self, written: Any, loc: Loc) -> Any:
        """A value as the configuration's type has it; None where it is wrong."""
        infinite = list(not_finite(written, loc))
        if infinite:
            self.fail(loc, f"got {shown(infinite[0][1])}; allowed: a finite number")
            return None
        value = self.multiple(written, loc)
        try:
            return read_value(self.setting.config_type, self.setting.baseline.config, self.path, value, self.kind)
        except ValidationError as error:
            items = [item for item in error.errors(include_url=False) if concerns(item["loc"], self.path)]
            self.fail(loc, worded_value(items[0]["input"], items))
            return None

    def multiple(self, written: Any, loc: Loc) -> Any:
        """`kx` is k times the baseline where that is a number."""
        found = MULTIPLE.fullmatch(written) if isinstance(written, str) else None
        if found is None or isinstance(self.baseline, bool) or not isinstance(self.baseline, int | float):
            return written
        if self.baseline == 0:
            self.fail(loc, f"got {shown(written)}, a multiple of the baseline, which is 0; allowed: a number")
            return self.baseline
        try:
            value = _tidy(float(found[1]) * self.baseline)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.fail(loc, f"got {shown(written)}; too large")
            return self.baseline
        return int(value) if isinstance(self.baseline, int) and value.is_integer() else value

    def range(self, model: FactorModel, loc: Loc) -> tuple[Any, ...]:
        """`levels` points from min to max, evenly spaced, on a log scale where the range has one."""
        if isinstance(self.baseline, bool) or not isinstance(self.baseline, int | float):
            self.fail(loc, f"min and max, but the baseline is {shown(self.baseline)}; allowed: `values`")
            return ()
        assert model.min is not None
        assert model.max is not None
        low, high = model.min, model.max
        whole = self.kind == "int" or (
            self.kind == "free" and isinstance(self.baseline, int) and low.is_integer() and high.is_integer()
        )
        ends = [(low, "min"), (high, "max")]
        for end, name in ends:
            self.read(int(end) if whole and end.is_integer() else end, (*loc, name))
        if self.failed:
            return ()
        shares = [index / (model.levels - 1) for index in range(model.levels)]
        if model.distribution == "log_uniform":
            points = [math.exp(math.log(low) * (1 - share) + math.log(high) * share) for share in shares]
        else:
            points = [low * (1 - share) + high * share for share in shares]
        points = [low, *map(_tidy, points[1:-1]), high]
        return tuple(round(point) if whole else point for point in points)


def _tidy(value: float) -> float:
    """Rounded so far that no machine's arithmetic shows."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def check_when(setting: Setting, key: str, source: str) -> None:
    """Add what is wrong with a factor's `when`."""
    try:
        term = parse(source, list(leaf_paths(setting.baseline.config)))
        if setting.baseline.sound:
            holds(term, setting.baseline.config)
    except ExpressionError as error:
        setting.findings.add(("factors", key, "when"), f"got {shown(source)}: {error}")


def resolve_factors(setting: Setting, entries: Mapping[str, FactorModel | None]) -> tuple[Factor, ...]:
    """Every studied path, in the order of the file."""
    owners = expand(setting.findings, list(entries), setting.baseline.config)
    for key, model in entries.items():
        if model is not None and model.when is not None:
            check_when(setting, key, model.when)
    factors: list[Factor] = []
    said: set[str] = set()
    for path in (path for key in entries for path in owners if owners[path] == key):
        key = owners[path]
        model = entries[key]
        if model is None or key in said:
            continue
        factor = resolve_factor(setting, key, model, path)
        if factor is None:
            said.add(key)
        else:
            factors.append(factor)
    return tuple(factors)
