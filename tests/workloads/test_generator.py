"""The generator: what it draws, and that its likelihood is exact."""

import hashlib
import itertools
import math

import numpy as np
import pytest

from ablate.workloads.sequence_vae.data import BOS, EOS, PAD
from ablate.workloads.synthetic_sequences.config import GENERATOR_VERSION, Data
from ablate.workloads.synthetic_sequences.generator import (
    FACTORS,
    FIRST_TOKEN,
    clean_tokens,
    draw,
    generate,
    log_conditional,
    log_marginal,
    motifs,
)

SMALL = Data(
    examples=60,
    select_examples=20,
    report_examples=10,
    motifs=3,
    motif_length=2,
    symbols=2,
    registers=2,
    length_buckets=((1, 2), (2, 3)),
    noise_levels=(0.1, 0.4),
)


def every_sequence(data):
    """Each sequence that the language can write, as rows of tokens and lengths."""
    longest = max(high for _, high in data.length_buckets)
    alphabet = range(FIRST_TOKEN, FIRST_TOKEN + data.registers * data.symbols)
    rows, lengths = [], []
    for n in range(1, longest + 1):
        for content in itertools.product(alphabet, repeat=n):
            rows.append([BOS, *content, EOS] + [PAD] * (longest - n))
            lengths.append(n + 2)
    return np.array(rows), np.array(lengths)


def slow_probability(data, row, factors):
    """p(x | motif, register, bucket, noise), token by token."""
    motif, register, bucket, noise = factors
    content = [token for token in row if token >= FIRST_TOKEN]
    low, high = data.length_buckets[bucket]
    probability = 1 / (high - low + 1) if low <= len(content) <= high else 0.0
    own = range(FIRST_TOKEN + register * data.symbols, FIRST_TOKEN + (register + 1) * data.symbols)
    for t, token in enumerate(content):
        written = own[motifs(data)[motif, t % data.motif_length]]
        e = data.noise_levels[noise]
        probability *= (1 - e) * (token == written) + e / data.symbols * (token in own)
    return probability


@pytest.mark.parametrize("noise_levels", [(0.1, 0.4), (0.0, 1.0), (0.0,)])
def test_probabilities_are_those_of_slow_loops_and_sum_to_one(noise_levels):
    data = SMALL.model_copy(update={"noise_levels": noise_levels})
    tokens, lengths = every_sequence(data)
    combinations = list(itertools.product(range(3), range(2), range(2), range(len(noise_levels))))
    given = np.array([[slow_probability(data, row, factors) for factors in combinations] for row in tokens])
    marginal = np.exp(log_marginal(data, tokens, lengths))
    np.testing.assert_allclose(marginal, given.mean(1), rtol=1e-12, atol=1e-300)
    assert marginal.sum() == pytest.approx(1, abs=1e-12)
    for column, factors in enumerate(combinations):
        conditional = np.exp(log_conditional(data, tokens, lengths, np.tile(factors, (len(tokens), 1))))
        np.testing.assert_allclose(conditional, given[:, column], rtol=1e-12, atol=1e-300)


def test_sequences_come_as_often_as_their_probability_says():
    count = 40_000
    _, drawn, _ = draw(SMALL, count)
    tokens, lengths = every_sequence(SMALL)
    number = {tuple(row): i for i, row in enumerate(tokens)}
    seen = np.bincount([number[tuple(row)] for row in drawn], minlength=len(tokens))
    expected = count * np.exp(log_marginal(SMALL, tokens, lengths))
    often = expected > 5
    statistic = ((seen[often] - expected[often]) ** 2 / expected[often]).sum()
    freedom = often.sum()
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)
    assert seen[expected == 0].sum() == 0


def test_a_sequence_is_written_as_its_factors_say():
    data = SMALL.model_copy(update={"noise_levels": (0.0,)})
    factors, tokens, lengths = draw(data, 200)
    clean = clean_tokens(data)
    for (motif, register, bucket, _), row, length in zip(factors, tokens, lengths, strict=True):
        content = row[1 : length - 1]
        low, high = data.length_buckets[bucket]
        assert row[0] == BOS
        assert row[length - 1] == EOS
        assert (row[length:] == PAD).all()
        assert low <= length - 2 <= high
        assert (content == clean[motif, register, : length - 2]).all()


def test_motifs_are_distinct_and_registers_share_no_token():
    data = Data(motifs=27, symbols=3, motif_length=3)
    assert len({tuple(word) for word in motifs(data)}) == 27
    clean = clean_tokens(data)
    assert not set(clean[:, 0].ravel()) & set(clean[:, 1].ravel())


def test_the_default_is_uneven_and_its_factors_are_worth_knowing():
    data = generate(Data())
    assert tuple(data.factors) == FACTORS
    targets = data.lengths - 1
    assert targets.min() <= 5
    assert targets.max() >= 14
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 4096, "select": 1024, "report": 1024}
    per_token = data.optimal_nll.sum() / targets.sum()
    given = data.factor_nll.sum() / targets.sum()
    assert 0.3 < given < per_token - 0.3
    # the factors are worth their entropy at most
    assert (data.optimal_nll - data.factor_nll).mean() < math.log(6 * 2 * 3 * 3)


def test_each_seed_decides_its_own_part():
    first = generate(SMALL)
    assert (generate(SMALL).tokens == first.tokens).all()
    split = generate(SMALL.model_copy(update={"split_seed": 1}))
    assert (split.tokens == first.tokens).all()
    assert (split.splits["train"] != first.splits["train"]).any()
    drawn = generate(SMALL.model_copy(update={"seed": 1}))
    assert (drawn.tokens != first.tokens).any()
    assert (motifs(SMALL.model_copy(update={"seed": 1})) == motifs(SMALL)).all()
    language = Data(grammar_seed=1)
    assert (motifs(language) != motifs(Data())).any()


def test_splits_part_the_sequences():
    splits = generate(SMALL).splits
    assert sorted(np.concatenate(list(splits.values()))) == list(range(90))
    assert [len(rows) for rows in splits.values()] == [60, 20, 10]


def test_the_version_stands_for_the_sequences():
    digest = hashlib.sha256(generate(SMALL).tokens.astype("<i8").tobytes()).hexdigest()[:16]
    assert (GENERATOR_VERSION, digest) == (1, "51825f32c140456c")
