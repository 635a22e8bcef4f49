"""From a study file to a StudySpec: read, checked, complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError

from ablate.errors import Problem
from ablate.spec import checks
from ablate.spec.baseline import read_baseline
from ablate.spec.designs import resolve_designs, resolve_together
from ablate.spec.document import read_document
from ablate.spec.factors import read_entry, resolve_factors
from ablate.spec.file_model import DesignModel, StudyFile
from ablate.spec.findings import Findings, add_errors
from ablate.spec.models import Config, Design, Factor, FactorModel, StudySpec
from ablate.spec.paths import matching
from ablate.spec.wording import hint, listed, shown


class Workload(Protocol):
    """What a study file is checked against."""

    @property
    def config_type(self) -> type[BaseModel] | None:
        """Model of the configuration, or None where it is free."""

    @property
    def metrics(self) -> frozenset[str] | None:
        """Names of its metrics, or None where they are not known before it runs."""


Lookup = Callable[[str], Workload]


def load_study(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    workload_lookup: Lookup | None,
    folder: Path | str | None = None,
) -> StudySpec:
    """Read a study file and all that it extends.

    Args:
        overrides: `path=value` each, as `--set` gives them; later wins.
        seeds: how many seeds, instead of the file's number.
        workload_lookup: finds a workload by name; None checks nothing against the workload. The caller sees to it
            that the workload's code is on the import path.
        folder: where that code is; None: the folder of the file.
    Raises: SpecError with every problem of the file, each at its place.
    """
    early: list[Problem] = []
    root = read_document(path, overrides, seeds, early)
    findings = Findings(root)
    findings.problems += early
    document: Config = root.plain()
    fields = _Fields(findings, document)
    workload = _find(findings, fields.get("workload"), workload_lookup)
    spec = _resolve(findings, fields, workload, str(path), str(Path(folder or Path(path).parent).resolve()))
    findings.raise_any()
    assert spec is not None
    return spec


def _find(findings: Findings, name: str | None, lookup: Lookup | None) -> Workload | None:
    """The workload of that name; None where there is none to check against."""
    if name is None or lookup is None:
        return None
    try:
        return lookup(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing a user's module can raise anything
        findings.add(("workload",), f"got {shown(name)}; it cannot be loaded: {type(error).__name__}: {error}")
        return None


# --- the fields, each by itself -----------------------------------------------------------------


class _Fields:
    """The parts of a document that are sound by themselves."""

    def __init__(self, findings: Findings, document: Config) -> None:
        self.findings = findings
        self.document = document
        for key in document:
            if key not in StudyFile.model_fields:
                names = StudyFile.model_fields
                findings.add((key,), f"unknown key; allowed: {listed(names)}{hint(key, names)}", at_key=True)
        for key, field in StudyFile.model_fields.items():
            if field.is_required() and key not in document:
                findings.add((), "missing; this key is required", path=key)

    def get(self, key: str) -> Any:
        """The value of a key, its default where it is absent, or None where something is wrong with it."""
        field = StudyFile.model_fields[key]
        if key not in self.document:
            return None if field.is_required() else field.get_default(call_default_factory=True)
        kind: Any = field.rebuild_annotation()
        try:
            return TypeAdapter(kind).validate_python(self.document[key])
        except ValidationError as error:
            add_errors(self.findings, error, (key,), kind)
            return None

    def factors(self) -> dict[str, FactorModel | None]:
        """The entries of `factors`; None for those with something wrong."""
        written = self.document.get("factors", {})
        if not isinstance(written, Mapping):
            self.findings.add(("factors",), f"got {shown(written)}; allowed: a mapping from paths to values")
            return {}
        return {key: read_entry(self.findings, key, entry) for key, entry in written.items()}

    def designs(self) -> list[DesignModel | None]:
        """The entries of `designs`; None for those with something wrong."""
        written = self.document.get("designs")
        if "designs" in self.document and not (isinstance(written, list) and written):
            got = "an empty list" if written == [] else shown(written)
            self.findings.add(("designs",), f"got {got}; allowed: a list of designs")
        return [self._design(index, entry) for index, entry in enumerate(written)] if isinstance(written, list) else []

    def _design(self, index: int, written: Any) -> DesignModel | None:
        loc = ("designs", index)
        names = DesignModel.model_fields
        if not isinstance(written, Mapping) or len(written) != 1:
            got = f"{len(written)} keys" if isinstance(written, Mapping) else shown(written)
            self.findings.add(loc, f"got {got}; allowed: one of {', '.join(names)}, with what it ranges over")
            return None
        kind, over = next(iter(written.items()))
        if kind in names and over is None:
            self.findings.add((*loc, kind), "got null; allowed: a factor path or glob, or a list of them")
            return None
        try:
            return DesignModel.model_validate(written)
        except ValidationError as error:
            add_errors(self.findings, error, loc, DesignModel)
            return None


# --- the whole ----------------------------------------------------------------------------------


def _resolve(
    findings: Findings, fields: _Fields, workload: Workload | None, source: str, folder: str
) -> StudySpec | None:
    """The spec of a document, as far as its parts are sound; None where one it needs is not."""
    config_type = workload.config_type if workload else None
    entries = fields.factors()
    models = fields.designs()
    rest = {key: fields.get(key) for key in StudyFile.model_fields if key not in ("factors", "designs", "workload")}
    seeds, metrics, run, early_stop = rest["seeds"], rest["metrics"], rest["run"], rest["early_stop"]
    written = rest["baseline"]
    baseline = None if written is None else read_baseline(findings, written, config_type)
    warnings: list[str] = []
    if metrics is not None:
        warnings += checks.check_metrics(findings, metrics, workload.metrics if workload else None, baseline)
    if run is not None:
        checks.check_pack(findings, run)
    if early_stop is not None:
        checks.check_early_stop(findings, early_stop)
    checks.check_not_yet(findings, models, seeds)
    if baseline is None:
        return None
    factors = resolve_factors(findings, entries, baseline, config_type)
    by_path: dict[str, Factor] = {factor.path: factor for factor in factors}
    together = resolve_together(findings, rest["together"] or (), by_path, list(entries))
    designs = resolve_designs(findings, models, by_path, together, list(entries))
    checks.check_constraints(findings, rest["constraints"] or (), baseline)
    checks.check_terms(findings, baseline)
    checks.check_scale(findings, baseline, factors, seeds.vary if seeds else ())
    if findings.problems:
        return None
    return StudySpec(
        study=rest["study"],
        question=rest["question"],
        workload=fields.document["workload"],
        baseline=baseline,
        factors=factors,
        together=together,
        constraints=rest["constraints"],
        designs=designs,
        seeds=seeds,
        controls=rest["controls"],
        metrics=metrics,
        analysis=rest["analysis"],
        early_stop=early_stop,
        evaluation=rest["evaluation"],
        run=run,
        track=rest["track"],
        report=rest["report"],
        code_version=rest["code_version"],
        warnings=(*warnings, *checks.constant_factors(factors)),
        source=source,
        folder=folder,
        document=fields.document,
        places=_places(findings, entries, factors, designs),
    )


def _places(
    findings: Findings,
    entries: Mapping[str, FactorModel | None],
    factors: Sequence[Factor],
    designs: Sequence[Design],
) -> dict[str, tuple[str, int, int]]:
    """Where the designs stand, by name, and the `when` of factors, by path."""
    found = {design.name: findings.place(("designs", index, design.kind)) for index, design in enumerate(designs)}
    for key, model in entries.items():
        if model is not None and model.when is not None:
            place = findings.place(("factors", key, "when"))
            found |= {factor.path: place for factor in factors if matching(key, [factor.path]) and factor.when}
    return {name: (place.file, place.line, place.column) for name, place in found.items()}
