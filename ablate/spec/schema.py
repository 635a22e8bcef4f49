"""The JSON Schema of the study file, for editors."""

from __future__ import annotations

from typing import Any

from ablate.spec.file_model import StudyFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def study_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the study file, made from the models that check it.

    A file that extends another need not have the required keys itself, so none is required where `extends` stands.
    """
    schema = StudyFile.model_json_schema()
    required = schema.pop("required")
    return {
        "$schema": DIALECT,
        **schema,
        "if": {"required": ["extends"]},
        "else": {"required": required},
    }
