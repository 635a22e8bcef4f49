"""The parts of a study document, each checked by itself, so that one that is wrong hides no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ablate.spec.factors import read_entry
from ablate.spec.file_model import DesignModel, StudyFile
from ablate.spec.findings import Findings, Loc, add_errors
from ablate.spec.models import Config, FactorModel
from ablate.spec.wording import hint, listed, shown


class Fields:
    """The parts of a document that are sound by themselves."""

    def __init__(self, findings: Findings, document: Config) -> None:
        self.findings = findings
        self.document = document
        self._check_keys()

    def _check_keys(self) -> None:
        for key in self.document:
            if key not in StudyFile.model_fields:
                names = StudyFile.model_fields
                self.findings.add((key,), f"unknown key; allowed: {listed(names)}{hint(key, names)}", at_key=True)
        for key, field in StudyFile.model_fields.items():
            if field.is_required() and key not in self.document:
                self.findings.add((), "missing; this key is required", path=key)

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
        if not written and "factors" in self.document:
            self.findings.add(("factors",), "got an empty mapping; allowed: at least one path with its values")
        return {key: read_entry(self.findings, key, entry) for key, entry in written.items()}

    def designs(self) -> list[DesignModel | None]:
        """The entries of `designs`; None for those with something wrong."""
        written = self.document.get("designs")
        if "designs" in self.document and not (isinstance(written, list) and written):
            got = "an empty list" if written == [] else shown(written)
            self.findings.add(("designs",), f"got {got}; allowed: a list of designs")
        return [self._design(index, entry) for index, entry in enumerate(written)] if isinstance(written, list) else []

    def _design(self, index: int, written: Any) -> DesignModel | None:
        loc: Loc = ("designs", index)
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
