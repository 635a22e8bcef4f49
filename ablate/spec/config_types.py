"""What a workload's configuration type says of a path: which members there are, and of what kind a value is."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from ablate.spec.models import Kind


def alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without wrappers."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if hasattr(annotation, "__value__"):  # `type X = …`, Python 3.12
        return alternatives(annotation.__value__)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return [found for part in get_args(annotation) for found in alternatives(part)]
    return [annotation]


def members(annotation: Any) -> dict[str, Any]:
    """Names and annotations of the keys of a section; empty for anything else."""
    found: dict[str, Any] = {}
    for kind in alternatives(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= {name: info.annotation for name, info in kind.model_fields.items()}
        elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
            hints = typing.get_type_hints(kind)
            found |= {item.name: hints[item.name] for item in dataclasses.fields(kind)}
    return found


def annotation_at(annotation: Any, parts: Sequence[str | int]) -> Any:
    """The annotation of what stands at a path; None where no type is known."""
    for part in parts:
        inner = members(annotation)
        annotation = inner.get(part) if isinstance(part, str) else _item(annotation)
        if annotation is None:
            return None
    return annotation


def _item(annotation: Any) -> Any:
    """The annotation of a list's items."""
    for kind in alternatives(annotation):
        if get_origin(kind) in (list, tuple) and get_args(kind):
            return get_args(kind)[0]
    return None


def kind_of(annotation: Any) -> tuple[Kind, tuple[Any, ...]]:
    """How a value is typed, and for `choice` every value that the type allows, as they stand in a configuration."""
    kinds = [] if annotation is None else alternatives(annotation)
    if kinds == [float] or kinds == [int]:
        return ("float" if kinds == [float] else "int"), ()
    choices: list[Any] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            choices += [choice.value if isinstance(choice, Enum) else choice for choice in get_args(kind)]
        elif isinstance(kind, type) and issubclass(kind, Enum):
            choices += [member.value for member in kind]
        elif kind is bool:
            choices += [False, True]
        elif kind is type(None):
            choices.append(None)
        else:
            return "free", ()
    return ("choice", tuple(choices)) if choices else ("free", ())
