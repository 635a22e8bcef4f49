"""Trials that train together: each has the bits it has alone, whatever its neighbours are and whatever they do."""

import pytest
import torch

from ablate.workloads import find_workload
from ablate.workloads.contract import PackMember, Trial, TrialDiverged, TrialStopped
from ablate.workloads.sequence_vae import train_step
from ablate.workloads.sequence_vae.config import pack_key
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.reference import one_thread
from ablate.workloads.sequence_vae.training_pack import train_together
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from ablate.workloads.synthetic_sequences.workload import costs, train, train_pack
from losses import cross_entropy, linear_nll
from tests.workloads.conftest import merged, tiny

BRIEF = {"every": 0.5, "iwae_samples": 2, "iwae_examples": 3}
DROPS = {"dropout": 0.2, "token_dropout": 0.2}
ARMS = (
    {},
    {"reconstruction": {"raw_weight": 0.0, "token_weight_alpha": 0.3}},
    {"reconstruction": {"token_aggregation": "token_mean"}, "training": {"learning_rate": 0.02}},
    {"kl": {"beta": 0.2, "schedule": "cyclical", "cycle_steps": 5}, "training": {"clip_norm": 2.0}},
    {"reconstruction": {"example_inverse_surprisal_epsilon": 0.5}, "kl": {"free_bits": 0.3}},
    {"auxiliary": {"total_correlation": 0.4, "code_usage": 0.7}, "training": {"weight_decay": 0.1}},
    {"reconstruction": {"rescale": "baseline", "token_weighted_weight": 0.0}, "training": {"clip_norm": None}},
)


