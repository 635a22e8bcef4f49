"""Which reference table a configuration needs. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ablate.workloads.sequence_vae.config import Reference

CODE = ("data.py", "model.py", "networks.py", "reference.py", "reference_table.py")
"""Files of this package that decide what a table holds."""


def table_key(fingerprint: str, reference: Reference, source: Path) -> str:
    """Hash of the data, the reference's settings and the code that makes a table of them.

    Args:
        fingerprint: hash of the data's content.
        source: file of the data source that gives the sequences.
    """
    digest = hashlib.sha256(json.dumps([fingerprint, reference.model_dump(mode="json")], sort_keys=True).encode())
    for path in (source, *(Path(__file__).parent / name for name in CODE)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
