"""What every reconstruction term and every auxiliary term keeps; a term added to its table is tested here by itself."""

from dataclasses import fields, replace

import pytest
import torch

from losses import ReconstructionLossConfig, auxiliary_losses, prepare_reference, reconstruction_losses
from losses.auxiliary import AUXILIARY_TERMS, CategoricalPosterior, GaussianPosterior
from losses.reconstruction import TERMS, term_weight_matrices
from tests.losses.batches import CONFIG, Batch, batch

EVERY_TERM = pytest.mark.parametrize("name", TERMS)
EVERY_AUXILIARY = pytest.mark.parametrize("name", AUXILIARY_TERMS)


def only(name: str) -> ReconstructionLossConfig:
    """The configuration with this term alone, at weight 2."""
    off = {term.weight_field: 0.0 for term in TERMS.values()}
    return replace(CONFIG, **{**off, TERMS[name].weight_field: 2.0})


def losses_of(data: Batch, config: ReconstructionLossConfig = CONFIG):
    return reconstruction_losses(data.nll, data.mask, data.surprisal, config)


@EVERY_TERM
def test_its_weight_is_a_field_of_its_own(name):
    weight_fields = [term.weight_field for term in TERMS.values()]
    assert weight_fields.count(TERMS[name].weight_field) == 1
    field = next(f for f in fields(ReconstructionLossConfig) if f.name == TERMS[name].weight_field)
    assert field.metadata == {"ge": 0}


@EVERY_TERM
def test_it_alone_is_the_objective_at_its_weight(name):
    losses = losses_of(batch(), only(name))
    torch.testing.assert_close(losses.objective, 2 * losses.terms[name])


@EVERY_TERM
def test_it_is_linear_in_the_nll(name):
    data, other = batch(), batch(seed=1)
    mixed = replace(data, nll=2 * data.nll + 3 * other.nll)
    expected = 2 * losses_of(data).terms[name] + 3 * losses_of(replace(data, nll=other.nll)).terms[name]
    torch.testing.assert_close(losses_of(mixed).terms[name], expected)


@EVERY_TERM
@pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
def test_its_gradient_is_its_weight_matrix(name, mode):
    data, config = batch(), replace(CONFIG, token_aggregation=mode)
    nll = data.nll.requires_grad_()
    (gradient,) = torch.autograd.grad(losses_of(data, config).terms[name], nll)
    matrix = term_weight_matrices(prepare_reference(data.surprisal, data.mask, config), config)[name]
    torch.testing.assert_close(gradient, matrix / data.mask.any(-1).sum())
    assert not matrix.requires_grad
    assert torch.equal(matrix[~data.mask], torch.zeros_like(matrix[~data.mask]))
    assert matrix.min() >= 0


@EVERY_TERM
def test_it_is_zero_for_a_batch_without_active_positions(name):
    data = batch()
    assert losses_of(replace(data, mask=torch.zeros_like(data.mask))).terms[name] == 0


@EVERY_TERM
def test_padding_changes_nothing(name):
    data = batch()
    longer = Batch(*(torch.nn.functional.pad(t, (0, 4)) for t in (data.nll, data.mask, data.surprisal)))
    torch.testing.assert_close(losses_of(longer).terms[name], losses_of(data).terms[name])


def posterior_of(name: str, dtype: torch.dtype = torch.float64) -> GaussianPosterior | CategoricalPosterior:
    generator = torch.Generator().manual_seed(0)
    if AUXILIARY_TERMS[name].latent == "continuous":
        return GaussianPosterior(*torch.randn(3, 6, 3, generator=generator, dtype=dtype))
    return CategoricalPosterior(torch.randn(6, 2, 4, generator=generator, dtype=dtype))


PRESENT = torch.tensor([True, False, True, True, True, True])


@EVERY_AUXILIARY
def test_it_is_logged_for_its_latent_type_alone(name):
    assert name in auxiliary_losses(posterior_of(name), PRESENT, 50)
    others = [other for other, term in AUXILIARY_TERMS.items() if term.latent != AUXILIARY_TERMS[name].latent]
    assert not set(others) & set(auxiliary_losses(posterior_of(name), PRESENT, 50))


@EVERY_AUXILIARY
def test_its_gradient_agrees_with_finite_differences(name):
    posterior = posterior_of(name)

    def value(*tables):
        return AUXILIARY_TERMS[name].loss(type(posterior)(*tables), PRESENT, 50)

    assert torch.autograd.gradcheck(value, tuple(table.requires_grad_() for table in posterior))


@EVERY_AUXILIARY
def test_an_example_that_is_not_present_is_not_read(name):
    posterior = posterior_of(name)
    broken = type(posterior)(
        *(table.masked_fill(~PRESENT.view(-1, *[1] * (table.dim() - 1)), torch.nan) for table in posterior)
    )
    short = type(posterior)(*(table[PRESENT] for table in posterior))
    expected = AUXILIARY_TERMS[name].loss(short, PRESENT[PRESENT], 50)
    leaves = [table.requires_grad_() for table in broken]
    value = AUXILIARY_TERMS[name].loss(type(posterior)(*leaves), PRESENT, 50)
    torch.testing.assert_close(value, expected)
    for leaf in leaves:
        (gradient,) = torch.autograd.grad(value, leaf, retain_graph=True, allow_unused=True)
        assert gradient is None or not gradient[~PRESENT].any()


@EVERY_AUXILIARY
def test_a_batch_without_examples_gives_zero_and_no_gradient(name):
    posterior = type(posterior_of(name))(*(table.requires_grad_() for table in posterior_of(name)))
    value = AUXILIARY_TERMS[name].loss(posterior, torch.zeros(6, dtype=torch.bool), 50)
    assert value == 0
    value.backward()
    assert all(table.grad is None or not table.grad.any() for table in posterior)


@EVERY_AUXILIARY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_scored_in_float32(name, dtype):
    posterior = posterior_of(name, dtype)
    wider = type(posterior)(*(table.float() for table in posterior))
    loss = AUXILIARY_TERMS[name].loss
    torch.testing.assert_close(loss(posterior, PRESENT, 50), loss(wider, PRESENT, 50), rtol=0, atol=0)
