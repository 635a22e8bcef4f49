"""From a study to its plan: designs expanded, merged by content, controls added, trials named."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from ablate.errors import Problem, SpecError
from ablate.plan.designs import DESIGNS, Row, Skipped
from ablate.plan.identity import trial_ids
from ablate.plan.labels import label_of, short_names
from ablate.plan.model import Arm, Plan, PlannedTrial, Role
from ablate.plan.power import test_power
from ablate.plan.warnings import plan_warnings
from ablate.spec.checks import AGGREGATION, RESCALE, TERM_WEIGHTS
from ablate.spec.designs import Unit, same, units
from ablate.spec.expressions import ExpressionError, Term, holds, parse
from ablate.spec.models import MISSING, Config, Design, Factor, StudySpec
from ablate.spec.paths import canonical, glob_pattern, leaf_paths, value_at, with_value

BASELINE = "baseline"


class Workload(Protocol):
    """What a plan needs to know of a workload."""

    @property
    def name(self) -> str:
        """As written in the study file."""

    @property
    def config_type(self) -> type[BaseModel] | None:
        """Model of the configuration, or None where it is free."""

    @property
    def fingerprint(self) -> Callable[[Mapping[str, Any]], str]:
        """Configuration to hash of the data's content."""


def make_plan(spec: StudySpec, workload: Workload) -> Plan:
    """The arms and trials of a study, in the order in which they run.

    Raises: SpecError for a design that yields no arm, a `when` that is never true.
    """
    builder = _Builder(spec, workload.config_type)
    arms = [*_with_twins(builder, builder.arms()), *_replicates(spec, builder)]
    family = sum(arm.role == "arm" for arm in arms)
    power = test_power(spec.seeds.count, family, spec.analysis.alpha / spec.analysis.looks)
    return Plan(
        spec=spec,
        arms=tuple(arms),
        trials=tuple(_trials(spec, workload, builder, arms)),
        power=power,
        notes=tuple(builder.notes),
        warnings=(*spec.warnings, *plan_warnings(spec, power)),
    )


# --- arms ---------------------------------------------------------------------------------------


@dataclass
class _Builder:
    """Makes arms from rows; `notes` say what was left out."""

    spec: StudySpec
    config_type: type[BaseModel] | None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = self.spec
        paths = list(leaf_paths(spec.baseline))
        self.factors: dict[str, Factor] = {factor.path: factor for factor in spec.factors}
        self.units: list[Unit] = units(self.factors, self.factors, spec.together)
        self.names = short_names(self.factors, paths)
        self.constraints: list[tuple[str, Term]] = [(source, parse(source, paths)) for source in spec.constraints]
        if any(glob_pattern(TERM_WEIGHTS).fullmatch(path) for path in paths):
            term = f"active({TERM_WEIGHTS}) >= 1"
            self.constraints.append((term, parse(term, paths)))
        self.whens: dict[str, Term] = {
            path: parse(factor.when, paths) for path, factor in self.factors.items() if factor.when is not None
        }
        self.shared = {id(section): canonical(section) for section in spec.baseline.values()}
        self.asleep = dict.fromkeys(self.whens, 0)
        self.awake = dict.fromkeys(self.whens, 0)

    def text(self, config: Config) -> str:
        """Canonical JSON of a configuration; sections shared with the baseline are written once a plan."""
        sections = (
            f"{canonical(key)}:{self.shared.get(id(config[key])) or canonical(config[key])}" for key in sorted(config)
        )
        return f"{{{','.join(sections)}}}"

    def arms(self) -> list[Arm]:
        """The baseline and the arms of all designs; the same content once."""
        base = {path: factor.baseline for path, factor in self.factors.items()}
        first = Arm(
            BASELINE, self.spec.baseline, (BASELINE,), base, role="baseline", relative=relative(self.spec.baseline)
        )
        merged: dict[bytes, Arm] = {self.content(first.config): first}
        for design in self.spec.designs:
            self.expand(design, merged, base)
        for path in self.whens:
            if self.asleep[path] and not self.awake[path]:
                raise self.problem(path, f"factors.{path}.when", "never true in any arm, so the factor never varies")
        return _distinct(merged.values())

    def content(self, config: Config) -> bytes:
        return hashlib.sha256(self.text(config).encode()).digest()

    def expand(self, design: Design, merged: dict[bytes, Arm], base: dict[str, Any]) -> None:
        """Add the rows of one design to the arms."""
        left_out: dict[str, list[str]] = {}
        kept = 0
        for row in DESIGNS[design.kind](units(design.over, self.factors, self.spec.together)):
            if isinstance(row, Skipped):
                self.notes.append(f"{design.name}: {self.names[row.unit[0].path]} skipped, {row.reason}")
                continue
            config, values = self.configure(row.values, base)
            label = self.label(row, values)
            text = self.text(config)
            if (reason := self.invalid(config, text)) is not None:
                left_out.setdefault(reason, []).append(label)
                continue
            key = hashlib.sha256(text.encode()).digest()
            known = merged.get(key)
            if known is None:
                merged[key] = Arm(label, config, (design.name,), values, relative=relative(config))
            elif design.name not in known.designs:
                merged[key] = replace(known, designs=(*known.designs, design.name))
            kept += key != next(iter(merged))
        self.notes += [f"{design.name}: left out, {reason}: {'; '.join(rows)}" for reason, rows in left_out.items()]
        if not kept:
            reasons = "; ".join(left_out) or "every row is the baseline"
            raise self.problem(design.name, design.name, f"yields no arm: {reasons}")

    def configure(self, values: Mapping[str, Any], base: dict[str, Any]) -> tuple[Config, dict[str, Any]]:
        """The configuration of a row and the value of every studied path in it.

        A factor whose `when` is false keeps its baseline value. Conditions may hang on each other, so this is
        repeated until nothing falls back any more.
        """
        chosen = {path: value for path, value in values.items() if not same(value, base[path])}
        conditional = [path for path in chosen if path in self.whens]
        while True:
            config = self.spec.baseline
            for path, value in chosen.items():
                config = with_value(config, path, value)
            fallen = [path for path in conditional if path in chosen and not self.active(path, config)]
            if not fallen:
                break
            for path in fallen:
                del chosen[path]
                self.asleep[path] += 1
        for path in conditional:
            self.awake[path] += path in chosen
        return config, {**base, **chosen}

    def active(self, path: str, config: Config) -> bool:
        try:
            return holds(self.whens[path], config)
        except ExpressionError as error:
            raise self.problem(path, f"factors.{path}.when", str(error)) from None

    def label(self, row: Row, values: Mapping[str, Any]) -> str:
        if row.kept is not None:
            return f"+{self.names[row.kept[0].path]}"
        return label_of(self.units, values, self.names) or BASELINE

    def invalid(self, config: Config, text: str) -> str | None:
        """Why an arm cannot be: a constraint that it breaks, or its configuration's type."""
        for source, term in self.constraints:
            try:
                if not holds(term, config):
                    return f"breaks {source}"
            except ExpressionError as error:
                return f"{source}: {error}"
        if self.config_type is not None:
            try:
                self.config_type.model_validate_json(text, strict=True)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(map(str, first["loc"]))
                return f"{where}: {first['msg'].removeprefix('Value error, ')}"
        return None

    def problem(self, place: str, path: str, message: str) -> SpecError:
        """An error at what the spec remembers the place of."""
        file, line, column = self.spec.places.get(place, (self.spec.source, 0, 0))
        return SpecError([Problem(file, line, column, path, message)])


