"""From a study file to a StudySpec: read, checked, complete."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from ablate.errors import Problem
from ablate.spec import checks
from ablate.spec.addresses import ADDRESSES, check_addresses
from ablate.spec.baseline import read_baseline
from ablate.spec.designs import factors_of, resolve_designs, resolve_together
from ablate.spec.document import read_document
from ablate.spec.factors import Setting, resolve_factors
from ablate.spec.fields import Fields
from ablate.spec.file_model import StudyFile
from ablate.spec.findings import Findings
from ablate.spec.models import Config, Design, Factor, FactorModel, StudySpec
from ablate.spec.paths import leaf_paths, matching
from ablate.spec.searches import Searching, check_early_stop
from ablate.spec.wording import shown


class Workload(Protocol):
    """What a study file is checked against."""

    @property
    def config_type(self) -> type[BaseModel] | None:
        """Model of the configuration, or None where it is free."""

    @property
    def metrics(self) -> frozenset[str] | None:
        """Names of its metrics, or None where they are not known before it runs."""

    @property
    def pack(self) -> str | None:
        """What trains its trials together, or None where they are trained one by one."""


@dataclasses.dataclass(frozen=True)
class Unchecked:
    """Stands for a workload of which nothing is known."""

    config_type: type[BaseModel] | None = None
    metrics: frozenset[str] | None = None
    pack: str | None = ""


RESOLVED = {"baseline", "factors", "together", "designs", "nuisance"}
AS_READ = frozenset(field.name for field in dataclasses.fields(StudySpec)) & StudyFile.model_fields.keys() - RESOLVED
"""Keys of the file that stand in the spec as they are read."""

Lookup = Callable[[str], Workload]


def load_study(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    workload_lookup: Lookup | None,
    folder: Path | str | None = None,
    files: Mapping[str, str] | None = None,
) -> StudySpec:
    """Read a study file and all that it extends.

    Args:
        overrides: `path=value` each, as `--set` gives them; later wins.
        seeds: how many seeds, instead of the file's number.
        workload_lookup: finds a workload by name, or raises LookupError with what is allowed; None checks nothing
            against the workload. The caller sees to it that the workload's code is on the import path.
        folder: where that code is; None: the folder of the file.
        files: SHA-256 of files that configurations name, where a study is read back.
    Raises: SpecError with every problem of the file, each at its place.
    """
    early: list[Problem] = []
    root = read_document(path, overrides, seeds, early)
    findings = Findings(root)
    findings.problems += early
    document: Config = root.plain()
    fields = Fields(findings, document)
    read = {key: fields.get(key) for key in StudyFile.model_fields if key not in ("factors", "designs")}
    workload = _find(findings, read["workload"], workload_lookup)
    home = str(Path(folder or Path(path).parent).resolve())
    spec = _resolve(findings, fields, read, workload, source=str(path), folder=home)
    findings.raise_any()
    assert spec is not None
    return dataclasses.replace(spec, files=dict(files)) if files else spec


def _find(findings: Findings, name: str | None, lookup: Lookup | None) -> Workload | None:
    """The workload of that name; None where it cannot be found. Without a lookup anything goes."""
    if name is None or lookup is None:
        return None if name is None else Unchecked()
    try:
        return lookup(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing a user's module can raise anything
        unknown_name = type(error) is LookupError
        reason = str(error) if unknown_name else f"it cannot be loaded: {type(error).__name__}: {error}"
        findings.add(("workload",), f"got {shown(name)}; {' '.join(reason.split())}")
        return None


# --- the whole ----------------------------------------------------------------------------------


def _resolve(
    findings: Findings, fields: Fields, read: dict[str, Any], workload: Workload | None, *, source: str, folder: str
) -> StudySpec | None:
    """The spec of a document; None where something is wrong with it."""
    entries, models = fields.factors(), fields.designs()
    config_type = workload.config_type if workload else None
    unknown = workload is None or read["baseline"] is None
    baseline = None if unknown else read_baseline(findings, read["baseline"], config_type)
    config = baseline.config if baseline else None
    known = workload.metrics if workload else None
    warnings = checks.check_metrics(findings, fields.document.get("metrics"), known, config)
    if workload is not None and workload.pack is None:
        checks.check_unpacked(findings, read["run"], read["workload"])
    check_addresses(findings, fields.document)
    if baseline is None or not entries:
        return None
    factors = resolve_factors(Setting(findings, baseline, config_type), entries)
    by_path = {factor.path: factor for factor in factors}
    together = resolve_together(findings, read["together"] or (), by_path, list(entries))
    searching = Searching(findings, read["metrics"], known, baseline.config)
    designs = resolve_designs(findings, models, by_path, together, list(entries), searching.search)
    tuned = read["nuisance"] and factors_of(
        findings, _as_list(read["nuisance"].over), ("nuisance", "over"), by_path, list(entries)
    )
    nuisance = searching.nuisance(read["nuisance"], designs, tuned or None, by_path, together)
    check_early_stop(findings, read["early_stop"], [design.search for design in designs if design.search])
    checks.check_vary(findings, read["seeds"], baseline.config, factors)
    checks.check_constraints(findings, read["constraints"] or (), baseline)
    checks.check_scale(findings, baseline.config, factors, read["seeds"])
    checks.check_controls(findings, read["controls"], baseline.config)
    checks.check_gradient_cosines(findings, read["metrics"], baseline.config)
    if baseline.sound:
        checks.check_terms(findings, baseline.config)
    if findings.problems:
        return None
    return StudySpec(
        **{name: read[name] for name in AS_READ},
        baseline=baseline.config,
        factors=factors,
        together=together,
        designs=designs,
        nuisance=nuisance,
        warnings=(*warnings, *checks.constant_factors(factors)),
        source=source,
        folder=folder,
        document=fields.document,
        places=_places(findings, entries, factors, designs, read["baseline"]),
    )


def _as_list(globs: str | Sequence[str]) -> Sequence[str]:
    return [globs] if isinstance(globs, str) else globs


def _places(
    findings: Findings,
    entries: Mapping[str, FactorModel | None],
    factors: Sequence[Factor],
    designs: Sequence[Design],
    baseline: Mapping[str, Any],
) -> dict[str, tuple[str, int, int]]:
    """Where what a plan may find wrong stands, as StudySpec.places has it."""
    found = {design.name: findings.place(("designs", index, design.kind)) for index, design in enumerate(designs)}
    for key, model in entries.items():
        if model is not None and model.when is not None:
            place = findings.place(("factors", key, "when"))
            found |= {factor.path: place for factor in factors if matching(key, [factor.path]) and factor.when}
        found |= {
            f"factors.{factor.path}": findings.place(("factors", key)) for factor in factors if factor.path == key
        }
    found |= {f"baseline.{path}": findings.place(("baseline", *path.split("."))) for path in leaf_paths(baseline)}
    found["seeds.count"] = findings.place(("seeds", "count"))
    found["nuisance"] = findings.place(("nuisance", "over"))
    found |= {".".join(map(str, loc)): findings.place(loc) for loc in ADDRESSES}
    return {name: (place.file, place.line, place.column) for name, place in found.items()}
