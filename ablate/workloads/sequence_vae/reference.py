"""The frozen z-free reference: a decoder without z, trained with plain NLL, and the surprisals it gives."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data import PAD, SequenceData
from ablate.workloads.sequence_vae.model import Decoder, seeded
from losses.nll import masked_token_nll_per_position

SCORING_BATCH = 512


@dataclass(frozen=True)
class TrainedReference:
    """The decoder as it scored best on `select`.

    Attributes:
        steps: taken in all; the best weights are those after `best_step`.
        select_nll_per_token: of the best weights, nats.
    """

    decoder: Decoder
    steps: int
    best_step: int
    select_nll_per_token: float


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums are split over threads, so their last bits depend on how many there are: use one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_reference(data: SequenceData, settings: Reference) -> TrainedReference:
    """Train until the `select` loss has not fallen for `patience` evaluations, and keep the best weights.

    Loss: sum_bt x_bt / sum_b n_b over the batch. Call it under `one_thread` for the same bits on a machine.
    """
    decoder = _build(data, settings)
    optimiser = torch.optim.AdamW(
        decoder.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    dropout = Generator().manual_seed(_stream(settings.seed, "dropout")) if settings.dropout else None
    best, best_step, best_weights = math.inf, 0, copy.deepcopy(decoder.state_dict())
    step = 0
    for step, rows in enumerate(_batches(data.splits["train"], settings), start=1):
        optimiser.param_groups[0]["lr"] = settings.learning_rate * (1 - (step - 1) / settings.steps)
        tokens = as_tensor(data.tokens, rows)
        optimiser.zero_grad(set_to_none=True)
        nll, mask = token_nll(decoder, tokens, dropout)
        (nll.sum() / mask.sum()).backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimiser.step()
        if step % settings.evaluate_every == 0 or step == settings.steps:
            loss = _nll_per_token(decoder, data, data.splits["select"])
            if loss < best:
                best, best_step, best_weights = loss, step, copy.deepcopy(decoder.state_dict())
            elif step - best_step >= settings.patience * settings.evaluate_every:
                break
    decoder.load_state_dict(best_weights)
    return TrainedReference(decoder.requires_grad_(requires_grad=False), step, best_step, best)


def surprisals(decoder: Decoder, data: SequenceData) -> NDArray[np.float32]:
    """[N, L] nats, -log p(next token | prefix) of every row of the data; 0 where there is no target."""
    rows = np.arange(len(data.tokens))
    return np.concatenate([nll.numpy() for nll, _ in _scores(decoder, data, rows)])


def token_nll(decoder: Decoder, tokens: Tensor, dropout: Generator | None = None) -> tuple[Tensor, Tensor]:
    """NLL [B, L] of each next token under a decoder without z, and the mask [B, L] of those that count."""
    targets = tokens[:, 1:]
    mask = targets != PAD
    logits = decoder(tokens[:, :-1], mask, generator=dropout)
    return masked_token_nll_per_position(logits, targets, mask), mask


def as_tensor(tokens: NDArray[np.integer], rows: NDArray[np.integer]) -> Tensor:
    """Rows of the (memory-mapped) token table as int64, [B, T]."""
    return torch.from_numpy(tokens[rows].astype(np.int64))


def _build(data: SequenceData, settings: Reference) -> Decoder:
    with seeded(_stream(settings.seed, "initialisation")):
        return Decoder(
            data.vocabulary,
            data.tokens.shape[1] - 1,
            settings.decoder,
            width=settings.width,
            layers=settings.layers,
            heads=settings.heads,
            dropout=settings.dropout,
        )


def _batches(rows: NDArray[np.integer], settings: Reference) -> Iterator[NDArray[np.integer]]:
    """`steps` batches of training rows, each pass over them in a new order."""
    rng = np.random.default_rng(_stream(settings.seed, "data_order"))
    order = rng.permutation(rows)
    for _ in range(settings.steps):
        while len(order) < settings.batch_size:
            order = np.concatenate([order, rng.permutation(rows)])
        batch, order = order[: settings.batch_size], order[settings.batch_size :]
        yield batch


def _scores(decoder: Decoder, data: SequenceData, rows: NDArray[np.integer]) -> Iterator[tuple[Tensor, Tensor]]:
    with torch.no_grad():
        for start in range(0, len(rows), SCORING_BATCH):
            yield token_nll(decoder, as_tensor(data.tokens, rows[start : start + SCORING_BATCH]))


def _nll_per_token(decoder: Decoder, data: SequenceData, rows: NDArray[np.integer]) -> float:
    """sum_bt x_bt / sum_b n_b over the rows, nats."""
    total, count = 0.0, 0
    for nll, mask in _scores(decoder, data, rows):
        total += float(nll.sum(dtype=torch.float64))
        count += int(mask.sum())
    return total / max(count, 1)


def _stream(seed: int, name: str) -> int:
    """A 63-bit seed of the reference's own stream of that name."""
    return int.from_bytes(hashlib.sha256(f"reference/{seed}/{name}".encode()).digest()[:8], "big") >> 1
