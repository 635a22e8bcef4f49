"""Held-out metrics against their definitions, example by example."""

import dataclasses
import math

import pytest
import torch

from ablate.workloads.sequence_vae import evaluation
from ablate.workloads.sequence_vae.evaluation import evaluate, held_out, iwae_nll_per_token, real_tokens
from ablate.workloads.sequence_vae.keyed_noise import keyed_noise
from ablate.workloads.sequence_vae.model import SequenceVAE, seeded
from ablate.workloads.sequence_vae.objective import loss_config
from ablate.workloads.sequence_vae.trial_setup import trial_settings
from losses import reconstruction_losses
from tests.workloads.conftest import tiny

SEED = 11


def made(table, latent="continuous", split="report"):
    settings = trial_settings(tiny(latent=latent))
    with seeded(0):
        model = SequenceVAE(latent, settings.model, table.vocabulary, table.tokens.shape[1])
    config = loss_config(settings.reconstruction, table)
    return model, held_out(table, split, model, config, SEED), config


def slow(model, data, row):
    """NLL at each target of one example under its own draw of z, and its KL."""
    tokens = data.split.tokens[row : row + 1].long()
    mask = data.split.mask[row : row + 1]
    noise = keyed_noise(SEED, [data.split.first_row + row], (model.latent.size,), model.latent.noise_kind)
    with torch.no_grad():
        parameters = model.encode(tokens, real_tokens(mask))
        log_p = model.decode(tokens[:, :-1], mask, model.latent.draw(parameters, noise)).log_softmax(-1)
    count = int(mask.sum())
    return [-log_p[0, t, tokens[0, t + 1]].item() for t in range(count)], model.latent.kl(parameters).sum().item()


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_values_are_those_of_slow_loops(table, latent):
    model, data, config = made(table, latent)
    metrics = evaluate(model, data, config, "cpu")
    scored = [slow(model, data, row) for row in range(24)]
    nll, kl = sum(sum(x) for x, _ in scored), sum(kl for _, kl in scored)
    tokens = sum(len(x) for x, _ in scored)
    assert metrics["nll_per_token"] == pytest.approx(nll / tokens, rel=1e-5)
    assert metrics["nll_per_sequence"] == pytest.approx(nll / 24, rel=1e-5)
    assert metrics["kl"] == pytest.approx(kl / 24, rel=1e-5)
    assert metrics["elbo"] == pytest.approx(-(nll + kl) / 24, rel=1e-5)
    assert metrics["neg_elbo_per_token"] == pytest.approx((nll + kl) / tokens, rel=1e-5)
    assert metrics["rate_per_token"] == pytest.approx(kl / tokens, rel=1e-5)
    assert metrics["reconstruction_loss"] == pytest.approx(nll / 24, rel=1e-5)
    assert metrics["distribution_normalized_reconstruction_loss"] == pytest.approx(
        nll / 24 / table.facts["zfree_reference_scale_token_sum"], rel=1e-5
    )
    assert metrics["zfree_nll_per_token"] == table.facts["report_reference_nll_per_token"]
    assert metrics["zfree_bayes_nll_per_token"] == table.facts["report_bayes_nll_per_token"]
    assert 0 <= metrics["mig"] <= 1
    assert 0 <= metrics["token_accuracy"] <= 1


def test_terms_are_of_the_split_as_one_batch(table):
    model, data, config = made(table)
    metrics = evaluate(model, data, config, "cpu")
    nll = torch.zeros(data.split.mask.shape)
    for row in range(24):
        x, _ = slow(model, data, row)
        nll[row, : len(x)] = torch.tensor(x)
    whole = reconstruction_losses(nll, data.split.mask, data.split.surprisal, config)
    for name, value in (*whole.terms.items(), *whole.diagnostics.items()):
        assert metrics[name] == pytest.approx(float(value), rel=1e-4), name


