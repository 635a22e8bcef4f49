"""What a study file says of `sequence_file`. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ablate.workloads.contract import Workload
from ablate.workloads.sequence_vae.config import (
    LATER,
    Reference,
    Section,
    Seed,
    TrialSettings,
    pack_key,
    training_steps,
)
from ablate.workloads.sequence_vae.metric_names import metric_names
from ablate.workloads.sequence_vae.table_key import data_key, table_key

Column = Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=1)]
"""A column by its number, from 1, or by its name."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Levels = Annotated[tuple[str, ...], Field(strict=False, min_length=2, max_length=10_000)]
Share = Annotated[float, Field(gt=0, lt=1)]

FORMATS = {".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Format of a file by its ending, which `.gz` may follow."""

BYTE_TOKENS = 3 + 256
"""PAD, BOS, EOS and the bytes: what every BPE vocabulary holds."""

CODE = ("account.py", "reading.py", "scan.py", "spool.py", "table.py", "tokenizers.py")
"""Files of this package that decide what a data table holds."""


class Features(Section):
    """Factors out of a column of tags, such as UniMorph's `N;DEF;NOM;SG`.

    Attributes:
        split: what stands between two tags.
        factors: name of a factor -> its levels; a row has the one level that is among its tags.
    """

    column: Column
    split: Annotated[str, Field(min_length=1)] = ";"
    factors: Annotated[dict[Name, Levels], Field(min_length=1)]


class Data(Section):
    """The file, what is read of it, and how it is cut into tokens and splits.

    Attributes:
        path: of the file, relative to the study file; its content counts, not its name.
        sha256: of its content; where it is given, a file with another content is refused.
        format: `auto` goes by the file's ending.
        header: whether the first row of a csv or tsv file names the columns.
        text: column of the sequences; a txt file has none.
        group: column of what must not be in two splits (a lemma, a speaker); null: the sequence itself.
        factors: name of a factor -> its column.
        features: further factors, out of a column of tags.
        incomplete: rows that lack a factor are kept, with a level of their own, or dropped.
        tokenizer: `file` is a tokenizer.json of Hugging Face tokenizers.
        vocabulary_size: most tokens of characters (rarer ones are one token, unknown) and of bpe, the special ones
            included.
        tokenizer_file, tokenizer_sha256: as path and sha256.
        max_tokens: longer sequences are cut; counted without the special tokens.
        share: of the groups, drawn by `seed`, that are used at all.
        select_share, report_share: of the groups, by a hash that `split_seed` enters.
    """

    path: Annotated[str, Field(min_length=1)] = "data.txt"
    sha256: Sha256 | None = None
    format: Literal["auto", "txt", "csv", "tsv", "jsonl", "parquet"] = "auto"
    header: bool = True
    text: Column = "text"
    group: Column | None = None
    factors: dict[Name, Column] = Field(default_factory=dict)
    features: Features | None = None
    incomplete: Literal["keep", "drop"] = "keep"
    tokenizer: Literal["bytes", "characters", "bpe", "file"] = "characters"
    vocabulary_size: Annotated[int, Field(ge=8, le=1_000_000)] = 4096
    tokenizer_file: Annotated[str, Field(min_length=1)] | None = None
    tokenizer_sha256: Sha256 | None = None
    max_tokens: Annotated[int, Field(ge=1, le=8192)] = 128
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Seed = 0
    select_share: Share = 0.1
    report_share: Share = 0.1
    split_seed: Seed = 0

    @model_validator(mode="after")
    def _parts_agree(self) -> Data:
        if self.select_share + self.report_share >= 1:
            raise ValueError(
                f"select_share {self.select_share:g} and report_share {self.report_share:g} leave nothing to train on"
            )
        if (self.tokenizer == "file") != (self.tokenizer_file is not None):
            raise ValueError("tokenizer: file and tokenizer_file are given together")
        if self.tokenizer == "bpe" and self.vocabulary_size < BYTE_TOKENS:
            raise ValueError(f"vocabulary_size {self.vocabulary_size} is below {BYTE_TOKENS}, what bpe starts from")
        if self.features is not None and (twice := sorted(self.factors.keys() & self.features.factors.keys())):
            raise ValueError(f"factor {twice[0]} stands both under factors and under features")
        return self

    @property
    def kind(self) -> str | None:
        """The format; None where the ending does not tell."""
        if self.format != "auto":
            return self.format
        return FORMATS.get(Path(self.path.lower().removesuffix(".gz")).suffix)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Every factor, in the order of the table's columns."""
        return (*self.factors, *(self.features.factors if self.features else ()))


class Config(TrialSettings):
    """The whole configuration of a trial on a file; its defaults are the workload's own."""

    data: Data = Data()
    reference: Reference = Reference()


def data_fingerprint(config: Mapping[str, Any]) -> str:
    """Hash of what the sequences are: content of the files, and what is done with it."""
    data = Data.model_validate(dict(config.get("data", {})))
    settings = data.model_dump(mode="json", exclude={"path", "tokenizer_file"})
    settings["format"] = data.kind
    settings["sha256"] = data.sha256 or content(data.path)
    if data.tokenizer_file is not None:
        settings["tokenizer_sha256"] = data.tokenizer_sha256 or content(data.tokenizer_file)
    if data.share == 1:
        del settings["seed"]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def check(config: Mapping[str, Any]) -> None:
    """Read the first row.

    Raises: StudyError where it cannot be read, or lacks a column.
    """
    from ablate.workloads.sequence_file.reading import read_records

    next(read_records(Data.model_validate(dict(config.get("data", {})))), None)


def content(path: str) -> str | None:
    """SHA-256 of a file; None where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def sequences_key(config: Mapping[str, Any]) -> str:
    """Key of the data table that a configuration needs."""
    return data_key(data_fingerprint(config), [Path(__file__).parent / name for name in CODE])


def prepared_key(config: Mapping[str, Any]) -> str:
    """Key of the reference table that a configuration needs."""
    return table_key(sequences_key(config), Reference.model_validate(dict(config.get("reference", {}))))


WORKLOAD = Workload(
    name="sequence_file",
    train="ablate.workloads.sequence_file.workload:train",
    config_type=Config,
    prepare="ablate.workloads.sequence_file.workload:prepare",
    prepared_key=prepared_key,
    scales="ablate.workloads.sequence_file.workload:scales",
    geometry="ablate.workloads.sequence_file.workload:geometry",
    fingerprint=data_fingerprint,
    files={"data.path": "data.sha256", "data.tokenizer_file": "data.tokenizer_sha256"},
    check=check,
    later=LATER,
    sources=("ablate.workloads", "losses"),
    pack="ablate.workloads.sequence_file.workload:train_pack",
    pack_key=pack_key,
    steps=training_steps,
    pack_costs="ablate.workloads.sequence_file.workload:costs",
    metrics=metric_names(("total_correlation", "dip_vae_i", "code_usage"), factors=True, likelihood=False),
    primary="eval/neg_elbo_per_token",
)
