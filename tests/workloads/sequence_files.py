"""Small files of sequences, and the tables made of them."""

import gzip

from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.table import write_table
from ablate.workloads.sequence_vae.data_table import open_data, prepare_data

WORDS = [f"{a}{b}{c}" for a in "bdkmt" for b in "aeiou" for c in ("", "n", "st")]
"""75 distinct ones."""

HALF = {"select_share": 0.25, "report_share": 0.25}


def written(folder, content, name="data.txt"):
    """A file of that content; text is UTF-8, a name that ends in gz is compressed."""
    raw = content.encode() if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def table_of(path, **settings):
    """The data table of a file."""
    data = Data.model_validate({**HALF, "path": str(path), **settings})
    prepare_data("data", lambda folder: write_table(folder, data), path.parent / "tables")
    return open_data("data", path.parent / "tables")


def texts_of(table):
    """What a reader sees of each row, without the special tokens."""
    rows = table.sequences.tokens
    return ["".join(table.texts[token] for token in row if token > 2) for row in rows]
