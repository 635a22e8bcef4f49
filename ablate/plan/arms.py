"""From the rows of designs to arms: what each changes, whether it can be, the same content once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ablate.errors import Problem, SpecError
from ablate.plan.configurations import Configurations
from ablate.plan.designs import DESIGNS, DesignError, Moved, Note, Row, Rows
from ablate.plan.labels import Labels
from ablate.plan.model import Arm
from ablate.spec.checks import RESCALE
from ablate.spec.designs import AUTO, TERM_WEIGHTS, Unit, moved_units, units
from ablate.spec.expressions import ExpressionError, Term, holds, parse
from ablate.spec.models import Config, Design, Factor, StudySpec
from ablate.spec.paths import leaf_paths, matching, same, value_at

BASELINE = "baseline"


def relative(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is defined relative to the baseline's."""
    try:
        return bool(value_at(config, RESCALE) == BASELINE)
    except KeyError:
        return False


class Conditions:
    """What every arm keeps (`constraints`, some term on), and when a factor varies (`when`)."""

    def __init__(self, spec: StudySpec) -> None:
        paths = list(leaf_paths(spec.baseline))
        sources = list(spec.constraints)
        if matching(TERM_WEIGHTS, paths):
            sources.append(f"active({TERM_WEIGHTS}) >= 1")
        self.constraints = {source: parse(source, paths) for source in sources}
        self.whens: dict[str, Term] = {
            factor.path: parse(factor.when, paths) for factor in spec.factors if factor.when is not None
        }

    def broken(self, config: Config) -> str | None:
        """The constraint that an arm breaks; None where it keeps all."""
        for source, term in self.constraints.items():
            try:
                if not holds(term, config):
                    return f"breaks {source}"
            except ExpressionError as error:
                return f"{source}: {error}"
        return None


class ArmBuilder:
    """Makes the arms of a study; `notes` say what was left out."""

    def __init__(self, spec: StudySpec, config_type: type[BaseModel] | None) -> None:
        self.spec = spec
        self.factors: dict[str, Factor] = {factor.path: factor for factor in spec.factors}
        self.base = {path: factor.baseline for path, factor in self.factors.items()}
        self.conditions = Conditions(spec)
        self.group_of = {path: group for group in spec.together for path in group}
        all_units: list[Unit] = units(self.factors, self.factors, spec.together)
        self.labels = Labels(all_units, list(leaf_paths(spec.baseline)))
        self.configurations = Configurations(spec.baseline, config_type)
        self.notes: list[str] = []
        self.asleep: set[str] = set()
        self.awake: set[str] = set()

    def arms(self) -> list[Arm]:
        """The baseline and the arms of all designs; the same content once.

        Raises: SpecError for a design that yields no arm, a `when` that is never true.
        """
        config = self.spec.baseline
        first = Arm(BASELINE, config, (BASELINE,), self.base, role="baseline", relative=relative(config))
        merged = {self.content(config): first}
        for index, design in enumerate(self.spec.designs):
            if design.search is None:
                self._expand(design, f"designs[{index}].{design.kind}", merged)
        for path in self.conditions.whens:
            if path in self.asleep - self.awake:
                raise self.problem(path, f"factors.{path}.when", "never true in any arm, so the factor never varies")
        return distinct(merged.values())

    def _expand(self, design: Design, path: str, merged: dict[bytes, Arm]) -> None:
        """Add the rows of one design to the arms."""
        left_out: dict[str, list[str]] = {}
        kept = 0
        baseline = next(iter(merged))
        for row in self._rows(design, path):
            if isinstance(row, Note):
                self.notes.append(f"{design.name}: {row.text}")
                continue
            config, values = self.configure(row.values)
            reason = self.refusal(config)
            if reason is not None:
                left_out.setdefault(reason, []).append(self._label(row, values))
                continue
            key = self.content(config)
            known = merged.get(key)
            if known is None:
                merged[key] = Arm(self._label(row, values), config, (design.name,), values, relative=relative(config))
            elif design.name not in known.designs:
                merged[key] = replace(known, designs=(*known.designs, design.name))
            kept += key != baseline
        self.notes += [f"{design.name}: left out, {reason}: {'; '.join(rows)}" for reason, rows in left_out.items()]
        if left_out and design.kind == "factorial":
            self.notes.append(f"{design.name}: with rows left out its effects are no longer orthogonal")
        if not kept and design.settings.get("groups") != AUTO:
            reasons = "; ".join(left_out) or "every row is the baseline"
            raise self.problem(design.name, path, f"yields no arm: {reasons}")

    def _rows(self, design: Design, path: str) -> Rows:
        own = moved_units(design.kind, design.over, self.factors, self.spec.together, design.settings)
        moved = Moved(own, self.labels.names, design.settings)
        try:
            yield from DESIGNS[design.kind](moved)
        except DesignError as error:
            raise self.problem(design.name, path, str(error)) from None

    def configure(self, values: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
        """The configuration of a row and the value of every studied path in it.

        A factor whose `when` is false keeps its baseline value, with all that moves together with it. Conditions may
        hang on each other, so this is repeated until nothing falls back any more.
        """
        chosen = {path: value for path, value in values.items() if not same(value, self.base[path])}
        conditional = [path for path in chosen if path in self.conditions.whens]
        while True:
            config = self.configurations.changed(chosen)
            fallen = [path for path in conditional if path in chosen and not self.varies(path, config)]
            for path in fallen:
                for member in self.group_of.get(path, (path,)):
                    chosen.pop(member, None)
            if not fallen:
                break
        self.awake.update(path for path in conditional if path in chosen)
        self.asleep.update(path for path in conditional if path not in chosen)
        return config, {**self.base, **chosen}

    def varies(self, path: str, config: Config) -> bool:
        """Whether the `when` of a factor holds."""
        try:
            return holds(self.conditions.whens[path], config)
        except ExpressionError as error:
            raise self.problem(path, f"factors.{path}.when", str(error)) from None

    def content(self, config: Config) -> bytes:
        """What tells configurations apart."""
        return hashlib.sha256(self.configurations.text(config).encode()).digest()

    def refusal(self, config: Config) -> str | None:
        """Why an arm of this configuration cannot be; None where it can."""
        return self.conditions.broken(config) or self.configurations.refusal(config)

    def _label(self, row: Row, values: Mapping[str, Any]) -> str:
        if row.kept is not None:
            return f"+{self.labels.names[row.kept[0].path]}"
        return self.labels.changes(values) or BASELINE

    def problem(self, place: str, path: str, message: str) -> SpecError:
        """An error at what the spec remembers the place of."""
        file, line, column = self.spec.places.get(place, (self.spec.source, 0, 0))
        return SpecError([Problem(file, line, column, path, message)])


def distinct(arms: Iterable[Arm]) -> list[Arm]:
    """The arms with labels that differ: a second one of a name is numbered."""
    seen: Counter[str] = Counter()
    distinct = []
    for arm in arms:
        seen[arm.label] += 1
        count = seen[arm.label]
        distinct.append(arm if count == 1 else replace(arm, label=f"{arm.label} ({count})"))
    return distinct
