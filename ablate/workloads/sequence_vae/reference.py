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
from torch import Generator, Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data import PAD, Array, SequenceData
from ablate.workloads.sequence_vae.model import Decoder, seeded
from losses import masked_token_nll_per_position

SCORING_BATCH = 512
CLIP_NORM = 1.0


@dataclass(frozen=True)
class TrainedReference:
    """The decoder with the weights that scored best on `select`, after `best_step` of `steps` steps.

    `select_nll_per_token`: of those weights, nats.
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
    """Minimise sum_bt x_bt / sum_b n_b until the `select` loss has not fallen for `patience` evaluations.

    Evaluated and kept is the running average of the weights (Polyak & Juditsky 1992). Call it under
    `one_thread` for the same bits on a machine.
    """
    decoder = _build(data, settings)
    averaging = get_ema_multi_avg_fn(settings.averaging)  # type: ignore[no-untyped-call]
    averaged = AveragedModel(decoder, multi_avg_fn=averaging)
    best_weights = copy.deepcopy(decoder.state_dict())
    best, best_step, step = math.inf, 0, 0
    for step in _training_steps(decoder, data, settings):
        averaged.update_parameters(decoder)
        if step % settings.evaluate_every and step < settings.steps:
            continue
        loss = nll_per_token(averaged.module, data, data.splits["select"])
        if loss < best:
            best, best_step, best_weights = loss, step, copy.deepcopy(averaged.module.state_dict())
        elif step - best_step >= settings.patience * settings.evaluate_every:
            break
    decoder.load_state_dict(best_weights)
    return TrainedReference(decoder.requires_grad_(requires_grad=False), step, best_step, best)


def surprisals(decoder: Decoder, data: SequenceData, rows: Array) -> Iterator[NDArray[np.float32]]:
    """Parts of [n, L] nats, -log p(next token | prefix) of these rows; 0 where there is no target."""
    for nll, _ in _scores(decoder, data, rows):
        yield nll.numpy()


def nll_per_token(decoder: nn.Module, data: SequenceData, rows: Array) -> float:
    """sum_bt x_bt / sum_b n_b over the rows, nats."""
    total, count = 0.0, 0
    for nll, mask in _scores(decoder, data, rows):
        total += float(nll.sum(dtype=torch.float64))
        count += int(mask.sum())
    return total / max(count, 1)


def as_tensor(tokens: Array, rows: Array) -> Tensor:
    """Rows of the (memory-mapped) token table as int64, [B, T]."""
    return torch.from_numpy(tokens[rows].astype(np.int64))


def _training_steps(decoder: Decoder, data: SequenceData, settings: Reference) -> Iterator[int]:
    """Take the steps of one training, and give the number of each."""
    optimiser = torch.optim.AdamW(
        decoder.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    dropout = Generator().manual_seed(_stream(settings.seed, "dropout"))
    order = np.random.default_rng(_stream(settings.seed, "data_order"))
    rows = np.empty(0, dtype=np.int64)
    for step in range(1, settings.steps + 1):
        while len(rows) < settings.batch_size:
            rows = np.concatenate([rows, order.permutation(data.splits["train"])])
        batch, rows = rows[: settings.batch_size], rows[settings.batch_size :]
        optimiser.zero_grad(set_to_none=True)
        nll, mask = _token_nll(decoder, as_tensor(data.tokens, batch), dropout)
        (nll.sum() / mask.sum()).backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(decoder.parameters(), CLIP_NORM)
        optimiser.step()
        yield step


def _token_nll(decoder: nn.Module, tokens: Tensor, dropout: Generator | None = None) -> tuple[Tensor, Tensor]:
    """NLL [B, L] of each next token, and the mask [B, L] of those that count."""
    targets = tokens[:, 1:]
    mask = targets != PAD
    logits = decoder(tokens[:, :-1], mask, generator=dropout)
    return masked_token_nll_per_position(logits, targets, mask), mask


def _scores(decoder: nn.Module, data: SequenceData, rows: Array) -> Iterator[tuple[Tensor, Tensor]]:
    with torch.no_grad():
        for start in range(0, len(rows), SCORING_BATCH):
            yield _token_nll(decoder, as_tensor(data.tokens, rows[start : start + SCORING_BATCH]))


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


def _stream(seed: int, name: str) -> int:
    """A 63-bit seed of the reference's own stream of that name."""
    return int.from_bytes(hashlib.sha256(f"reference/{seed}/{name}".encode()).digest()[:8], "big") >> 1