def test_a_batch_makes_no_more_logits_than_it_may(table, monkeypatch):
    model, data, config = made(table)
    whole = evaluate(model, data, config, "cpu")
    drawn = iwae_nll_per_token(model, data, 3, 4, 10, "cpu")
    rows = []
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda prefix, *rest: (rows.append(len(prefix)), decode(prefix, *rest))[1])
    vocabulary = model.embedding.token.num_embeddings
    monkeypatch.setattr(evaluation, "MOST_LOGITS", 8 * data.split.mask.shape[1] * vocabulary)
    assert evaluate(model, data, config, "cpu") == pytest.approx(whole, rel=1e-5, abs=1e-6)
    assert iwae_nll_per_token(model, data, 3, 4, 10, "cpu") == pytest.approx(drawn, rel=1e-5)
    assert set(rows) == {8}


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_batches_decide_nothing(table, latent):
    model, data, config = made(table, latent)
    whole = evaluate(model, data, config, "cpu")
    iwae = iwae_nll_per_token(model, data, 3, 4, 10, "cpu")
    for batch in (1, 5):
        assert evaluate(model, data, config, "cpu", batch=batch) == pytest.approx(whole, rel=1e-5)
        assert iwae_nll_per_token(model, data, 3, 4, 10, "cpu", batch=batch) == pytest.approx(iwae, rel=1e-6)


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
def test_the_importance_weighted_bound(table, latent):
    model, data, config = made(table, latent)
    q = model.latent
    total, tokens = 0.0, 0
    for row in range(10):
        noise = keyed_noise(3, [data.split.first_row + row], (4, q.size), q.noise_kind)[0]
        sequence, mask = data.split.tokens[row : row + 1].long(), data.split.mask[row : row + 1]
        weights = []
        for k in range(4):
            with torch.no_grad():
                parameters = model.encode(sequence, real_tokens(mask))
                z = q.draw(parameters, noise[k : k + 1])
                log_p = model.decode(sequence[:, :-1], mask, z).log_softmax(-1)
            count = int(mask.sum())
            score = sum(log_p[0, t, sequence[0, t + 1]].item() for t in range(count))
            weights.append(score + q.log_weight(parameters, z).item())
        total += math.log(4) - math.log(sum(math.exp(w) for w in weights))
        tokens += count
    assert iwae_nll_per_token(model, data, 3, 4, 10, "cpu") == pytest.approx(total / tokens, rel=1e-5)
    # more samples tighten it, and it never passes the negative ELBO by more than chance
    many = iwae_nll_per_token(model, data, 3, 256, 24, "cpu")
    assert many < iwae_nll_per_token(model, data, 3, 1, 24, "cpu") + 0.01
    assert many < evaluate(model, data, config, "cpu")["neg_elbo_per_token"] + 0.01


def test_more_examples_than_there_are(table):
    model, data, _ = made(table)
    assert iwae_nll_per_token(model, data, 3, 2, 10_000, "cpu") == iwae_nll_per_token(model, data, 3, 2, 24, "cpu")


def test_the_draw_of_an_example_is_the_same_in_both_splits_of_a_row_and_at_every_call(table):
    model, report, config = made(table)
    _, select, _ = made(table, split="select")
    assert not torch.equal(report.noise, select.noise)
    assert evaluate(model, report, config, "cpu") == evaluate(model, report, config, "cpu")


def test_accuracies_count_tokens_and_whole_sequences(table):
    model, data, config = made(table)
    model.decoder.output.weight.data.zero_()
    model.decoder.output.bias.data.zero_()
    model.decoder.output.bias.data[3] = 1.0  # the likeliest token everywhere
    right = data.split.tokens[:, 1:] == 3
    metrics = evaluate(model, data, config, "cpu")
    assert metrics["token_accuracy"] == int((right & data.split.mask).sum()) / int(data.split.mask.sum())
    assert metrics["sequence_accuracy"] == 0

    tokens = data.split.tokens.clone()
    tokens[:6, 1:] = 3
    changed = dataclasses.replace(data, split=dataclasses.replace(data.split, tokens=tokens))
    assert evaluate(model, changed, config, "cpu")["sequence_accuracy"] == 6 / 24
