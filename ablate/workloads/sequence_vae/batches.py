"""Which examples a step trains on, and how they are read."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.workloads.sequence_vae.config import Training
from ablate.workloads.sequence_vae.objective import Split
from ablate.workloads.sequence_vae.split_reference import TokenWeights

#: A reader reads so many steps at once, or fewer where they would have more positions than these.
STEPS_AT_ONCE = 32
POSITIONS_AT_ONCE = 2**18


class BatchReader:
    """The examples of a trial's steps, read for many steps at a time: 32 batches take 4 to 12 times as long as one."""

    def __init__(
        self,
        rows: Callable[[int], NDArray[np.int64]],
        batch_size: int,
        train: Split,
        weights: TokenWeights,
        device: str,
    ) -> None:
        """Args:
        rows: step -> the rows of its batch.
        train: the training split, memory-mapped.
        weights: of that split.
        """
        self._rows, self._train, self._weights, self._device = rows, train, weights, device
        self._together = max(1, min(STEPS_AT_ONCE, POSITIONS_AT_ONCE // (batch_size * train.tokens.shape[1])))
        self._read = -1
        self._tables: tuple[Tensor, ...] = ()

    def __call__(self, step: int) -> tuple[Tensor, ...]:
        """Tokens [B, T] int64, mask [B, L] and token weights N W [B, L] of a step's examples, on the device."""
        part, place = divmod(step, self._together)
        if part != self._read:
            steps = range(part * self._together, (part + 1) * self._together)
            rows = torch.from_numpy(np.stack([self._rows(each) for each in steps]))
            flat = rows.flatten()
            tables = (self._train.tokens[flat].long(), self._train.mask[flat], self._weights[flat])
            self._tables = tuple(table.view(*rows.shape, -1).to(self._device) for table in tables)
            self._read = part
        return tuple(table[place] for table in self._tables)


def data_order(seed: int, examples: int, batch_size: int) -> Callable[[int], NDArray[np.int64]]:
    """Step (from 0) -> rows of its batch: consecutive places of one permutation of the examples after another.

    Permutation e depends on (seed, e) alone, so any step can be asked for at any time.
    """

    @functools.lru_cache(maxsize=2)
    def permutation(epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([seed, epoch]).permutation(examples)

    def rows(step: int) -> NDArray[np.int64]:
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        epochs = range(places[0] // examples, places[-1] // examples + 1)
        return np.concatenate([permutation(e)[places[places // examples == e] % examples] for e in epochs])

    return rows


def length_buckets(
    rows: Callable[[int], NDArray[np.int64]], lengths: NDArray[np.integer], batches: int, seed: int
) -> Callable[[int], NDArray[np.int64]]:
    """As `data_order`, the sequences of so many batches in a row regrouped into batches of similar length.

    They stand by length, are cut into batches and these are shuffled: every epoch still sees each example once, and
    the mean of these batches is that of the ones they are made of.
    """

    @functools.lru_cache(maxsize=2)
    def pool(number: int) -> NDArray[np.int64]:
        drawn = np.concatenate([rows(number * batches + place) for place in range(batches)])
        by_length = drawn[np.argsort(lengths[drawn], kind="stable")].reshape(batches, -1)
        return np.asarray(by_length[np.random.default_rng([seed, number, 1]).permutation(batches)])

    return lambda step: pool(step // batches)[step % batches]


def batch_rows(seed: int, training: Training, lengths: NDArray[np.integer]) -> Callable[[int], NDArray[np.int64]]:
    """Step (from 0) -> rows of its batch, as the configuration has it."""
    rows = data_order(seed, len(lengths), training.batch_size)
    return rows if training.length_buckets == 1 else length_buckets(rows, lengths, training.length_buckets, seed)
