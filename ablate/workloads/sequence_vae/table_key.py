"""Which reference table a configuration needs. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ablate.workloads.sequence_vae.config import Reference

CODE = ("data.py", "model.py", "networks.py", "reference.py", "reference_table.py")
"""Files of this package that decide what a table holds."""


def table_key(fingerprint: str, reference: Reference) -> str:
    """Hash of the data, the reference's settings and the code that makes a table of them."""
    digest = hashlib.sha256(json.dumps([fingerprint, reference.model_dump(mode="json")], sort_keys=True).encode())
    for name in CODE:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]
