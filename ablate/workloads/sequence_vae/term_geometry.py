"""One pass over a reference table for the inner products of the terms' weight matrices."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.workloads.contract import Prepared
from ablate.workloads.sequence_vae.objective import read_split
from ablate.workloads.sequence_vae.reference_table import open_table
from ablate.workloads.weight_gram import SETTING_FIELDS, Setting, TermFacts, WeightGram, gram_file, read_gram
from losses import (
    TERMS,
    ReconstructionLossConfig,
    example_weight_mean,
    prepare_reference,
    term_weight_matrices,
)

MATRIX_ENTRIES = 2**22
"""Entries of the weight matrices that are held at a time, 32 MiB of float64."""


def term_facts() -> tuple[TermFacts, ...]:
    """The terms of the loss stack, whichever they are."""
    return tuple(
        TermFacts(name, term.weight_field, term.divided_by == "zfree_reference_scale") for name, term in TERMS.items()
    )


def weight_gram(
    surprisal: Tensor, mask: Tensor, settings: Sequence[Setting], scales: Mapping[str, float], sha256: str = ""
) -> WeightGram:
    """Inner products of every term's weight matrix at every setting, over a training split, in float64.

    In training every example is in a batch as often as every other, with the data set's <(S + eps)^-1>, so the matrix
    of a batch is the rows of that of the data set, and the mean over batches of their inner products is this one.

    Args:
        surprisal: [n, L], nats. Read only where active.
        mask: [n, L] bool, true where active.
        settings: a value for each of SETTING_FIELDS.
        scales: c by aggregation mode, nats.
    """
    configs = [_config(setting) for setting in settings]
    count = len(configs) * len(TERMS)
    gram, sums = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    example_weights = torch.zeros(len(configs), dtype=torch.float64)
    examples = 0
    rows = max(1, MATRIX_ENTRIES // max(1, count * mask.shape[1]))
    for part, active in zip(torch.split(surprisal, rows), torch.split(mask, rows), strict=True):
        present = int(active.any(-1).sum())
        if not present:
            continue
        matrices, means = zip(*(_matrices(part, active, config) for config in configs), strict=True)
        stacked = torch.cat(matrices)
        gram += stacked @ stacked.T
        sums += stacked.sum(1)
        example_weights += present * torch.tensor(means, dtype=torch.float64)
        examples += present
    divisors = _divisors(example_weights / max(examples, 1))
    return WeightGram(
        term_facts(),
        tuple(settings),
        (gram / divisors / divisors[:, None]).numpy(),
        (sums / divisors).numpy(),
        int(mask.sum()),
        examples,
        dict(scales),
        sha256,
    )


def _config(setting: Setting) -> ReconstructionLossConfig:
    values: dict[str, Any] = dict(zip(SETTING_FIELDS, setting, strict=True))
    return ReconstructionLossConfig(**values)


def _matrices(surprisal: Tensor, active: Tensor, config: ReconstructionLossConfig) -> tuple[Tensor, float]:
    """N W_k of some examples at their active positions, [K, n], for <(S + eps)^-1> = 1; and that mean over them."""
    prepared = prepare_reference(surprisal.double(), active, config)
    matrices = term_weight_matrices(prepared, config, example_weight_mean=1.0)
    return torch.stack([matrix[active] for matrix in matrices.values()]), example_weight_mean(prepared, config)


def _divisors(example_weight_means: Tensor) -> Tensor:
    """[S K], what the matrices of `_matrices` are yet to be divided by: the data set's <(S + eps)^-1>, or 1."""
    by_mean = torch.tensor([term.divided_by == "example_weight_mean" for term in TERMS.values()])
    means = torch.where(example_weight_means > 0, example_weight_means, 1.0)
    return torch.where(by_mean, means[:, None], 1.0).flatten()


def prepare_gram(key: str, settings: Sequence[Setting], shared_dir: Path) -> Prepared:
    """Measure the inner products at these settings over the reference table of that key, unless they are there.

    Raises: StudyError where the table is missing.
    """
    found = read_gram(shared_dir / key, settings)
    if found is None:
        table = open_table(key, shared_dir)
        train = read_split(table, "train")
        scales = {mode: table.facts[f"zfree_reference_scale_{mode}"] for mode in ("token_sum", "token_mean")}
        found = weight_gram(train.surprisal, train.mask, settings, scales, table.sha256)
        path = gram_file(shared_dir / key, settings)
        made = path.with_name(f".{path.name}.{os.getpid()}")
        made.write_text(json.dumps(found.to_json()), encoding="utf-8")
        made.replace(path)
    return Prepared(key, found.sha256, {})
