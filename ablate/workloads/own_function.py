"""A trial function of the user's own: what can be known of it before it runs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from ablate.workloads.contract import Workload, check_metric_name
from ablate.workloads.reported_metrics import reported_metrics


def describe_function(reference: str, function: object) -> Workload:
    """The workload that a function `train(config, trial)` is.

    Its settings are the default of its first parameter, where that is a mapping: their names and types check a
    study file, and what the file does not write is taken from them. Its metrics are known where its text names
    every one of them.

    Raises: LookupError where it cannot be called so, or its text reports a metric that the records cannot hold.
    """
    _check_signature(reference, function)
    assert callable(function)
    metrics = reported_metrics(function)
    for name in metrics or ():
        try:
            check_metric_name(name)
        except ValueError as error:
            raise LookupError(str(error)) from None
    defaults = default_config(function)
    return Workload(
        name=reference,
        train=reference,
        config_type=None if defaults is None else _config_type(reference, defaults, ()),
        sources=(reference.partition(":")[0],),
        metrics=None if metrics is None else frozenset(metrics),
        primary=metrics[0] if metrics else "",
    )


def _check_signature(reference: str, function: object) -> None:
    needed = "a function train(config, trial) that returns a dict of metrics"
    if not callable(function) or inspect.isclass(function):
        raise LookupError(f"{reference} is {_kind(function)}; allowed: {needed}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise LookupError(f"{reference} is a coroutine or a generator; allowed: {needed}")
    signature = inspect.signature(function)
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise LookupError(f"{reference} has the signature {signature} ({error}); allowed: {needed}") from None


def _kind(value: object) -> str:
    return "a class" if inspect.isclass(value) else f"of type {type(value).__name__}"


# --- settings -----------------------------------------------------------------------------------


def default_config(function: Callable[..., object]) -> Mapping[str, Any] | None:
    """The default of the function's first parameter, or None where that is no mapping with something in it."""
    first = next(iter(inspect.signature(function).parameters.values()))
    return first.default if isinstance(first.default, Mapping) and first.default else None


def _config_type(reference: str, defaults: Mapping[str, Any], path: tuple[str, ...]) -> type[BaseModel]:
    """A model with a field for each default, of the default's type."""
    fields: dict[str, Any] = {}
    for key, value in defaults.items():
        if not isinstance(key, str) or not key or "." in key or "*" in key or key.startswith("_"):
            raise LookupError(
                f"{reference} has the default {key!r}; allowed: names without '.' and '*' that begin with no '_'"
            )
        kind = _type_of(reference, value, (*path, key))
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        fields[key] = (kind, kind() if nested else value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a setting may go by the name of a method of BaseModel
        return create_model(
            "Settings", __config__=ConfigDict(extra="forbid", frozen=True, protected_namespaces=()), **fields
        )


def _type_of(reference: str, value: object, path: tuple[str, ...]) -> Any:
    match value:
        case bool() | int() | float() | str():
            return type(value)
        case Mapping() if value:
            return _config_type(reference, value, path)
        case None | Mapping() | list() | tuple():
            return Any
    message = f"{reference} has {type(value).__name__} as the default of {'.'.join(path)}"
    raise LookupError(f"{message}; allowed: numbers, text, true or false, null, lists and mappings of them")
