"""The record of reports that showed outcomes: who looks again and adds seeds until it is significant errs more often.

Two files of the run folder, beside `report/`: `looks.jsonl`, a line a look, written here; `changes.jsonl`, written by
the runner when `metrics` or `analysis` changed after trials had finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

FILE = "looks.jsonl"
CHANGES_FILE = "changes.jsonl"


@dataclass(frozen=True)
class Look:
    """One report that showed outcomes.

    Attributes:
        time: ISO 8601.
        seeds: the seeds that the plan had.
        outcomes: COMPLETE trials.
        digest: of which trials those were; the same outcomes looked at twice are one look.
    """

    time: str
    seeds: tuple[int, ...]
    outcomes: int
    digest: str


def this_look(trials: pd.DataFrame, time: str) -> Look:
    """What a report made of these trials shows."""
    complete = trials.loc[trials["state"] == "COMPLETE"]
    columns = [name for name in ("trial_id", "attempt") if name in complete]
    lines = sorted("/".join(map(str, row)) for row in complete[columns].to_numpy()) if columns else []
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    seeds = tuple(sorted({int(seed) for seed in trials["seed"]})) if len(trials) else ()
    return Look(time, seeds, len(complete), digest)


def record_look(folder: Path | None, look: Look) -> tuple[Look, ...]:
    """Append a look that shows other outcomes than the last one; returns all looks so far, this one among them.

    A study without a run folder (an exported one) has no record: its looks are this one alone. A folder that can't be
    written is read: the report is still made.
    """
    past = read_looks(folder) if folder is not None else ()
    if not look.outcomes or (past and past[-1].digest == look.digest and past[-1].seeds == look.seeds):
        return past
    if folder is not None:
        try:
            with (folder / FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(look)) + "\n")
        except OSError:
            pass  # a folder for reading only: the look is shown, and can't be kept
    return (*past, look)


def read_looks(folder: Path) -> tuple[Look, ...]:
    """Looks recorded in a run folder, oldest first; a line that was torn is skipped."""
    return tuple(
        Look(str(line["time"]), tuple(line["seeds"]), int(line["outcomes"]), str(line["digest"]))
        for line in _lines(folder / FILE)
        if {"time", "seeds", "outcomes", "digest"} <= set(line)
    )


def read_changes(folder: Path | None) -> tuple[dict[str, Any], ...]:
    """Changes of `metrics` or `analysis` after results existed: `time, changed, finished_trials`."""
    return tuple(_lines(folder / CHANGES_FILE)) if folder is not None else ()


def seed_stages(looks: Sequence[Look]) -> list[int]:
    """Numbers of planned seeds at which outcomes were looked at, each more than the one before."""
    stages: list[int] = []
    for look in looks:
        if not stages or len(look.seeds) > stages[-1]:
            stages.append(len(look.seeds))
    return stages


def after_extension(looks: Sequence[Look], declared: int) -> bool:
    """Whether seeds were added after outcomes had been looked at, more often than `analysis.looks` declared."""
    return len(seed_stages(looks)) > declared


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
