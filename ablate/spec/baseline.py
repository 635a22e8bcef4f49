"""The configuration of the baseline arm, and how a value is read as its configuration's type."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ablate.spec.findings import Findings, Loc, add_errors
from ablate.spec.models import Config
from ablate.spec.paths import canonical, value_at, with_value
from ablate.spec.wording import shown

LARGEST = int(sys.float_info.max)

ConfigType = type[BaseModel]


def complete(config_type: ConfigType | None, config: Mapping[str, Any]) -> Config:
    """The configuration with the type's defaults filled in, as plain JSON values.

    It is read as strict JSON: a quoted number is no number, a list does for a tuple, a text for an enumeration.

    Raises: pydantic.ValidationError.
    """
    if config_type is None:
        return dict(config)
    model = config_type.model_validate_json(canonical(config), strict=True)
    return model.model_dump(mode="json", round_trip=True)


@dataclass(frozen=True)
class Baseline:
    """The configuration of the baseline arm. Where it is not `sound`, the type's defaults stand for what is wrong."""

    config: Config
    sound: bool


def read_baseline(findings: Findings, written: Mapping[str, Any], config_type: ConfigType | None) -> Baseline | None:
    """The configuration of the baseline arm, or None where what is written says too little of it."""
    loc: Loc = ("baseline",)
    infinite = list(not_finite(written, loc))
    for place, value in infinite:
        findings.add(place, f"got {shown(value)}; allowed: a finite number")
    wrong = [place for place, _ in infinite]
    finite = without(written, [place[1:] for place in wrong])
    if config_type is None:
        sound = _names_are_paths(findings, finite, loc) and not wrong
        return Baseline(finite, sound)
    try:
        return Baseline(complete(config_type, finite), sound=not wrong)
    except ValidationError as error:
        refused = add_errors(findings, error, loc, config_type)
    try:
        return Baseline(complete(config_type, without(finite, [place[1:] for place in refused])), sound=False)
    except ValidationError:
        return None


def without(config: Mapping[str, Any], places: Sequence[Loc]) -> Config:
    """A configuration that lacks what stands at some places; a list is left out as a whole."""
    left: Config = {}
    for key, value in config.items():
        inside = [place[1:] for place in places if place and place[0] == key]
        if () in inside or (inside and not isinstance(value, Mapping)):
            continue
        left[key] = without(value, inside) if inside else value
    return left


def not_finite(value: Any, loc: Loc) -> Iterator[tuple[Loc, float]]:
    """Places of the numbers that are NaN or infinite, or would be as floats."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from not_finite(item, (*loc, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from not_finite(item, (*loc, index))
    elif (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, int) and abs(value) > LARGEST):
        yield loc, value


def _names_are_paths(findings: Findings, written: Mapping[str, Any], loc: Loc) -> bool:
    """Whether the keys of a free configuration can be parts of a dotted path."""
    fine = True
    for key, value in written.items():
        if not key or "." in key or "*" in key:
            findings.add((*loc, key), f"got the key {shown(key)}; allowed: a name without '.' and '*'", at_key=True)
            fine = False
        if isinstance(value, Mapping):
            fine = _names_are_paths(findings, value, (*loc, key)) and fine
    return fine


def read_value(config_type: ConfigType | None, baseline: Config, path: str, value: Any, kind: str) -> Any:
    """A factor's value as its configuration's type has it: 1 for a float is 1.0.

    Raises: pydantic.ValidationError if the type refuses this value, whatever stands elsewhere.
    """
    try:
        return value_at(complete(config_type, with_value(baseline, path, value)), path)
    except ValidationError as error:
        if any(concerns(item["loc"], path) for item in error.errors(include_url=False, include_input=False)):
            raise
    return float(value) if kind == "float" else value


def concerns(loc: Loc, path: str) -> bool:
    """Whether a place of pydantic's (which may name union members on the way) is at or below a path."""
    parts = iter(loc)
    return all(part in parts for part in path.split("."))
