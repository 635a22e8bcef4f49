"""What a study file says of `synthetic_sequences`. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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

GENERATOR_VERSION = 1
"""Raised when the same `data` section yields other sequences."""

Bucket = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(le=4096)]], Field(strict=False)]


class Data(Section):
    """The generator: its factors and how many sequences are drawn from it.

    Attributes:
        examples, select_examples, report_examples: sequences in the splits train, select and report.
        seed: of the draw of sequences.
        split_seed: of the assignment of the drawn sequences to splits.
        grammar_seed: of the motifs themselves; the same language for every `seed`.
        motifs, motif_length: how many motifs there are, and their length in symbols.
        symbols: size of the alphabet that a motif is written in.
        registers: how many disjoint sets of tokens the alphabet can be written in.
        length_buckets: inclusive ranges of sequence length.
        noise_levels: probabilities that a token is replaced by one drawn uniformly from its register.
    """

    examples: Annotated[int, Field(ge=1, le=10_000_000)] = 4096
    select_examples: Annotated[int, Field(ge=1, le=10_000_000)] = 1024
    report_examples: Annotated[int, Field(ge=1, le=10_000_000)] = 1024
    seed: Seed = 0
    split_seed: Seed = 0
    grammar_seed: Seed = 0
    motifs: Annotated[int, Field(ge=2, le=1024)] = 6
    motif_length: Annotated[int, Field(ge=1, le=64)] = 3
    symbols: Annotated[int, Field(ge=2, le=1024)] = 4
    registers: Annotated[int, Field(ge=1, le=64)] = 2
    length_buckets: Annotated[tuple[Bucket, ...], Field(strict=False, min_length=1, max_length=64)] = (
        (3, 4),
        (7, 8),
        (13, 14),
    )
    noise_levels: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(strict=False, min_length=1, max_length=64)
    ] = (0.02, 0.08, 0.2)

    @model_validator(mode="after")
    def _factors_exist(self) -> Data:
        for low, high in self.length_buckets:
            if low > high:
                raise ValueError(f"length bucket [{low}, {high}] is empty; the first length is at most the second")
        possible = self.symbols**self.motif_length
        if self.motifs > possible:
            raise ValueError(
                f"{self.motifs} distinct motifs asked for; {self.symbols} symbols in words of {self.motif_length} "
                f"give {possible}"
            )
        return self


class Config(TrialSettings):
    """The whole configuration of a trial on synthetic sequences; its defaults are the workload's own."""

    reference: Reference = Reference()
    data: Data = Data()


def data_fingerprint(config: Mapping[str, Any]) -> str:
    """Hash of what the sequences are: the `data` section and the generator's version."""
    data = Data.model_validate(dict(config.get("data", {})))
    content = json.dumps([GENERATOR_VERSION, data.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def sequences_key(config: Mapping[str, Any]) -> str:
    """Key of the data table that a configuration needs."""
    return data_key(data_fingerprint(config), [Path(__file__).parent / "generator.py"])


def prepared_key(config: Mapping[str, Any]) -> str:
    """Key of the reference table that a configuration needs."""
    return table_key(sequences_key(config), Reference.model_validate(dict(config.get("reference", {}))))


WORKLOAD = Workload(
    name="synthetic_sequences",
    train="ablate.workloads.synthetic_sequences.workload:train",
    config_type=Config,
    prepare="ablate.workloads.synthetic_sequences.workload:prepare",
    prepared_key=prepared_key,
    scales="ablate.workloads.synthetic_sequences.workload:scales",
    geometry="ablate.workloads.synthetic_sequences.workload:geometry",
    fingerprint=data_fingerprint,
    later=LATER,
    sources=("ablate.workloads", "losses"),
    pack="ablate.workloads.synthetic_sequences.workload:train_pack",
    pack_key=pack_key,
    steps=training_steps,
    pack_costs="ablate.workloads.synthetic_sequences.workload:costs",
    metrics=metric_names(("total_correlation", "dip_vae_i", "code_usage"), factors=True, likelihood=True),
    primary="eval/neg_elbo_per_token",
)
