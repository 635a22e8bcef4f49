"""The loss stack under autograd's checks, torch.compile, vmap and autocast."""

from dataclasses import asdict, replace

import pytest
import torch

from losses import (
    ReconstructionLossConfig,
    auxiliary_losses,
    categorical_kl,
    effective_token_weights,
    free_bits,
    gaussian_kl_per_dimension,
    linear_masked_token_nll,
    masked_token_nll_per_example,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
    token_weighted_masked_nll_per_example,
)
from losses.auxiliary import CategoricalPosterior, GaussianPosterior
from tests.losses.batches import CONFIG, Batch, batch, values

MODES = pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
NUMBERS = [name for name, value in asdict(CONFIG).items() if isinstance(value, float)]


def objective_from_logits(logits, targets, data, config):
    nll = masked_token_nll_per_position(logits, targets, data.mask)
    return reconstruction_losses(nll, data.mask, data.surprisal, config)


def logits_and_targets(data, vocabulary=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(*data.mask.shape, vocabulary, generator=generator, dtype=dtype)
    targets = torch.randint(vocabulary, data.mask.shape, generator=generator)
    return logits, targets.masked_fill(~data.mask, -100)


@MODES
def test_gradcheck_from_the_logits(mode):
    data = batch(examples=3, length=3)
    logits, targets = logits_and_targets(data, vocabulary=3)
    config = replace(CONFIG, token_aggregation=mode)

    def outputs(logits):
        losses = objective_from_logits(logits, targets, data, config)
        return (losses.objective, *losses.terms.values())

    assert torch.autograd.gradcheck(outputs, (logits.requires_grad_(),))
    assert torch.autograd.gradgradcheck(lambda logits: outputs(logits)[0], (logits,))


def test_gradcheck_of_the_aggregations():
    data = batch(examples=3, length=4)
    nll = data.nll.requires_grad_()
    for mode in ("token_sum", "token_mean"):
        assert torch.autograd.gradcheck(lambda x, mode=mode: masked_token_nll_per_example(x, data.mask, mode), (nll,))
        assert torch.autograd.gradcheck(
            lambda x, mode=mode: token_weighted_masked_nll_per_example(x, data.mask, data.surprisal, mode), (nll,)
        )


@MODES
@pytest.mark.parametrize("prepared", [False, True])
def test_compiles_as_one_graph(mode, prepared):
    data = batch(dtype=torch.float32)
    logits, targets = logits_and_targets(data, dtype=torch.float32)
    config = replace(CONFIG, token_aggregation=mode)
    reference = prepare_reference(data.surprisal, data.mask, config) if prepared else data.surprisal
    index = torch.tensor([3, 0, 4])

    def step(logits, targets, mask, reference, index):
        nll = masked_token_nll_per_position(logits[index], targets[index], mask[index])
        return reconstruction_losses(nll, mask[index], reference[index], config, 0.4)

    results = []
    torch._dynamo.reset()
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        leaf = logits.clone().requires_grad_()
        losses = function(leaf, targets, data.mask, reference, index)
        losses.objective.backward()
        results.append((values(losses.terms), values(losses.diagnostics), losses.effective_token_weights, leaf.grad))
    eager, compiled = results
    assert pytest.approx(eager[0], rel=1e-5) == compiled[0]
    assert pytest.approx(eager[1], rel=1e-5) == compiled[1]
    torch.testing.assert_close(eager[2], compiled[2])
    torch.testing.assert_close(eager[3], compiled[3])


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, while it compiles
def test_compiles_to_machine_code():
    """With torch's default backend, which takes a C++ compiler and half a minute."""
    data = batch(dtype=torch.float32)
    logits, targets = logits_and_targets(data, dtype=torch.float32)
    compiled = torch.compile(objective_from_logits, fullgraph=True)
    eager, fast = (function(logits, targets, data, CONFIG) for function in (objective_from_logits, compiled))
    assert pytest.approx(values(eager.terms), rel=1e-5) == values(fast.terms)
    assert pytest.approx(values(eager.diagnostics), rel=1e-5) == values(fast.diagnostics)


def test_kl_and_auxiliary_terms_compile_as_one_graph():
    generator = torch.Generator().manual_seed(0)
    mu, logvar, z = torch.randn(3, 5, 4, generator=generator)
    logits = torch.randn(5, 2, 3, generator=generator)
    present = torch.tensor([True, True, False, True, True])

    def step(mu, logvar, z, logits, present):
        continuous = auxiliary_losses(GaussianPosterior(mu, logvar, z), present, 100)
        discrete = auxiliary_losses(CategoricalPosterior(logits), present, 100)
        kl = free_bits(gaussian_kl_per_dimension(mu, logvar), 0.1, present)
        return sum(continuous.values()) + sum(discrete.values()) + kl + categorical_kl(logits).sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    arguments = (mu, logvar, z, logits, present)
    torch.testing.assert_close(step(*arguments), compiled(*arguments))


@MODES
def test_no_value_is_read_on_the_host(mode):
    """On the meta device tensors have no values: whatever waits for one fails."""
    data = Batch(*(table.to("meta") for table in vars(batch(dtype=torch.float32)).values()))
    examples, length = data.mask.shape
    config = replace(CONFIG, token_aggregation=mode)
    reference = prepare_reference(data.surprisal, data.mask, config)
    logits, hidden = (torch.empty(examples, length, n, device="meta", requires_grad=True) for n in (9, 4))
    targets = torch.empty(examples, length, dtype=torch.int64, device="meta")
    for known in (data.surprisal, reference, reference[torch.arange(examples, device="meta")]):
        nll = masked_token_nll_per_position(logits, targets, data.mask)
        losses = reconstruction_losses(nll, data.mask, known, config)
        (losses.objective + sum(losses.terms.values())).backward()
    weights = effective_token_weights(reference, config)
    matrix = torch.empty(9, 4, device="meta", requires_grad=True)
    linear_masked_token_nll(hidden, matrix, targets, data.mask, weights).objective.backward()
    present = data.mask.any(-1)
    mu, codes = (torch.empty(examples, *shape, device="meta", requires_grad=True) for shape in ((3,), (2, 5)))
    continuous = auxiliary_losses(GaussianPosterior(mu, mu, mu), present, 100)
    discrete = auxiliary_losses(CategoricalPosterior(codes), present, 100)
    kl = free_bits(gaussian_kl_per_dimension(mu, mu), 0.1, data.mask) + categorical_kl(codes).sum()
    (kl + sum(continuous.values()) + sum(discrete.values())).backward()
    assert {leaf.grad.device.type for leaf in (logits, hidden, matrix, mu, codes)} == {"meta"}


@MODES
@pytest.mark.parametrize("prepared", [False, True])
def test_vmap_over_every_number_equals_a_loop(mode, prepared):
    """Weights, alpha, epsilons and scale as tensors: many trials at once; each has its own NLL."""
    data = batch()
    trials = 4
    generator = torch.Generator().manual_seed(5)
    settings = {name: 0.1 + torch.rand(trials, generator=generator, dtype=torch.float64) for name in NUMBERS}
    settings["token_weight_alpha"][0] = 0.0
    settings["example_inverse_surprisal_epsilon"][1] = 1e30
    nll = (data.nll + torch.rand(trials, *data.nll.shape, generator=generator)).requires_grad_()

    def losses_of(numbers, nll):
        config = ReconstructionLossConfig(**numbers, token_aggregation=mode)
        reference = prepare_reference(data.surprisal, data.mask, config) if prepared else data.surprisal
        return reconstruction_losses(nll, data.mask, reference, config)

    together = torch.func.vmap(losses_of)(settings, nll)
    (gradient,) = torch.autograd.grad(together.objective.sum(), nll)
    for trial in range(trials):
        numbers = {name: value[trial].item() for name, value in settings.items()}
        alone = losses_of(numbers, nll[trial])
        assert pytest.approx(values(alone.terms)) == {name: v[trial].item() for name, v in together.terms.items()}
        assert pytest.approx(values(alone.diagnostics)) == {
            name: v[trial].item() for name, v in together.diagnostics.items()
        }
        assert pytest.approx(alone.objective.item()) == together.objective[trial].item()
        torch.testing.assert_close(alone.effective_token_weights, together.effective_token_weights[trial])
        torch.testing.assert_close(alone.effective_token_weights, gradient[trial])


def test_vmap_over_the_batches_of_a_prepared_reference():
    """Trials that train together, each with its own order of the data."""
    data = batch(examples=9)
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    orders = torch.tensor([[0, 1, 3], [8, 5, 0], [7, 3, 6]])

    def objective(order):
        return reconstruction_losses(data.nll[order], data.mask[order], prepared[order], CONFIG, 0.3).objective

    torch.testing.assert_close(torch.func.vmap(objective)(orders), torch.stack([objective(order) for order in orders]))


def test_vmap_from_the_logits_with_per_trial_gradients():
    data = batch()
    logits, targets = logits_and_targets(data)
    stacked = torch.stack([logits, 2 * logits, -logits])
    alphas = torch.tensor([0.0, 1.0, 2.5])

    def objective(logits, alpha):
        return objective_from_logits(logits, targets, data, replace(CONFIG, token_weight_alpha=alpha)).objective

    gradients = torch.func.vmap(torch.func.grad(objective))(stacked, alphas)
    for gradient, one, alpha in zip(gradients, stacked, alphas, strict=True):
        torch.testing.assert_close(gradient, torch.func.grad(objective)(one, alpha.item()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_no_value(dtype):
    data = batch(dtype=torch.float32)
    logits, targets = logits_and_targets(data, dtype=torch.float32)
    mu, logvar, z = logits[:, 0], logits[:, 1], logits[:, 2]
    present = data.mask.any(-1)

    def every_value():
        losses = objective_from_logits(logits, targets, data, CONFIG)
        kl = free_bits(gaussian_kl_per_dimension(mu, logvar), 0.1, present)
        auxiliary = {
            **auxiliary_losses(GaussianPosterior(mu, logvar, z), present, 50),
            **auxiliary_losses(CategoricalPosterior(logits), present, 50),
        }
        return {**values(losses.terms), **values(losses.diagnostics), **values(auxiliary), "kl": kl.item()}

    plain = every_value()
    with torch.autocast("cpu", dtype):
        assert plain == every_value()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits(dtype):
    data = batch(dtype=torch.float32)
    logits, targets = logits_and_targets(data)
    half = logits.to(dtype).requires_grad_()
    losses = objective_from_logits(half, targets, data, CONFIG)
    exact = objective_from_logits(half.detach().double(), targets, data, CONFIG)
    assert losses.objective.dtype == torch.float32
    assert pytest.approx(values(exact.terms), rel=1e-5) == values(losses.terms)
    losses.objective.backward()
    assert half.grad.dtype == dtype
