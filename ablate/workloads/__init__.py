"""The workloads by name. A workload of one's own is `package.module:function`."""

from __future__ import annotations

import importlib
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

    Raises: as load_object.
    """
    if name in BUILT_IN:
        workload = load_object(BUILT_IN[name])
        assert isinstance(workload, Workload)
        return workload
    load_object(name)
    return Workload(name=name, train=name, sources=(name.partition(":")[0],))
