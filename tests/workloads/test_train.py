"""Trials: the same bits whatever happens around them, and what they report."""

import math

import pytest
import torch

from ablate.errors import StudyError
from ablate.workloads import find_workload
from ablate.workloads.contract import Trial, TrialDiverged, TrialStopped
from ablate.workloads.sequence_vae.batches import data_order
from ablate.workloads.sequence_vae.checkpoint import FILE
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.train_step import Batch, MemberStep, pack_losses
from ablate.workloads.sequence_vae.training_member import evaluation_steps, report_steps
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from ablate.workloads.synthetic_sequences.workload import scales, train
from tests.workloads.conftest import EVALUATION, tiny

DROPS = {"dropout": 0.2, "token_dropout": 0.2}


def trial(shared_dir, **settings):
    return Trial(**{"seed": 0, "shared_dir": shared_dir, "evaluation": EVALUATION} | settings)


def untimed(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def run(config, made):
    """Final metrics and rows, without the times."""
    final = train(config, made)
    return untimed(final), [(row.step, untimed(row.metrics)) for row in made.rows]


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
@pytest.mark.parametrize("core", ["transformer", "gru"])
def test_every_kind_trains_and_reports_what_it_declares(shared_dir, latent, core):
    config = tiny(
        latent=latent, model={"encoder": core, "decoder": core}, training={"steps": 40, "learning_rate": 0.01}
    )
    made = trial(shared_dir)
    final, rows = run(config, made)
    declared = find_workload("synthetic_sequences").metrics
    other = {"train/code_usage", "train/temperature"}
    if latent == "discrete":
        other = {"train/total_correlation", "train/dip_vae_i"}
    other |= {name for name in declared if name.startswith("gradient_cosine/")}  # where a study asks for them
    assert set(final) | {"time/step_s"} == declared - other
    assert set(made.texts) == {"samples.tsv", "reconstructions.tsv", "traversals.tsv"}
    assert {name for _, metrics in rows for name in metrics} <= declared
    assert all(math.isfinite(value) for _, metrics in rows for value in metrics.values())
    assert final == rows[-1][1]
    assert final["eval/neg_elbo_per_token"] < rows[0][1]["eval/neg_elbo_per_token"]
    assert final["select/neg_elbo_per_token"] != final["eval/neg_elbo_per_token"]


def test_the_same_seed_gives_the_same_bits_in_a_used_process(shared_dir):
    config = tiny(model=DROPS)
    first = run(config, trial(shared_dir))
    run(tiny(latent="discrete"), trial(shared_dir, seed=3))
    torch.manual_seed(1)
    torch.rand(17)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert run(config, trial(shared_dir)) == first
    finally:
        torch.set_num_threads(threads)
    assert run(config, trial(shared_dir, seed=1)) != first


def test_a_trial_of_its_own_makes_its_own_table(shared_dir):
    assert run(tiny(), trial(None)) == run(tiny(), trial(shared_dir))


class Stop:
    """Ends a trial once it has reported a step."""

    def __init__(self, at):
        self.at, self.rows = at, []

    def __call__(self, row):
        self.rows.append((row.step, untimed(row.metrics)))
        if row.step >= self.at:
            raise TrialStopped


@pytest.mark.parametrize("latent", ["continuous", "discrete"])
@pytest.mark.parametrize("kills", [(0,), (1,), (3,), (5, 8), (2, 3, 7, 11), (12,)])
def test_a_resumed_trial_equals_an_undisturbed_one(shared_dir, tmp_path, latent, kills):
    config = tiny(latent=latent, model=DROPS, kl={"schedule": "cyclical", "cycle_steps": 5})
    whole, rows = run(config, trial(shared_dir))
    seen = {}
    for at in kills:
        stop = Stop(at)
        with pytest.raises(TrialStopped):
            train(config, trial(shared_dir, checkpoint_dir=tmp_path, on_report=stop))
        seen.update(stop.rows)
    last = trial(shared_dir, checkpoint_dir=tmp_path)
    final, rest = run(config, last)
    assert final == whole
    assert dict(rows) == seen | dict(rest)
    assert rest[0][0] == 12 if kills == (12,) else rest[0][0] <= kills[-1] + 1


def test_a_kill_right_after_the_checkpoint(shared_dir, tmp_path):
    def killed(step):
        if step == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny(), trial(shared_dir, checkpoint_dir=tmp_path, on_checkpoint=killed))
    resumed = trial(shared_dir, checkpoint_dir=tmp_path)
    final, rest = run(tiny(), resumed)
    assert final == run(tiny(), trial(shared_dir))[0]
    assert rest[0][0] == 7