def relative(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is defined relative to the baseline's."""
    try:
        return bool(value_at(config, RESCALE) == BASELINE)
    except KeyError:
        return False


def _distinct(arms: Iterable[Arm]) -> list[Arm]:
    """The arms with labels that differ: a second one of a name is numbered."""
    seen: Counter[str] = Counter()
    distinct = []
    for arm in arms:
        seen[arm.label] += 1
        count = seen[arm.label]
        distinct.append(arm if count == 1 else replace(arm, label=f"{arm.label} ({count})"))
    return distinct


# --- controls -----------------------------------------------------------------------------------


def _with_twins(builder: _Builder, arms: list[Arm]) -> Iterator[Arm]:
    """Each arm, followed by its twin of the baseline's scale where the controls ask for one."""
    controls = builder.spec.controls
    for arm in arms:
        yield arm
        if arm.role != "arm" or arm.relative:
            continue
        removes = controls.rescaled and any(
            _removed(builder.factors[path], value) for path, value in arm.factors.items()
        )
        matches = controls.match_scale and value_at(arm.config, AGGREGATION) != value_at(
            builder.spec.baseline, AGGREGATION
        )
        if removes or matches:
            role: Role = "rescaled" if removes else "matched"
            config = with_value(arm.config, RESCALE, BASELINE)
            yield Arm(f"{arm.label} ~{role}", config, (role,), arm.factors, role=role, relative=True)


def _removed(factor: Factor, value: Any) -> bool:
    """Whether a term of the loss is taken out by this value."""
    return bool(
        factor.ablate_to is not MISSING
        and glob_pattern(TERM_WEIGHTS).fullmatch(factor.path)
        and same(value, factor.ablate_to)
        and not same(value, factor.baseline)
    )


def _replicates(spec: StudySpec, builder: _Builder) -> Iterator[Arm]:
    """The A/A arms: the baseline again, with other streams."""
    base = {path: factor.baseline for path, factor in builder.factors.items()}
    for number in range(1, spec.controls.aa + 1):
        yield Arm(
            f"aa-{number}", spec.baseline, ("aa",), base, role="aa", replicate=number, relative=relative(spec.baseline)
        )


# --- trials -------------------------------------------------------------------------------------


def _trials(spec: StudySpec, workload: Workload, builder: _Builder, arms: list[Arm]) -> Iterator[PlannedTrial]:
    """Seed by seed every arm, so that a study stopped at any moment is balanced and paired."""
    seeds = range(spec.seeds.start, spec.seeds.start + spec.seeds.count)
    evaluation = canonical(spec.evaluation.model_dump(mode="json"))
    baseline = builder.text(spec.baseline)
    ids = [
        trial_ids(
            workload=workload.name,
            fingerprint=workload.fingerprint(arm.config),
            config=builder.text(arm.config),
            evaluation=evaluation,
            seeds=seeds,
            replicate=arm.replicate,
            baseline=baseline if arm.relative else "null",
        )
        for arm in arms
    ]
    for block, seed in enumerate(seeds):
        for arm, of_arm in zip(arms, ids, strict=True):
            yield PlannedTrial(of_arm[block], arm, seed)
