"""Sequences from known generative factors, with their exact likelihood.

Four independent, uniform factors make a sequence x of n tokens:

    motif m     a word of P symbols, repeated; symbol t is u_t = m[t mod P]
    register r  the set of tokens it is written in: symbol u becomes token 3 + r S + u
    length b    a bucket; n is uniform over its range
    noise e     each token is replaced, with probability e, by one uniform over the S tokens of its register

so that, with k the positions that agree with the motif in its register,

    p(x | m, r, b, e) = p(n | b) (1 - e + e/S)^k (e/S)^(n - k) where all tokens are of register r, else 0
    p(x) = mean_b p(n | b) mean_{m, r, e} p(x | m, r, b, e) / p(n | b).

The end of the sequence is a token of its own, whose probability is that of the length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.sequence_vae.data import BOS, EOS, PAD, SequenceData
from ablate.workloads.synthetic_sequences.config import Data

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FACTORS = ("motif", "register", "length", "noise")
FIRST_TOKEN = EOS + 1


def generate(data: Data) -> SequenceData:
    """The sequences of a `data` section, their factors, splits and likelihoods."""
    total = data.examples + data.select_examples + data.report_examples
    factors, tokens, lengths = draw(data, total)
    order = np.random.default_rng([data.split_seed, 1]).permutation(total)
    bounds = np.cumsum([data.examples, data.select_examples])
    train, select, report = (np.sort(part) for part in np.split(order, bounds))
    return SequenceData(
        tokens=tokens,
        lengths=lengths,
        splits={"train": train, "select": select, "report": report},
        vocabulary=FIRST_TOKEN + data.registers * data.symbols,
        factors={name: factors[:, i] for i, name in enumerate(FACTORS)},
        optimal_nll=-log_marginal(data, tokens, lengths),
        factor_nll=-log_conditional(data, tokens, lengths, factors),
    )


def motifs(data: Data) -> Integers:
    """[M, P] the distinct motifs, in symbols 0 to S - 1."""
    rng = np.random.default_rng([data.grammar_seed, 0])
    words = rng.choice(data.symbols**data.motif_length, size=data.motifs, replace=False)
    places = data.symbols ** np.arange(data.motif_length)
    return np.asarray(words[:, None] // places % data.symbols, dtype=np.int64)


def clean_tokens(data: Data) -> Integers:
    """[M, R, T] the content tokens that each motif writes in each register, before noise."""
    longest = max(high for _, high in data.length_buckets)
    symbols = motifs(data)[:, np.arange(longest) % data.motif_length]
    registers = FIRST_TOKEN + data.symbols * np.arange(data.registers)
    return np.asarray(symbols[:, None, :] + registers[None, :, None], dtype=np.int64)


def draw(data: Data, count: int) -> tuple[Integers, Integers, Integers]:
    """Factors [N, 4], tokens [N, T + 2] and lengths [N] of `count` independent sequences."""
    rng = np.random.default_rng([data.seed, 2])
    sizes = (data.motifs, data.registers, len(data.length_buckets), len(data.noise_levels))
    factors = np.stack([rng.integers(size, size=count) for size in sizes], axis=1)
    motif, register, bucket, noise = factors.T
    low, high = np.asarray(data.length_buckets).T
    content = rng.integers(low[bucket], high[bucket] + 1)

    clean = clean_tokens(data)[motif, register]
    replaced = rng.random(clean.shape) < np.asarray(data.noise_levels)[noise][:, None]
    uniform = FIRST_TOKEN + data.symbols * register[:, None] + rng.integers(data.symbols, size=clean.shape)

    place = np.arange(clean.shape[1] + 2)
    tokens = np.full((count, place.size), PAD, dtype=np.int64)
    tokens[:, 0] = BOS
    tokens[:, 1:-1] = np.where(replaced, uniform, clean)
    tokens[place > content[:, None]] = PAD
    tokens[place == content[:, None] + 1] = EOS
    return factors, tokens, content + 2


def log_length(data: Data, lengths: Integers) -> Floats:
    """[N, B] log p(n | bucket), n the content tokens of a row."""
    low, high = np.asarray(data.length_buckets).T
    content = lengths[:, None] - 2
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(((low <= content) & (content <= high)) / (high - low + 1)))


def log_content(data: Data, tokens: Integers, lengths: Integers) -> Floats:
    """[N, M, R, E] log p(content | motif, register, noise, n)."""
    clean = clean_tokens(data)
    content = lengths - 2
    agreeing = np.zeros((len(tokens), *clean.shape[:2]), dtype=np.int64)
    for t in range(clean.shape[2]):  # padding agrees with no motif
        agreeing += tokens[:, t + 1, None, None] == clean[None, :, :, t]
    noise = np.asarray(data.noise_levels)
    with np.errstate(divide="ignore"):
        log_agree, log_differ = np.log(1 - noise + noise / data.symbols), np.log(noise / data.symbols)
    k = agreeing[..., None]
    differing = content[:, None, None, None] - k
    # 0 log 0 = 0: without noise a sequence that agrees everywhere is certain
    likelihood = k * log_agree + differing * np.where(differing == 0, 0.0, log_differ)
    return np.where(written_in(data, tokens)[:, None, :, None], likelihood, -np.inf)


def written_in(data: Data, tokens: Integers) -> NDArray[np.bool_]:
    """[N, R] whether every content token of a row belongs to the register."""
    register = (tokens - FIRST_TOKEN) // data.symbols
    outside = (tokens >= FIRST_TOKEN)[:, None, :] & (register[:, None, :] != np.arange(data.registers)[:, None])
    return np.asarray(~outside.any(-1))


def log_marginal(data: Data, tokens: Integers, lengths: Integers) -> Floats:
    """[N] log p(x), summed over every combination of factors."""
    content = log_content(data, tokens, lengths).reshape(len(tokens), -1)
    return log_mean(content) + log_mean(log_length(data, lengths))


def log_conditional(data: Data, tokens: Integers, lengths: Integers, factors: Integers) -> Floats:
    """[N] log p(x | its factors)."""
    motif, register, bucket, noise = factors.T
    row = np.arange(len(tokens))
    content = log_content(data, tokens, lengths)[row, motif, register, noise]
    return np.asarray(content + log_length(data, lengths)[row, bucket])


def log_mean(values: Floats) -> Floats:
    """[N] log of the mean of exp(values) over the last axis."""
    return np.asarray(np.logaddexp.reduce(values, axis=-1) - np.log(values.shape[-1]))
