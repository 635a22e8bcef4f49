"""The workloads by name. A workload of one's own is `package.module:function`."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.workloads.contract import Workload

#: Where each built-in workload describes itself; those modules import no torch.
BUILT_IN = {
    "synthetic_sequences": "ablate.workloads.synthetic_sequences.config:WORKLOAD",
}


def load_object(reference: str) -> Any:
    """What `module:name` refers to.

    Raises: ImportError, AttributeError as import does; ValueError if it is not of that form.
    """
    module, separator, name = reference.partition(":")
    if not (separator and module and name):
        raise ValueError(f"{reference!r} is not of the form package.module:function")
    return getattr(importlib.import_module(module), name)


def find_workload(name: str) -> Workload:
    """The workload that a study file names.

    Raises: LookupError for a name that is neither built in nor `module:function`; else as load_object.
    """
    if name in BUILT_IN:
        workload = load_object(BUILT_IN[name])
        assert isinstance(workload, Workload)
        return workload
    if ":" not in name:
        near = difflib.get_close_matches(name, BUILT_IN, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise LookupError(f"allowed: {', '.join(sorted(BUILT_IN))} or package.module:function{meant}")
    load_object(name)
    return Workload(name=name, train=name, sources=(name.partition(":")[0],))


def import_folders(study_folder: str | Path) -> tuple[str, ...]:
    """The folders that a workload of one's own is imported from: the study file's, then the current one."""
    return tuple(dict.fromkeys((str(Path(study_folder or ".").resolve()), str(Path.cwd()))))


@contextlib.contextmanager
def import_path(study_folder: str | Path) -> Iterator[None]:
    """Put the import folders in front of the import path for a while."""
    added = [folder for folder in import_folders(study_folder) if folder not in sys.path]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
