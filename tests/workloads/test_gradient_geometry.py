"""Cosines of the terms' parameter gradients, against one backward pass a term by hand."""

import itertools
from dataclasses import asdict, dataclass, replace

import pytest
import torch

from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae import train_disentangled
from ablate.workloads.sequence_vae.gradient_geometry import EXAMPLES, gradient_cosines
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from losses import ReconstructionLossConfig, prepare_reference, reconstruction_losses
from losses.reconstruction import TERMS, Term
from tests.workloads.conftest import EVALUATION, tiny

FIELDS = [term.weight_field for term in TERMS.values()]


def started(table, **changes):
    state, setup = set_up(trial_settings(tiny(**changes)), table, Trial(seed=0), "cpu")
    return state.model, setup


def gradient(model, setup, data, name, step):
    """The gradient of one term alone, all that leads to it computed anew."""
    n = min(EXAMPLES, len(data.split.mask))
    tokens, mask = data.split.tokens[:n].long(), data.split.mask[:n]
    real = torch.cat([torch.ones(n, 1, dtype=torch.bool), mask], 1)
    parameters = model.encode(tokens, real)
    initial = setup.objective.temperature
    temperature = max(initial.minimum, initial.initial * torch.exp(torch.tensor(-initial.anneal_rate * step)).item())
    z = model.latent.relaxed(parameters, data.noise[:n], temperature, straight_through=False)
    log_p = model.decode(tokens[:, :-1], mask, z).log_softmax(-1)
    nll = -log_p.gather(-1, tokens[:, 1:, None])[..., 0]
    reference = prepare_reference(data.split.surprisal[:n], mask, setup.objective.reconstruction)
    mean = setup.objective.example_weight_mean
    losses = reconstruction_losses(nll, mask, reference, setup.objective.reconstruction, mean)
    model.zero_grad()
    losses.terms[name].backward()
    found = torch.cat(
        [torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in model.parameters()]
    )
    model.zero_grad()
    return found.double()


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_they_are_the_cosines_of_the_gradients(table, latent):
    model, setup = started(table, latent=latent)
    data = setup.held_out["select"]
    found = gradient_cosines(model, data, setup.objective, 0, "cpu")
    assert all(weight.grad is None for weight in model.parameters())
    each = {term.weight_field: gradient(model, setup, data, name, 0) for name, term in TERMS.items()}
    assert list(found) == [f"gradient_cosine/{a}/{b}" for a, b in itertools.combinations(FIELDS, 2)]
    for a, b in itertools.combinations(FIELDS, 2):
        cosine = torch.nn.functional.cosine_similarity(each[a], each[b], dim=0).item()
        assert found[f"gradient_cosine/{a}/{b}"] == pytest.approx(cosine, abs=1e-5)
    assert found[f"gradient_cosine/{FIELDS[0]}/{FIELDS[1]}"] == pytest.approx(1)
    assert min(found.values()) < 0.999


@dataclass(frozen=True)
class OwnConfig(ReconstructionLossConfig):
    """A loss stack with two terms more."""

    my_weight: float = 1.0
    no_weight: float = 1.0


def test_a_term_of_ones_own_is_among_them_and_one_without_a_gradient_is_not(table, monkeypatch):
    model, setup = started(table)
    data = setup.held_out["select"]
    monkeypatch.setitem(TERMS, "my_loss", Term("my_weight", lambda reference: reference.share.square()))
    monkeypatch.setitem(TERMS, "nothing", Term("no_weight", lambda reference: 0 * reference.uniform))
    config = OwnConfig(**asdict(setup.objective.reconstruction))
    reference = prepare_reference(data.split.surprisal, data.split.mask, config)
    objective = replace(setup.objective, reconstruction=config)
    found = gradient_cosines(model, replace(data, reference=reference), objective, 0, "cpu")
    assert "gradient_cosine/raw_weight/my_weight" in found
    assert not [name for name in found if "no_weight" in name]


def test_measuring_them_changes_nothing_else(table):
    def train(**evaluation):
        trial = Trial(seed=0, evaluation=EVALUATION | evaluation)
        train_disentangled.train(tiny(model={"dropout": 0.1}), table, trial)
        return [(row.step, row.metrics) for row in trial.rows]

    plain, measured = train(), train(gradient_cosines=True)
    for (step, expected), (same, found) in zip(plain, measured, strict=True):
        own = {name: value for name, value in found.items() if name.startswith("gradient_cosine/")}
        assert step == same
        assert len(own) == (15 if any(name.startswith("eval/") for name in expected) else 0)
        for name in expected:
            if not name.startswith("time/"):
                assert found[name] == expected[name]
