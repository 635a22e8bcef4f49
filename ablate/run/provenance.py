"""Which code, versions and machine a trial ran with."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ablate import __version__

_PACKAGES = ("torch", "numpy", "ray", "optuna", "mlflow", "pandas")


def code_hash(sources: Sequence[str]) -> str:
    """Hash of the package version and of the source files of the named modules and packages.

    Raises: ModuleNotFoundError for a name that cannot be found.
    """
    digest = hashlib.sha256(__version__.encode())
    for name in sources:
        for path in source_files(name):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def source_files(module: str) -> list[Path]:
    """The Python files of a module, or of a whole package."""
    found = importlib.util.find_spec(module)
    if found is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    folders = list(found.submodule_search_locations or ())
    if folders:
        return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    return [Path(found.origin)] if found.origin else []


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Installed versions, the toolkit's own first."""
    found = {"ablate-toolkit": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> dict[str, str]:
    """Commit of the repository that holds the folder, and hash and text of what is not committed; {} outside one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    diff = _git(folder, "diff", "HEAD") or ""
    state = {"git_commit": commit.strip()}
    if diff:
        state |= {"git_diff_sha256": hashlib.sha256(diff.encode()).hexdigest()[:16], "git_diff": diff}
    return state


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def hardware() -> dict[str, Any]:
    """What this machine is."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
    }