def test_checkpoints_are_said_and_read_without_pickled_code(shared_dir, tmp_path):
    steps = []
    train(tiny(), trial(shared_dir, checkpoint_dir=tmp_path, on_checkpoint=steps.append))
    assert steps == [3, 6, 9, 12]
    saved = torch.load(tmp_path / FILE, weights_only=True)
    assert {"model", "optimiser", "generators", "progress"} <= set(saved)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "another"])
def test_a_checkpoint_that_is_no_use_is_said_and_left(shared_dir, tmp_path, capsys, damage):
    whole = run(tiny(), trial(shared_dir))
    with pytest.raises(TrialStopped):
        train(tiny(kl={"beta": 2.0}), trial(shared_dir, checkpoint_dir=tmp_path, on_report=Stop(6)))
    path = tmp_path / FILE
    content = path.read_bytes()
    path.write_bytes(
        {"cut": content[: len(content) // 2], "garbage": b"x" * 500, "empty": b"", "another": content}[damage]
    )
    assert run(tiny(), trial(shared_dir, checkpoint_dir=tmp_path)) == whole
    said = capsys.readouterr().out
    assert said.startswith(f"the checkpoint in {tmp_path} is not used (")
    assert said.endswith("): starting anew\n")
    assert ("it belongs to another training" in said) == (damage == "another")


def test_a_table_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(StudyError, match="it is not there"):
        train(tiny(), trial(tmp_path))


def test_a_learning_rate_that_is_too_high_is_an_outcome(shared_dir):
    made = trial(shared_dir)
    with pytest.raises(TrialDiverged, match=r"is (nan|inf)"):
        train(tiny(training={"learning_rate": 1e6, "steps": 200, "clip_norm": None}), made)
    assert all(math.isfinite(value) for value in made.rows[0].metrics.values())


def test_beta_is_used(shared_dir):
    def after(beta):
        return run(tiny(kl={"beta": beta}, training={"steps": 1}), trial(shared_dir))[1]

    none, four = after(0.0), after(4.0)
    assert none[0] == four[0]  # the same start, the same draws
    assert none[1][1]["train/kl"] == four[1][1]["train/kl"]
    assert none[1][1]["train/grad_norm"] != four[1][1]["train/grad_norm"]
    objective, kl = (four[1][1][f"train/{name}"] for name in ("objective", "kl"))
    assert objective == pytest.approx(none[1][1]["train/objective"] + 4 * kl, rel=1e-5)


def test_free_bits_and_auxiliary_terms_enter_the_objective(shared_dir):
    def first(**changes):
        return run(tiny(training={"steps": 1}, **changes), trial(shared_dir))[1][1][1]

    plain = first()
    bits = first(kl={"free_bits": 100.0})
    expected = plain["train/objective"] - plain["train/kl"] + 3 * 100
    assert bits["train/objective"] == pytest.approx(expected, rel=1e-5)
    for name in ("total_correlation", "dip_vae_i"):
        weighted = first(auxiliary={name: 2.0})
        expected = plain["train/objective"] + 2 * plain[f"train/{name}"]
        assert weighted["train/objective"] == pytest.approx(expected, rel=1e-5)


def test_the_objective_of_a_batch_is_the_mean_over_its_parts(shared_dir, table):
    """Identity 7: the third term is normalised over the training split, not over the batch."""
    state, setup = set_up(trial_settings(tiny()), table, trial(shared_dir), "cpu")
    with torch.no_grad():  # no spread: each part has a draw of its own
        state.model.posterior.weight[3:] = 0
        state.model.posterior.bias[3:] = -50

    pack = ModelPack([state.model], [setup.settings.training], [{}])

    def loss(rows):
        batch = Batch(setup.train.tokens[rows].long()[None], setup.train.mask[rows][None], setup.weights[rows][None])
        return pack_losses(pack.batched, batch, [MemberStep(setup.objective, setup.streams, 0)]).objectives[0]

    rows = torch.arange(16)
    assert loss(rows).item() == pytest.approx((loss(rows[:4]) + 3 * loss(rows[4:])).item() / 4, rel=1e-5)


def test_clipping_is_counted_between_reports(shared_dir):
    training = {"steps": 130, "clip_norm": 8.0}
    _, rows = run(tiny(training=training), trial(shared_dir))
    fractions = [metrics["train/clip_fraction"] for _, metrics in rows[1:]]
    assert {round(6 * fraction, 9) for fraction in fractions} <= {0, 1, 2, 3, 4, 5, 6}  # 2 or 3 steps a row
    assert 0 < sum(fractions) < len(fractions)
    assert all(m["train/grad_norm"] <= 8 for _, m in rows[1:] if m["train/clip_fraction"] == 0)


def test_weights_change_what_is_minimised_and_nothing_that_is_logged_before(shared_dir):
    on = run(tiny(), trial(shared_dir))[1]
    off = run(tiny(reconstruction={"raw_weight": 0.0}), trial(shared_dir))[1]
    assert on[0] == off[0]
    changed = {name for name, value in on[1][1].items() if off[1][1][name] != value}
    assert changed == {"train/objective", "train/effective_beta", "train/grad_norm"}
    assert on[-1] != off[-1]


def test_a_replicate_shares_the_start_and_the_evaluation(shared_dir):
    first = run(tiny(), trial(shared_dir))[1]
    again = run(tiny(), trial(shared_dir, replicate=1))[1]
    assert first[0] == again[0]
    assert first[1][1]["train/reconstruction_loss"] != again[1][1]["train/reconstruction_loss"]


def test_effective_beta_of_the_raw_term_is_one_or_the_mean_length(shared_dir, table):
    only_raw = dict.fromkeys(tiny()["reconstruction"], 0.0) | {"raw_weight": 1.0}
    only_raw = {name: value for name, value in only_raw.items() if name.endswith("_weight")}
    made = trial(shared_dir)
    _, rows = run(tiny(reconstruction=only_raw), made)
    assert made.notes["effective_beta"] == pytest.approx(1)
    assert made.notes["term_shares"]["reconstruction_loss"] == pytest.approx(1)
    assert rows[1][1]["train/effective_beta"] == pytest.approx(1)
    made = trial(shared_dir)
    train(tiny(reconstruction=only_raw | {"token_aggregation": "token_mean"}), made)
    lengths = table.lengths[table.splits["train"]] - 1
    assert made.notes["effective_beta"] == pytest.approx(float(lengths.mean()))
    assert made.notes["zfree_reference_scale"] == table.facts["zfree_reference_scale_token_mean"]


def test_a_rescaled_twin_has_the_mean_weight_of_the_baseline(shared_dir):
    base = tiny()
    plain, twin, matched = trial(shared_dir), trial(shared_dir, baseline=base), trial(shared_dir, baseline=base)
    train(base, plain)
    train(tiny(reconstruction={"token_weighted_weight": 0.0, "rescale": "baseline"}), twin)
    train(tiny(reconstruction={"token_aggregation": "token_mean", "rescale": "baseline"}), matched)
    for made in (twin, matched):
        for name in ("mean_effective_token_weight", "effective_beta"):
            assert made.notes[name] == pytest.approx(plain.notes[name])
    factor = twin.notes["rescaled_by"]
    assert factor > 1
    assert twin.notes["rescaled_weights"]["raw_weight"] == pytest.approx(factor)
    assert twin.notes["rescaled_weights"]["token_weighted_weight"] == 0
    with pytest.raises(ValueError, match="need the baseline's configuration"):
        train(tiny(reconstruction={"rescale": "baseline"}), trial(shared_dir))


def test_scales_are_those_of_the_trials(shared_dir, tmp_path):
    arms = [tiny(), tiny(reconstruction={"raw_weight": 0.0, "rescale": "baseline"}, kl={"beta": 3.0})]
    found = scales([*arms, tiny(data={"seed": 1})], tiny(), shared_dir)
    assert found[2] is None
    for arm, scale in zip(arms, found, strict=False):
        made = trial(shared_dir, baseline=tiny())
        train(arm, made)
        assert scale.beta_eff == made.notes["effective_beta"]
        assert scale.mean_weight == made.notes["mean_effective_token_weight"]
        assert scale.shares == made.notes["term_shares"]
        assert sum(scale.shares.values()) == pytest.approx(1)
    assert scales(arms, tiny(), tmp_path) == [None, None]


def test_when_it_evaluates_and_reports():
    assert evaluation_steps(1000, 0.1) == set(range(0, 1001, 100))
    assert evaluation_steps(10, 0.3) == {0, 3, 6, 9, 10}
    assert evaluation_steps(3, 0.1) == {0, 1, 2, 3}
    assert evaluation_steps(7, 1.0) == {0, 7}
    assert len(report_steps(1000)) == 50
    assert max(report_steps(1000)) == 1000
    assert report_steps(3) == {1, 2, 3}


@pytest.mark.parametrize(("examples", "batch"), [(10, 3), (10, 10), (4, 11), (1, 2)])
def test_each_pass_over_the_data_sees_every_example_once(examples, batch):
    rows = data_order(5, examples, batch)
    places = [row for step in range(40) for row in rows(step)]
    passes = [places[start : start + examples] for start in range(0, len(places) - examples + 1, examples)]
    assert all(sorted(one) == list(range(examples)) for one in passes)
    assert examples == 1 or len({tuple(one) for one in passes}) > 1
    assert (data_order(5, examples, batch)(7) == rows(7)).all()
