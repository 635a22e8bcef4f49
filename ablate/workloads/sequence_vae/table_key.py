"""Which data and reference table a configuration needs. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from ablate.workloads.sequence_vae.config import Reference

DATA_CODE = ("data.py", "data_table.py", "table_files.py")
"""Files of this package that decide what a data table holds."""

CODE = ("model.py", "networks.py", "reference.py", "reference_table.py")
"""Files of this package that decide what a reference table holds."""


def data_key(fingerprint: str, sources: Iterable[Path]) -> str:
    """Hash of the data and of the code that makes a table of them.

    Args:
        fingerprint: hash of the data's content.
        sources: files of the data source that give the sequences.
    """
    return f"data-{_hash(fingerprint, [*sources, *_own(DATA_CODE)])}"


def table_key(data: str, reference: Reference) -> str:
    """Hash of the key of the data, the reference's settings and the code that makes a table of them."""
    content = json.dumps([data, reference.model_dump(mode="json")], sort_keys=True)
    return _hash(content, _own(CODE))


def _own(names: Iterable[str]) -> list[Path]:
    return [Path(__file__).parent / name for name in names]


def _hash(content: str, code: Iterable[Path]) -> str:
    digest = hashlib.sha256(content.encode())
    for path in code:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
