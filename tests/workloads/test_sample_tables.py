"""Samples, reconstructions and traversals as text."""

import csv
import io

import pytest
import torch

from ablate.workloads.sequence_vae.config import Model, Reconstruction
from ablate.workloads.sequence_vae.data import BOS, EOS
from ablate.workloads.sequence_vae.evaluation import held_out
from ablate.workloads.sequence_vae.model import SequenceVAE, seeded
from ablate.workloads.sequence_vae.objective import loss_config
from ablate.workloads.sequence_vae.sample_tables import LONGEST, _reader, sample_tables, write

LATENTS = ("continuous", "discrete")


@pytest.fixture(params=LATENTS)
def made(request, table):
    """A model as it is initialised, and the report split."""
    with seeded(0):
        model = SequenceVAE(request.param, Model(width=8), table.vocabulary, table.tokens.shape[1])
    return model, held_out(table, "report", model, loss_config(Reconstruction(), table), seed=5)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def test_tables_are_whole_and_the_same_again(made):
    model, data = made
    first, again = (sample_tables(model, data, (), 7, "cpu") for _ in range(2))
    assert first == again
    assert sample_tables(model, data, (), 8, "cpu")["samples.tsv"] != first["samples.tsv"]
    assert len(rows_of(first["samples.tsv"])) == 8
    assert len(rows_of(first["reconstructions.tsv"])) == 8
    traversals = rows_of(first["traversals.tsv"])
    units = min(6, 8 if hasattr(model.latent, "dimensions") else 4)
    assert len({row["unit"] for row in traversals}) == len(traversals) == units
    rates = [float(row["rate_nats"]) for row in traversals]
    assert rates == sorted(rates, reverse=True)
    assert all(row[f"setting_{place}"] for row in traversals for place in range(1, 6))


def test_the_examples_are_those_of_the_split(made):
    model, data = made
    read = _reader((), model.embedding.token.num_embeddings)
    expected = [read(row[1:]) for row in data.split.tokens[:8].tolist()]
    shown = [row["example"] for row in rows_of(sample_tables(model, data, (), 7, "cpu")["reconstructions.tsv"])]
    assert shown == expected
    assert not any("…" in text for text in shown)


def test_a_text_is_the_likeliest_token_at_each_place(made):
    model, data = made
    z = torch.randn(3, model.latent.size, generator=torch.Generator().manual_seed(0))
    read = _reader((), model.embedding.token.num_embeddings)
    expected = []
    with torch.no_grad():
        for one in z[:, None]:
            tokens = [BOS]
            while len(tokens) < data.split.tokens.shape[1] and tokens[-1] != EOS:
                prefix = torch.tensor([tokens])
                scores = model.decode(prefix, torch.ones_like(prefix, dtype=torch.bool), one)[0, -1]
                tokens.append(int(scores[EOS:].argmax()) + EOS)
            expected.append(read(tokens[1:]))
        assert write(model, z, read) == expected


def test_texts_are_put_together_and_cut_where_they_are_long():
    assert _reader(("", "", "", "ab", " ", "ø"), 6)([3, 4, 5, EOS, 0, 0]) == "ab ø"
    assert _reader((), 6)([3, 4, 5]) == "abc…"
    assert _reader((), 100)([3, 44, EOS]) == " 3 44"
    assert _reader((), 6)([3] * LONGEST + [EOS]) == "a" * LONGEST
    assert _reader((), 6)([3] * (LONGEST + 1) + [EOS]) == "a" * LONGEST + "…"
