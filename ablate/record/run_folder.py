"""Where a study keeps its files, and the lock that one process holds while it runs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ablate.errors import StudyError

FORMAT_VERSION = 1

#: What a file system says that has no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one study: `runs/<study>/`.

    Attributes:
        storage: where checkpoints go instead (`run.storage`), or None.
    """

    path: Path
    storage: Path | None = None

    @property
    def study_file(self) -> Path:
        """The resolved study file."""
        return self.path / "study.yaml"

    @property
    def settings_file(self) -> Path:
        """What the file does not say and reading back needs: format version, folder of the original file."""
        return self.path / "folder.json"

    @property
    def artifacts(self) -> Path:
        """Artifacts of the MLflow runs, where MLflow is a file of this folder."""
        return self.path / "artifacts"

    @property
    def reference(self) -> Path:
        """Prepared data and reference tables, shared by all trials."""
        return self.path / "reference"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report"

    @property
    def ray(self) -> Path:
        """Ray's own scratch files; swept when a run ends."""
        return self.path / ".ray"

    def trial(self, trial_id: str) -> Path:
        """The folder of one trial."""
        return self.path / "trials" / trial_id

    def history(self, trial_id: str) -> Path:
        """Every metric that the trial reported, a line a report."""
        return self.trial(trial_id) / "history.jsonl"

    def log(self, trial_id: str) -> Path:
        """What the trial printed."""
        return self.trial(trial_id) / "log.txt"

    def texts(self, trial_id: str) -> Path:
        """Texts that the trial kept: samples, tables."""
        return self.trial(trial_id) / "texts"

    def checkpoints(self, trial_id: str) -> Path:
        """What the trial itself keeps to resume from."""
        if self.storage is not None:
            return self.storage / self.path.name / trial_id
        return self.trial(trial_id) / "checkpoint"

    def write_settings(self, source_folder: str, files: Mapping[str, str]) -> None:
        """Note the format of this folder, where the study file lay, and the SHA-256 of the files that it names."""
        settings = {"format": FORMAT_VERSION, "source_folder": source_folder, "files": dict(files)}
        write_atomically(self.settings_file, json.dumps(settings))

    def source_folder(self) -> str:
        """The folder of the study file, or this folder's own where it is not noted."""
        try:
            return str(json.loads(self.settings_file.read_text(encoding="utf-8"))["source_folder"])
        except (OSError, ValueError, KeyError, TypeError):
            return str(self.path)

    def files(self) -> dict[str, str]:
        """SHA-256 of the files that the study names, as it last ran; so that reading it back needs none of them."""
        try:
            return dict(json.loads(self.settings_file.read_text(encoding="utf-8"))["files"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the study; the kernel lets go of it when this process ends, however it ends.

        Yields whether it is held: some file systems have no such locks.

        Raises: StudyError naming the process that holds it.
        """
        with (self.path / "lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StudyError(
                    f"study {self.path.name} is being run by {self.holder() or 'another process'}"
                ) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                yield False
                return
            file.truncate(0)
            started = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": started}))
            file.flush()
            try:
                yield True
            finally:
                file.truncate(0)

    def holder(self) -> str | None:
        """Words for the process that runs this study now, or None."""
        try:
            file = (self.path / "lock").open("r", encoding="utf-8")
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                try:
                    owner = json.loads(file.read())
                    return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
                except (ValueError, KeyError):
                    return "another process"
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, whole; an equal text leaves it untouched."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
