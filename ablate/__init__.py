"""Ablation studies of sequence-model objectives: plan, run, record and judge."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Public functions, imported on first use so that `import ablate` costs nothing.
_PUBLIC = {"open_study": "ablate.record.frames", "run_study": "ablate.run.calling"}

__all__ = ["__version__", "open_study", "run_study"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
