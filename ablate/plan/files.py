"""The files that configurations name: where they lie, and the content that stands for them in an identity."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablate.errors import Problem, SpecError, StudyError
from ablate.plan.configurations import Configurations
from ablate.plan.model import Arm
from ablate.spec.models import Config, StudySpec
from ablate.spec.paths import canonical, value_at, with_value

Check = Callable[[Mapping[str, Any]], None]


class Files:
    """Finds the files of a study's configurations.

    A name is looked for in the folder of the study file, then in the current one. `content` gathers the SHA-256 of
    each, by the name as written; what `spec.files` knows already is taken from there, and the file need not exist.

    Args:
        keys: path that names a file -> path that takes its SHA-256. A hash that is written there is held against it.
        later: path -> the value that means what was before the path existed: with it, it is no part of an identity.
        check: raises StudyError where the beginning of a file cannot be what a configuration says.
    """

    def __init__(self, spec: StudySpec, keys: Mapping[str, str], later: Mapping[str, Any], check: Check) -> None:
        self._spec = spec
        self._keys = keys
        self._later = later
        self._check = check
        self._checked: set[str] = set()
        self._cut: dict[int, tuple[Any, Any]] = {}
        self.content: dict[str, str] = {}

    def located(self, config: Config) -> Config:
        """The configuration with each file by its absolute path, and the hash of its content.

        Raises: SpecError for a file that cannot be read or is not what the configuration says.
        """
        for path, content in self._keys.items():
            name = value_at(config, path)
            if name is None:
                continue
            where, digest = self._find(path, name)
            pinned = value_at(config, content)
            if pinned not in (None, digest):
                raise self._problem(content, f"got {pinned}; {where} has the SHA-256 {digest}")
            config = with_value(with_value(config, path, where), content, digest)
        if not self._spec.files:
            self._check_once(config)
        return config

    def _check_once(self, config: Config) -> None:
        """Check the files of a configuration, once for all that have the same sections of them."""
        sections = canonical([config[key] for key in sorted({path.partition(".")[0] for path in self._keys})])
        if sections in self._checked:
            return
        self._checked.add(sections)
        try:
            self._check(config)
        except StudyError as error:
            raise self._problem(next(iter(self._keys)), str(error)) from None

    def arms(self, arms: Iterable[Arm]) -> list[Arm]:
        """Each arm with its files located."""
        if not self._keys:
            return list(arms)
        return [replace(arm, config=self.located(arm.config)) for arm in arms]

    def identity(self, config: Config, texts: Configurations) -> str:
        """Canonical JSON of what the identity covers: no name of a file, nothing that is as before it existed."""
        sections = {path.partition(".")[0] for path in (*self._keys, *self._later)}
        return texts.text(config | {key: self._section(key, config[key], texts) for key in sections if key in config})

    def _section(self, key: str, section: Any, texts: Configurations) -> Any:
        """A section cut to what the identity covers; once for each object."""
        if id(section) not in self._cut:
            cut = dict(section)
            for path in self._keys:
                if path.startswith(f"{key}."):
                    cut.pop(path.removeprefix(f"{key}."), None)
            for path, before in self._later.items():
                name = path.removeprefix(f"{key}.")
                if path.startswith(f"{key}.") and name in cut and cut[name] == before:
                    del cut[name]
            texts.remember(cut)
            self._cut[id(section)] = section, cut
        return self._cut[id(section)][1]

    def _find(self, path: str, name: str) -> tuple[str, str]:
        if name in self._spec.files:
            self.content[name] = self._spec.files[name]
            return name, self._spec.files[name]
        folders = list(dict.fromkeys((Path(self._spec.folder or ".").resolve(), Path.cwd())))
        # unlike Path.exists, this answers no for a name that is too long or in a folder that may not be read
        found = next((folder / name for folder in folders if os.path.exists(folder / name)), None)  # noqa: PTH110
        if found is None:
            looked = "" if Path(name).is_absolute() else f"; looked in {' and '.join(map(str, folders))}"
            raise self._problem(path, f"got {name!r}: there is no such file{looked}")
        try:
            status = found.stat()
            self.content[name] = _sha256(found, status.st_size, status.st_mtime_ns, status.st_ino)
        except OSError as error:
            raise self._problem(path, f"got {name!r}: {found} cannot be read: {error.strerror or error}") from None
        return str(found), self.content[name]

    def _problem(self, path: str, message: str) -> SpecError:
        """An error at the factor of that path, or at what the baseline says of it."""
        for place in (f"factors.{path}", f"baseline.{path}"):
            if place in self._spec.places:
                return SpecError([Problem(*self._spec.places[place], place, message)])
        return SpecError([Problem(self._spec.source, 0, 0, f"baseline.{path}", message)])


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, size: int, modified: int, inode: int) -> str:  # noqa: ARG001 - another file of that name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