def members(shared_dir, count, base, **settings):
    """(config, trial) of so many members, each of another arm and seed."""
    made = []
    for place in range(count):
        config = tiny(**merged(merged({}, base), ARMS[place % len(ARMS)]))
        trial = Trial(
            **{"seed": place // 3, "shared_dir": shared_dir, "evaluation": BRIEF, "baseline": tiny(**base)} | settings
        )
        made.append((config, trial))
    return made


def untimed(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def story(trial, ending):
    """All that a trial left behind, without the times."""
    end = untimed(ending) if isinstance(ending, dict) else (type(ending).__name__, str(ending))
    return [(row.step, untimed(row.metrics)) for row in trial.rows], end, trial.notes, trial.texts


def alone(config, trial):
    try:
        return story(trial, dict(train(config, trial)))
    except (TrialDiverged, TrialStopped, ValueError) as error:
        return story(trial, error)


def together(made):
    endings = [[] for _ in made]
    train_pack([PackMember(config, trial, ended.append) for (config, trial), ended in zip(made, endings, strict=True)])
    assert [len(ended) for ended in endings] == [1] * len(made)
    return [story(trial, ended[0]) for (_, trial), ended in zip(made, endings, strict=True)]


KINDS = {
    "transformer, continuous": {"model": DROPS},
    "gru, continuous": {"model": {"encoder": "gru", "decoder": "gru", **DROPS}},
    "gru and transformer, discrete": {"latent": "discrete", "model": {"encoder": "gru", "layers": 2, **DROPS}},
    "transformer and gru, odd sizes": {
        "latent": "discrete",
        "model": {"decoder": "gru", "width": 9, "heads": 3, "latent_groups": 3, "latent_categories": 5},
        "training": {"batch_size": 7},
        "temperature": {"straight_through": True},
    },
}


def steps_of(table, members, count=6):
    """What so many steps together give each: objectives, norms of gradients, parameters, what the optimiser keeps."""
    made = [set_up(trial_settings(config), table, trial, "cpu") for config, trial in members]
    setups, states = [setup for _, setup in made], [state for state, _ in made]
    trainings = [setup.settings.training for setup in setups]
    pack = ModelPack([state.model for state in states], trainings, [state.optimiser for state in states])
    taken = [train_together(pack, setups, [step] * len(setups)) for step in range(count)]
    return [
        (
            [(step.objectives[place], step.norms[place]) for step in taken],
            torch.nn.utils.parameters_to_vector(state.model.parameters()).tolist(),
            {name: value.tolist() for name, value in state.optimiser.items()},
        )
        for place, state in enumerate(states)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_together_have_the_bits_of_steps_alone(shared_dir, table, kind):
    with one_thread():
        everyone = members(shared_dir, 32, KINDS[kind])
        alone = [steps_of(table, [member])[0] for member in everyone]
        assert len({str(own) for own in alone}) == 32
        for size in (2, 5, 16, 32):
            assert steps_of(table, members(shared_dir, 32, KINDS[kind])[-size:]) == alone[-size:], size


def test_so_have_steps_that_make_no_logits(shared_dir, table, monkeypatch):
    calls = []
    without_logits = train_step.linear_masked_token_nll
    monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", 0)
    monkeypatch.setattr(cross_entropy, "BLOCK", 2)
    monkeypatch.setattr(
        train_step, without_logits.__name__, lambda *given, **named: calls.append(1) or without_logits(*given, **named)
    )
    base = KINDS["transformer and gru, odd sizes"]
    with one_thread():
        alone = [steps_of(table, [member])[0] for member in members(shared_dir, 5, base)]
        assert steps_of(table, members(shared_dir, 5, base)) == alone
    assert calls


def test_a_trial_reports_and_ends_as_it_does_alone(shared_dir):
    kind = KINDS["transformer and gru, odd sizes"]
    expected = [alone(*member) for member in members(shared_dir, 7, kind)]
    assert len({str(own[0][-1]) for own in expected}) == 7
    assert together(members(shared_dir, 7, kind)) == expected


def test_a_member_that_diverges_leaves_the_others_alone(shared_dir):
    base = {"training": {"steps": 40}}
    made = members(shared_dir, 3, base)
    made[1] = (tiny(**merged(merged({}, base), {"training": {"learning_rate": 1e6, "clip_norm": None}})), made[1][1])
    found = together(made)
    assert found[1][1][0] == "TrialDiverged"
    untouched = members(shared_dir, 3, base)
    assert [found[0], found[2]] == [alone(*untouched[0]), alone(*untouched[2])]
    again = Trial(seed=made[1][1].seed, shared_dir=shared_dir, evaluation=BRIEF)
    assert found[1] == alone(made[1][0], again)


def test_one_that_cannot_begin_ends_alone(shared_dir):
    made = members(shared_dir, 3, {})
    made[0] = (tiny(reconstruction={"rescale": "baseline"}), Trial(seed=0, shared_dir=shared_dir, evaluation=BRIEF))
    found = together(made)
    assert found[0][1][0] == "ValueError"
    assert found[1:] == [alone(*member) for member in members(shared_dir, 3, {})[1:]]


class Stop:
    """Ends a trial once it has reported a step."""

    def __init__(self, trial, at):
        self.trial, self.at = trial, at

    def __call__(self, row):
        self.trial.rows.append(row)
        if row.step >= self.at:
            raise TrialStopped


def test_stopped_members_go_on_in_another_pack(shared_dir, tmp_path):
    """One leaves half-way, then the pack is stopped; what is left goes on together, each from its own step."""
    base = {"model": DROPS}
    expected = [alone(*member) for member in members(shared_dir, 4, base)]

    def resumed():
        made = members(shared_dir, 4, base)
        for place, (_, trial) in enumerate(made):
            trial.checkpoint_dir = tmp_path / str(place)
        return made

    first = resumed()
    for (_, trial), at in zip(first, (3, 6, 7, 99), strict=True):
        trial.on_report = Stop(trial, at)
    stopped = together(first)
    assert [end[0] if isinstance(end, tuple) else "" for _, end, _, _ in stopped] == ["TrialStopped"] * 3 + [""]
    assert [rows[-1][0] for rows, *_ in stopped] == [3, 6, 7, 12]
    assert stopped[3] == expected[3]
    again = together(resumed())
    assert [rows[0][0] for rows, *_ in again] == [0, 7, 7, 12]  # the first had no checkpoint
    for place in range(4):
        assert dict(stopped[place][0]) | dict(again[place][0]) == dict(expected[place][0])
        assert again[place][1:] == expected[place][1:]


def test_what_can_train_together():
    base = pack_key(tiny())
    assert all(pack_key(tiny(**merged({}, arm))) == base for arm in ARMS)
    others = ({"model": {"width": 16}}, {"latent": "discrete"}, {"training": {"steps": 7}}, {"data": {"seed": 3}})
    for other in (
        *others,
        {"reference": {"seed": 1}},
        {"training": {"batch_size": 8}},
        {"temperature": {"initial": 2.0}},
    ):
        assert pack_key(tiny(**other)) not in {base, None}, other
    assert pack_key(tiny(training={"length_buckets": 2})) is None
    for name in ("synthetic_sequences", "sequence_file"):
        assert find_workload(name).pack_key is pack_key


def test_costs_are_measured_by_size(shared_dir):
    found = costs(tiny(**ARMS[6]), shared_dir, (4, 1, 2), "cpu")
    assert list(found) == [1, 2, 4]
    assert all(cost.step_s > 0 for cost in found.values())
    assert found[4].peak_bytes >= found[1].peak_bytes > 50e6


def test_the_global_streams_are_left_alone(shared_dir):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    together(members(shared_dir, 2, {}))
    assert torch.equal(torch.rand(3), expected)
