"""The state of a training between two steps, on disk."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ablate.workloads.sequence_vae.model import SequenceVAE

VERSION = 2
FILE = "checkpoint.pt"


@dataclass
class Progress:
    """Where a training stands. The data position is the step: it decides which examples come next.

    Attributes:
        step: steps taken.
        row: metrics of the last report.
        counted, clipped: steps since that report, and those of them whose gradient was clipped. A checkpoint
            follows a report, so it does not hold them.
    """

    step: int = 0
    row: dict[str, float] = field(default_factory=dict)
    counted: int = 0
    clipped: int = 0


@dataclass(frozen=True)
class State:
    """All that a training changes.

    Attributes:
        optimiser: what the optimiser remembers of the parameters, taken as one vector; empty before the first step.
        generators: the random streams by name.
        identity: says whose it is: a checkpoint with another one is not read.
    """

    model: SequenceVAE
    optimiser: dict[str, Any]
    generators: dict[str, Generator]
    identity: str
    progress: Progress


def save(state: State, folder: Path) -> None:
    """Write the state so that a reader finds the old file or the new one, never a part."""
    folder.mkdir(parents=True, exist_ok=True)
    progress = state.progress
    made = folder / f".{FILE}.part"
    torch.save(
        {
            "version": VERSION,
            "identity": state.identity,
            "model": {name: value.clone() for name, value in state.model.state_dict().items()},
            "optimiser": dict(state.optimiser),
            "generators": {name: generator.get_state() for name, generator in state.generators.items()},
            "progress": {"step": progress.step, "row": progress.row},
        },
        made,
    )
    made.replace(folder / FILE)


def restore(state: State, folder: Path | None, device: str) -> str | None:
    """Bring the state to where the folder's checkpoint was written; without one it is left as it is.

    Returns: what is wrong with the checkpoint that was found, or None. The state is then to be made anew.
    """
    path = None if folder is None else folder / FILE
    if path is None or not path.exists():
        return None
    try:
        saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        if saved["version"] != VERSION or saved["identity"] != state.identity:
            return "it belongs to another training"
        state.model.load_state_dict(saved["model"])
        state.optimiser.update(saved["optimiser"])
        for name, generator in state.generators.items():
            generator.set_state(saved["generators"][name].cpu())
        for name, value in saved["progress"].items():
            setattr(state.progress, name, value)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'it cannot be read'}"
    return None
