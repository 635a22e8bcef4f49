"""Whether every node of a cluster has what its workers will need, found before the first trial."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from ablate.errors import SpecError
from ablate.record.run_folder import RunFolder
from ablate.run.ray_tune.session import Session
from ablate.workloads import load_object


def check_nodes(session: Session, folder: RunFolder, train: str, import_path: tuple[str, ...]) -> None:
    """See that the nodes share this study's folders and can import its workload.

    Args:
        train: `module:function` of the workload.
        import_path: folders in front of a worker's import path.
    Raises: SpecError that names the nodes and the settings.
    """
    name = f".seen-by-all-{uuid.uuid4().hex[:8]}"
    wanted = {"run folder": folder.path.resolve()}
    if folder.storage is not None:
        wanted["run.storage"] = (folder.storage / folder.path.name).resolve()
        wanted["run.storage"].mkdir(parents=True, exist_ok=True)
    markers = {what: path / name for what, path in wanted.items()}
    for marker in markers.values():
        marker.write_text("", encoding="utf-8")
    try:
        answers = session.ask_nodes(lacks, {what: str(path) for what, path in markers.items()}, train, import_path)
    finally:
        for marker in markers.values():
            marker.unlink(missing_ok=True)
    problems = [_in_words(address, lack, wanted, train) for address, found in answers.items() for lack in found]
    if problems:
        raise SpecError("\n".join(problems))


def lacks(markers: dict[str, str], train: str, import_path: Sequence[str]) -> list[str]:
    """What a node lacks, as it sees it itself: keys of `markers`, or why the workload cannot be imported."""
    found = [what for what, path in markers.items() if not Path(path).exists()]
    sys.path[:0] = [folder for folder in import_path if folder not in sys.path]
    try:
        load_object(train)
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        found.append(f"{type(error).__name__}: {error}")
    return found


def _in_words(address: str, lack: str, wanted: dict[str, Path], train: str) -> str:
    if lack == "run folder":
        need = "workers on several nodes need a run folder that all of them see: name one with --runs DIR"
        return f"run.address: node {address} does not see {wanted[lack]}; {need}"
    if lack == "run.storage":
        need = "a trial goes on from its checkpoint on another node only where all of them see the folder"
        return f"run.storage: node {address} does not see {wanted[lack]}; {need}"
    need = "the study file's folder must be at the same path on every node, and what it imports be installed there"
    return f"workload: node {address} cannot import {train} ({lack}); {need}"
