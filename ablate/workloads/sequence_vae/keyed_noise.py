"""Noise that belongs to an example: a function of (seed, row), whatever else is drawn and in whatever order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

NoiseKind = Literal["normal", "gumbel"]


def keyed_noise(seed: int, rows: Iterable[int], shape: tuple[int, ...], kind: NoiseKind) -> Tensor:
    """[n, *shape] float32 standard normal or Gumbel, n the number of rows.

    Each row has a Philox stream of its own (Salmon et al. 2011): the seed is the key, the row a word of the counter.
    """
    draws = []
    for row in rows:
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, row, 0]))
        draw = generator.standard_normal if kind == "normal" else generator.gumbel
        draws.append(draw(size=shape))
    return torch.from_numpy(np.asarray(draws, dtype=np.float32).reshape(-1, *shape))
