"""The document of a study as YAML text: `study.yaml` of a run folder."""

from __future__ import annotations

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from ablate.spec.models import Config, StudySpec
from ablate.spec.nodes import scalar

MAX_WIDTH = 120
PLAIN = re.compile(r"[A-Za-z_][\w.*/-]*", re.ASCII)


def dump_study(spec: StudySpec) -> str:
    """The document with `extends` and `--set` merged in. Loaded again, it gives the same plan."""
    return dump_document(spec.document)


def dump_document(document: Config) -> str:
    """A document as YAML text that is read as it was written."""
    yaml = YAML()
    yaml.width = MAX_WIDTH
    yaml.representer.ignore_aliases = lambda _data: True
    stream = io.StringIO()
    yaml.dump(_quoted(document), stream)
    return stream.getvalue()


def _quoted(value: Any) -> Any:
    """The value with those texts in quotes that would be read as something else, or that YAML gives a meaning."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    if isinstance(value, str) and not (PLAIN.fullmatch(value) and scalar(value) is value):
        return DoubleQuotedScalarString(value)
    return value
