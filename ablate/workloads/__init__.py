"""The workloads by name. A workload of one's own is `package.module:function`."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.workloads.contract import Workload
from ablate.workloads.own_function import describe_function
from ablate.workloads.reported_metrics import read_settings

#: Where each built-in workload describes itself; those modules import no torch.
BUILT_IN = {
    "sequence_file": "ablate.workloads.sequence_file.config:WORKLOAD",
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

    Raises: LookupError for a name that is neither built in nor `module:function`, for a function that is not there,
        and for one that cannot be a trial function; else what importing its module raises.
    """
    if name in BUILT_IN:
        workload = load_object(BUILT_IN[name])
        assert isinstance(workload, Workload)
        return workload
    if ":" not in name:
        module, _, function = name.rpartition(".")
        near = difflib.get_close_matches(name, BUILT_IN, n=1) or ([f"{module}:{function}"] if module else [])
        meant = f"; did you mean {near[0]}?" if near else ""
        raise LookupError(f"allowed: {', '.join(sorted(BUILT_IN))} or package.module:function{meant}")
    return describe_function(name, _own(name))


def _own(name: str) -> object:
    """What `module:function` refers to, for a user who may have mistyped either.

    Raises: as load_object; LookupError where there is no such module or function.
    """
    module, _, function = name.partition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a command's output is for machines too
            return load_object(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        places = "the study file's folder, the current one and what is installed"
        raise LookupError(f"no module {error.name}; looked in {places}") from None
    except AttributeError:
        if module not in sys.modules or hasattr(sys.modules[module], function):
            raise
        functions = [key for key, value in vars(sys.modules[module]).items() if inspect.isfunction(value)]
        near = difflib.get_close_matches(function, functions, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise LookupError(f"module {module} has no {function}{meant}") from None


def default_settings(workload: Workload) -> dict[str, Any]:
    """The settings of a function of the user's own, with their defaults, as far as it tells; {} for a built-in one."""
    if workload.name in BUILT_IN:
        return {}
    if workload.config_type is not None:
        return workload.config_type().model_dump()
    return read_settings(load_object(workload.name))


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
