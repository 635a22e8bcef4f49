"""Arms that the geometry calls one training are one: under SGD, the learning rate divided by the scale."""

import pytest
import torch

from ablate.plan.canonical import CanonicalFrame
from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae import model_pack, train_disentangled
from ablate.workloads.sequence_vae.objective import read_split
from ablate.workloads.sequence_vae.term_geometry import weight_gram
from ablate.workloads.synthetic_sequences.workload import scales
from ablate.workloads.weight_gram import setting_of
from losses.reconstruction import TERMS
from tests.workloads.conftest import EVALUATION, tiny

RAW, NORMALIZED, *_, INVERSE = (term.weight_field for term in TERMS.values())
OFF = dict.fromkeys((term.weight_field for term in TERMS.values()), 0.0)


@pytest.fixture
def trained(table, monkeypatch):
    """Trains a configuration with plain SGD; the held-out metrics of its last step, and where it began."""

    def sgd(rows, trainings):
        return torch.optim.SGD(
            [{"params": [row], "lr": t.learning_rate} for row, t in zip(rows, trainings, strict=True)]
        )

    monkeypatch.setattr(model_pack, "build_optimiser", sgd)

    def train(config):
        trial = Trial(seed=0, evaluation=EVALUATION)
        found = train_disentangled.train(config, table, trial)
        start = trial.rows[0].metrics["eval/neg_elbo_per_token"]
        return {name: value for name, value in found.items() if name.startswith(("eval/", "select/"))}, start

    return train


def arm(table, by, *, rate=0.1, beta=1.0, **weights):
    """Weights and beta times `by`, the learning rate divided by it."""
    return tiny(
        reconstruction=OFF | {name: by * value for name, value in weights.items()},
        kl={"beta": by * beta},
        auxiliary={"total_correlation": 0.1 * by},
        training={"learning_rate": rate / by, "clip_norm": None, "steps": 12},
    )


def frame(table, baseline):
    train = read_split(table, "train")
    scales = {mode: table.facts[f"zfree_reference_scale_{mode}"] for mode in ("token_sum", "token_mean")}
    gram = weight_gram(train.surprisal, train.mask, [setting_of(baseline["reconstruction"])], scales)
    return CanonicalFrame(gram, baseline)


def test_they_give_the_same_metrics(table, trained):
    c = table.facts["zfree_reference_scale_token_sum"]
    one = arm(table, 1.0, **{RAW: 1.0, INVERSE: c})
    two = arm(table, 8.0, **{NORMALIZED: c, INVERSE: c})  # raw is distribution-normalized times c
    place = frame(table, one)
    first, second = place.of(one), place.of(two)
    assert second.distance == 0
    assert second.beta_eff == pytest.approx(first.beta_eff, rel=1e-9)
    assert second.auxiliary_eff == pytest.approx(first.auxiliary_eff, rel=1e-9)
    assert second.scale == pytest.approx(8 * first.scale)
    (expected, start), (found, _) = trained(one), trained(two)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert abs(found["eval/neg_elbo_per_token"] - start) > 0.01  # and it has learnt something


def test_an_arm_at_a_distance_does_not(table, trained):
    one, other = arm(table, 1.0, **{RAW: 1.0}), arm(table, 1.0, **{INVERSE: 5.0})
    assert frame(table, one).of(other).distance > 0.1
    (first, _), (second, _) = trained(one), trained(other)
    assert first["eval/neg_elbo_per_token"] != pytest.approx(second["eval/neg_elbo_per_token"], abs=1e-6)


def test_scale_and_shares_are_those_that_a_trial_trains_with(table, shared_dir):
    one = tiny(kl={"beta": 0.5})
    other = tiny(reconstruction={RAW: 0.0, INVERSE: 3.0, "rescale": "baseline"})
    for found, expected in zip(
        map(frame(table, one).of, (one, other)), scales([one, other], one, shared_dir), strict=True
    ):
        assert found.scale == pytest.approx(expected.mean_weight, rel=1e-5)
        assert found.beta_eff == pytest.approx(expected.beta_eff, rel=1e-5)
        assert found.shares == pytest.approx(expected.shares, rel=1e-5)
