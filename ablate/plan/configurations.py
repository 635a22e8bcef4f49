"""Configurations of many arms, which share what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from ablate.spec.models import Config
from ablate.spec.paths import canonical, with_value

Validate = Callable[[str], object]


class Configurations:
    """Makes configurations from a baseline and changes to it.

    A section (what stands under a top-level key) is made, written and checked once, however many arms have it: a
    design of 100,000 arms changes few sections, and mostly to the same.
    """

    def __init__(self, baseline: Config, config_type: type[BaseModel] | None) -> None:
        self._baseline = baseline
        self._sections: dict[tuple[Any, ...], Any] = {}
        self._texts: dict[int, str] = {id(section): canonical(section) for section in baseline.values()}
        self._names = {key: canonical(key) for key in sorted(baseline)}
        self._refusals: dict[tuple[str, int], str | None] = {}
        self._whole, self._parts = _validators(config_type)

    def changed(self, changes: Mapping[str, Any]) -> Config:
        """The baseline with other values at some paths."""
        by_key: dict[str, list[tuple[str, Any]]] = {}
        for path, value in changes.items():
            by_key.setdefault(path.partition(".")[0], []).append((path, value))
        config = dict(self._baseline)
        for key, found in by_key.items():
            config[key] = self._section(key, found)
        return config

    def _section(self, key: str, changes: list[tuple[str, Any]]) -> Any:
        """A changed section. Values are told apart as objects; the memory of them keeps them from being replaced."""
        name = (key, *((path, id(value)) for path, value in changes))
        if name not in self._sections:
            part: Config = {key: self._baseline[key]}
            for path, value in changes:
                part = with_value(part, path, value)
            self._sections[name] = part[key], changes
            self._texts[id(part[key])] = canonical(part[key])
        return self._sections[name][0]

    def remember(self, section: Any) -> None:
        """Write a section once; it has to live as long as this does."""
        self._texts[id(section)] = canonical(section)

    def section_text(self, config: Config, key: str) -> str:
        """Canonical JSON of one section; null where there is none."""
        section = config.get(key)
        return self._texts.get(id(section)) or canonical(section)

    def text(self, config: Config) -> str:
        """The same as `canonical(config)`."""
        if config.keys() != self._names.keys():
            return canonical(config)
        parts = [f"{name}:{self.section_text(config, key)}" for key, name in self._names.items()]
        return f"{{{','.join(parts)}}}"

    def refusal(self, config: Config) -> str | None:
        """Why the configuration's type refuses it; None where it does not."""
        if self._whole is not None:
            return _refusal(self._whole, self.text(config), "")
        for key, validate in self._parts.items():
            known = (key, id(config[key]))
            if known not in self._refusals:
                self._refusals[known] = _refusal(validate, self.section_text(config, key), key)
            if (reason := self._refusals[known]) is not None:
                return reason
        return None


def _validators(config_type: type[BaseModel] | None) -> tuple[Validate | None, dict[str, Validate]]:
    """What reads JSON text as the configuration's type: a section at a time where no rule spans several of them."""
    if config_type is None:
        return None, {}
    rules = config_type.__pydantic_decorators__
    spanning = rules.model_validators or rules.root_validators or rules.field_validators or rules.validators
    if spanning or config_type.__pydantic_custom_init__ or config_type.model_config.get("extra") == "allow":
        return partial(config_type.model_validate_json, strict=True), {}
    adapters = {key: TypeAdapter(field.rebuild_annotation()) for key, field in config_type.model_fields.items()}
    return None, {key: partial(adapter.validate_json, strict=True) for key, adapter in adapters.items()}


def _refusal(validate: Validate, text: str, prefix: str) -> str | None:
    try:
        validate(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(filter(None, (prefix, *map(str, first["loc"]))))
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    return None
