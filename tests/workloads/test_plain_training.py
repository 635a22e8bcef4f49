"""A pack in float64 against a plain PyTorch loop with PyTorch's own layers, clipping and optimiser, one by one."""

import dataclasses
import math

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae.evaluation import real_tokens
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.reference import one_thread
from ablate.workloads.sequence_vae.training_pack import train_together
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from losses import (
    auxiliary_losses,
    beta_at,
    free_bits,
    linear_nll,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
    temperature_at,
)
from tests.workloads.conftest import merged, tiny
from tests.workloads.test_packs import ARMS, KINDS

STEPS = 20


def start(table, config, seed):
    """State and setup of a trial in float64."""
    state, setup = set_up(trial_settings(config), table, Trial(seed=seed, baseline=tiny()), "cpu")
    state.model.double()
    train = dataclasses.replace(setup.train, surprisal=setup.train.surprisal.double())
    objective = setup.objective
    prepared = prepare_reference(train.surprisal, train.mask, objective.reconstruction)
    reference = dataclasses.replace(  # with the settings of the trial, in float64
        setup.weights, surprisal=train.surprisal, whole=None, config=objective.reconstruction
    )
    return state, dataclasses.replace(setup, train=train, weights=reference), prepared


def plainly(table, config, seed):
    """Objective and norm of the gradient in each step of a loop that knows no packs; the parameters at its end."""
    state, setup, prepared = start(table, config, seed)
    model, objective, streams, training = state.model, setup.objective, setup.streams, setup.settings.training
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    course = []
    for step in range(STEPS):
        rows = torch.from_numpy(setup.rows(step))
        tokens, mask = setup.train.tokens[rows].long(), setup.train.mask[rows]
        parameters = model.encode(tokens, real_tokens(mask), streams.dropout)
        noise = model.latent.noise(len(tokens), streams.latent).double()
        temperature = temperature_at(objective.temperature, step)
        z = model.latent.relaxed(parameters, noise, temperature, straight_through=objective.straight_through)
        nll = masked_token_nll_per_position(model.decode(tokens[:, :-1], mask, z, streams.dropout), tokens[:, 1:], mask)
        stack = reconstruction_losses(
            nll, mask, prepared[rows], objective.reconstruction, objective.example_weight_mean
        )
        rate = free_bits(model.latent.kl(parameters), objective.free_bits, mask)
        loss = stack.objective + beta_at(objective.beta, step) * rate
        posterior = model.latent.posterior(parameters, z)
        others = auxiliary_losses(posterior, mask.any(-1), objective.training_size)
        loss = loss + sum(weight * others[name] for name, weight in objective.auxiliary.items())
        optimiser.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), training.clip_norm or math.inf)
        course.append((loss.item(), norm.item()))
        optimiser.step()
    return course, torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize(("kind", "logits"), [*((kind, "made") for kind in KINDS), ("gru, continuous", "not made")])
def test_a_pack_follows_the_plain_loop(table, kind, logits, monkeypatch):
    if logits == "not made":
        monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", 0)
    configs = [tiny(**merged(merged({}, KINDS[kind]), arm)) for arm in ARMS]
    with one_thread():
        made = [start(table, config, seed) for seed, config in enumerate(configs)]
        states, setups = [own[0] for own in made], [own[1] for own in made]
        trainings = [setup.settings.training for setup in setups]
        pack = ModelPack([state.model for state in states], trainings, [state.optimiser for state in states])
        began = [torch.nn.utils.parameters_to_vector(state.model.parameters()).clone() for state in states]
        taken = [train_together(pack, setups, [step] * len(setups)) for step in range(STEPS)]
        for seed, (config, state) in enumerate(zip(configs, states, strict=True)):
            found = torch.nn.utils.parameters_to_vector(state.model.parameters())
            course, expected = plainly(table, config, seed)
            for step, own in zip(taken, course, strict=True):
                assert (step.objectives[seed], step.norms[seed]) == pytest.approx(own, rel=1e-10)
            # Adam makes of a slope that is 0 but for rounding (keys' biases in attention have it) up to 1e8 times that.
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
            assert (found - began[seed]).abs().max() > 0.01
