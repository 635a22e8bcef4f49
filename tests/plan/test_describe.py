# ruff: noqa: E501 - messages and edits of the example are one line

import json
from dataclasses import dataclass

import jsonschema
import pytest
from rich.console import Console

from ablate.plan.cost import Cost, duration
from ablate.plan.describe import conclusion, plan_json, plan_text, small_shares
from ablate.plan.difference import difference_json, difference_text, plan_difference
from ablate.plan.planning import make_plan
from tests.spec.example import STUDY, TYPED, edited


@dataclass(frozen=True)
class Scale:
    beta_eff: float
    mean_weight: float
    shares: dict[str, float]


@pytest.fixture
def plan(folder):
    return lambda *edits, **options: make_plan(folder.load(edited(*edits), **options), TYPED)


def printed(*parts):
    console = Console(width=200, force_terminal=False, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return [line.rstrip() for line in capture.get().splitlines()]


SMALL = ("  - leave_one_out: reconstruction.*_weight\n", "  - leave_one_out: '*.token_weighted_weight'\n")


def test_json(plan):
    made = plan(SMALL, ("kl.beta]", "kl.beta]\nseeds: {count: 2, start: 3}"), ("levels: 4", "levels: 2"))
    first = made.trials[0].trial_id
    found = plan_json(made, {first: "COMPLETE"})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["study"] == "which-terms"
    assert [(arm["arm"], arm["designs"]) for arm in found["arms"]] == [
        ("baseline", ["baseline"]),
        ("-token_weighted_weight", ["leave_one_out"]),
        ("token_aggregation=token_mean", ["one_at_a_time"]),
        ("beta=0.5", ["one_at_a_time"]),
        ("beta=2.0", ["one_at_a_time"]),
    ]
    assert {frozenset(arm["factors"]) for arm in found["arms"]} == {
        frozenset(factor.path for factor in made.spec.factors)
    }
    assert found["arms"][1]["factors"]["reconstruction.token_weighted_weight"] == 0.0
    assert found["trials"][0] == {"trial_id": first, "arm": "baseline", "seed": 3, "state": "COMPLETE"}
    assert [(trial["arm"], trial["seed"], trial["state"]) for trial in found["trials"][4:6]] == [
        ("beta=2.0", 3, "WAITING"),
        ("baseline", 4, "WAITING"),
    ]
    assert found["power"] == {"smallest_p": 0.5, "detectable_effect_sd": None, "can_reject": False}
    assert list(found) == ["study", "arms", "trials", "power"]


def test_json_of_a_study_that_can_conclude(plan):
    power = plan_json(plan(SMALL), {})["power"]
    assert (power["smallest_p"], power["can_reject"]) == (0.0078125, True)
    assert power["detectable_effect_sd"] == pytest.approx(1.6, abs=0.2)


def test_text(plan):
    made = plan(SMALL, ("kl.beta]", "kl.beta]\nseeds: {count: 2, start: 3}"), ("levels: 4", "levels: 2"))
    states = {made.trials[0].trial_id: "COMPLETE", made.trials[1].trial_id: "FAIL", made.trials[2].trial_id: "RUNNING"}
    assert printed(*plan_text(made, states, Cost(90.0, 0.5), [None] * 5)) == [
        "which-terms",
        "Which reconstruction terms can go?",
        "arm                           designs",
        "baseline                      baseline",
        "-token_weighted_weight        leave_one_out",
        "token_aggregation=token_mean  one_at_a_time",
        "beta=0.5                      one_at_a_time",
        "beta=2.0                      one_at_a_time",
        "β_eff, shares and distances: once the reference is trained, by `ablate terms FILE` or `ablate run FILE`.",
        "trials: 10 = 5 arms x 2 seeds (3 to 4); 2 done, 8 to do (1 COMPLETE, 1 FAIL, 1 RUNNING, 7 WAITING)",
        "cost: 8 trials x 90.0 s = 12.0 min of one worker, 0.1 GPU-hours",
        "test: maxt_signflip, alpha 0.05, a family of 4 arms, 2 pairs; smallest p 0.5; no difference can be found",
        "warning: the test can never reject: with 2 seeds the smallest p value is 0.5, above alpha 0.05; it takes 6 seeds",
    ]


def test_text_with_scales_notes_and_markup_in_names(plan):
    made = plan(
        ("question: Which reconstruction terms can go?", "question: '[red]x'"),
        ("  - leave_one_out: reconstruction.*_weight\n", "  - leave_one_out: '*.*_weight'\n"),
        ("raw_weight: 1.0,", "raw_weight: 0,"),
        ("[0.5x, 1x, 2x]", "[1, 2]"),
    )
    scales = [Scale(0.9, 2.0, {"a": 0.97, "b": 0.03, "c": 0.0}), *[None] * (len(made.arms) - 1)]
    text = printed(*plan_text(made, {}, Cost(None), scales))
    assert text[1] == "[red]x"
    assert text[2].split() == ["arm", "designs", "β_eff", "shares"]
    assert text[3].split() == ["baseline", "baseline", "0.9", "97%", "3%", "0%"]
    assert text[13] == "shares of the mean effective token weight: a, b, c"
    assert text[14] == "distance of each arm from the baseline: `ablate terms FILE` measures it."
    assert "cost: 80 trials; no trial is finished yet to tell how long one takes" in text
    assert "note: leave_one_out: raw_weight skipped, the baseline has it at `ablate_to` already" in text
    assert text[-1] == ("warning: b has 3.0 % of the baseline's effective token weight; leaving it out changes little")
    assert small_shares(made, [None] * len(made.arms)) == []


def test_conclusion(plan):
    assert conclusion(plan(SMALL, ("metrics:", "analysis: {looks: 2, alpha: 0.1}\nmetrics:"), seeds=12)) == (
        "test: maxt_signflip, alpha 0.1 / 2 looks, a family of 5 arms, 12 pairs; smallest p 0.00049; a difference of "
        "1.2 SD of the paired differences is found with probability 0.8"
    )


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (119, "119.0 s"), (120, "2.0 min"), (7200, "2.0 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text


# --- difference ---------------------------------------------------------------------------------


def test_difference(plan):
    old, new = plan(seeds=2), plan(("levels: 4", "levels: 7"), ("[token_sum, token_mean]", "[token_sum]"), seeds=3)
    found = plan_difference(old, new)
    old_ids, new_ids = ({trial.trial_id for trial in made.trials} for made in (old, new))
    assert {trial.trial_id for trial in found.kept} == old_ids & new_ids
    assert {trial.trial_id for trial in found.new} == new_ids - old_ids
    assert {trial.trial_id for trial in found.dropped} == old_ids - new_ids
    assert {(trial.arm.label, trial.seed) for trial in found.dropped} == {
        ("token_aggregation=token_mean", 0),
        ("token_aggregation=token_mean", 1),
    }
    assert printed(difference_text(found, Cost(None))) == [
        "arm                                                        kept  new  dropped",
        "baseline                                                      2    1",
        "-raw_weight                                                   2    1",
        "-distribution_normalized_weight                               2    1",
        "-example_inverse_surprisal_weight                             2    1",
        "-token_weighted_weight                                        2    1",
        "-normalized_concentration_corrected_token_weighted_weight     2    1",
        "-normalized_inverse_surprisal_token_weighted_weight           2    1",
        "beta=0.5                                                      2    1",
        "beta=1.5                                                      2    1",
        "beta=2.0                                                      2    1",
        "beta=0.75                                                          3",
        "beta=1.25                                                          3",
        "beta=1.75                                                          3",
        "token_aggregation=token_mean                                                2",
        "trials: 20 kept, 19 new, 2 dropped",
        "cost: 19 trials; no trial is finished yet to tell how long one takes",
    ]
    assert printed(difference_text(found, Cost(60.0, 1.0)))[-1] == (
        "cost: 19 trials; 19.0 min of one worker, 0.32 GPU-hours"
    )
    as_json = difference_json(found, Cost(60.0, 1.0))
    assert as_json["cost"] == {"worker_s": 1140.0, "gpu_hours": pytest.approx(19 / 60)}
    assert [len(as_json[name]) for name in ("kept", "new", "dropped")] == [20, 19, 2]
    assert as_json["dropped"][0] == {
        "trial_id": found.dropped[0].trial_id,
        "arm": "token_aggregation=token_mean",
        "seed": 0,
    }


def test_no_difference(plan):
    found = plan_difference(plan(), plan(("question: Which reconstruction terms can go?", "question: Another")))
    assert (found.new, found.dropped) == ((), ())
    assert len(found.kept) == 88


def test_plan_json_has_one_shape(plan):
    schema = {
        "type": "object",
        "required": ["study", "arms", "trials", "power"],
        "additionalProperties": False,
        "properties": {
            "study": {"type": "string"},
            "arms": {"items": {"required": ["arm", "designs", "factors"], "minProperties": 3, "maxProperties": 3}},
            "trials": {"items": {"required": ["trial_id", "arm", "seed", "state"], "maxProperties": 4}},
            "power": {"required": ["smallest_p", "detectable_effect_sd", "can_reject"], "maxProperties": 3},
        },
    }
    jsonschema.validate(plan_json(plan(), {}), schema)
    assert STUDY.startswith("version: 1")
