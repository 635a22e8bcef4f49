"""The networks: what each position may see."""

import pytest
import torch
from torch import Generator

from ablate.workloads.sequence_vae.config import Model
from ablate.workloads.sequence_vae.evaluation import real_tokens
from ablate.workloads.sequence_vae.model import SequenceVAE, seeded

CORES = ("transformer", "gru")
TOKENS = torch.tensor([[1, 4, 5, 6, 2, 0, 0], [1, 7, 2, 0, 0, 0, 0]])
MASK = TOKENS[:, 1:] != 0


def build(core="transformer", latent="continuous", positions=12, **settings):
    with seeded(0):
        return SequenceVAE(
            latent, Model(encoder=core, decoder=core, width=8, latent_dimensions=3, **settings), 8, positions
        )


@pytest.mark.parametrize("core", CORES)
def test_padding_further_changes_nothing(core):
    model = build(core)
    z = torch.randn(2, 3, generator=Generator().manual_seed(0))
    wide = torch.nn.functional.pad(TOKENS, (0, 4))
    wide_mask = wide[:, 1:] != 0
    assert (real_tokens(MASK) == (TOKENS != 0)).all()
    torch.testing.assert_close(model.encode(TOKENS, real_tokens(MASK)), model.encode(wide, real_tokens(wide_mask)))
    near, far = model.decode(TOKENS[:, :-1], MASK, z), model.decode(wide[:, :-1], wide_mask, z)
    torch.testing.assert_close(near[MASK], far[:, :6][MASK])


@pytest.mark.parametrize("core", CORES)
def test_what_stands_under_the_padding_does_not_matter(core):
    model = build(core)
    other = torch.where(TOKENS == 0, 3, TOKENS)
    torch.testing.assert_close(model.encode(TOKENS, TOKENS != 0), model.encode(other, TOKENS != 0))


@pytest.mark.parametrize("core", CORES)
def test_a_position_sees_its_prefix_and_z_and_nothing_else(core):
    model = build(core)
    z = torch.zeros(1, 3, requires_grad=True)
    row, mask = TOKENS[:1, :-1], torch.ones(1, 6, dtype=torch.bool)
    before = model.decode(row, mask, z)
    for t in range(6):
        (gradient,) = torch.autograd.grad(before[0, t].square().sum(), z, retain_graph=True)
        assert gradient.abs().sum() > 0, t
        changed = row.clone()
        changed[0, t] = 3
        after = model.decode(changed, mask, z)
        torch.testing.assert_close(after[0, :t], before[0, :t])
        assert not torch.allclose(after[0, t], before[0, t])


@pytest.mark.parametrize("core", CORES)
def test_the_encoder_reads_every_token(core):
    model = build(core)
    before = model.encode(TOKENS[:1], TOKENS[:1] != 0)
    for t in range(5):
        changed = TOKENS[:1].clone()
        changed[0, t] = 3
        assert not torch.allclose(model.encode(changed, TOKENS[:1] != 0), before)


def test_initialisation_leaves_the_global_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = build()
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(99)
    second = build()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("core", CORES)
def test_dropout_comes_from_its_generator_alone(core):
    model, z = build(core, dropout=0.5, token_dropout=0.5), torch.zeros(2, 3)

    def decoded(seed):
        return model.decode(TOKENS[:, :-1], MASK, z, Generator().manual_seed(seed))

    assert torch.equal(decoded(1), decoded(1))
    assert not torch.equal(decoded(1), decoded(2))
    plain = model.decode(TOKENS[:, :-1], MASK, z)
    assert torch.equal(plain, model.decode(TOKENS[:, :-1], MASK, z))
    assert not torch.equal(plain, decoded(1))


def test_a_dropped_token_is_not_seen():
    model = build()
    hidden = torch.ones_like(TOKENS[:, :-1], dtype=torch.bool)
    hidden[:, 1] = False
    changed = TOKENS[:, :-1].clone()
    changed[:, 1] = 3
    z = torch.zeros(2, 3)
    torch.testing.assert_close(
        model.decoder(TOKENS[:, :-1], MASK, z, hidden), model.decoder(changed, MASK, z, hidden), rtol=0, atol=0
    )
