"""Searches as the plan has them: the space, the arms that answers make, winners, what is to come."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.errors import SpecError
from ablate.plan.model import Proposal, SearchResult
from ablate.plan.planning import Planner, make_plan
from ablate.plan.searches import CONFIRM_SEEDS, TUNING_SEEDS, ranked, tuned_values
from ablate.plan.space import Answer, Choice, Range
from tests.spec.example import FREE

TERMS = ("raw_weight", "distribution_normalized_weight", "token_weighted_weight")
STUDY = """
study: hunt
workload: free
baseline:
  a: {x: 1.0, y: 2, mode: plain, deep: 0}
factors:
  a.x: {min: 0.5, max: 8, distribution: log_uniform, ablate_to: 0.5}
  a.y: {min: 1, max: 9}
  a.mode: [plain, rich, {nested: 1}]
  a.deep: {values: [0, 1, 2], when: "a.mode == 'rich'"}
designs:
  - leave_one_out: a.x
  - search: SEARCH
seeds: {count: 4}
metrics: {primary: {name: eval/loss}, secondary: [{name: eval/size, goal: maximize}]}
"""
ALL = "{over: [a.*], trials: 5, seeds: 2}"


def planner_of(folder, search=ALL, *edits, text=STUDY):
    text = text.replace("SEARCH", search)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return Planner(folder.load(text), FREE)


def drawn(seed):
    rng = random.Random(seed)

    def suggest(dim):
        if isinstance(dim, Choice):
            return rng.choice(dim.options)
        return rng.randint(int(dim.low), int(dim.high)) if dim.integer else rng.uniform(dim.low, dim.high)

    return suggest


def proposal(number, value, **changes):
    values = {"a.x": float(number + 2)}
    objectives = None if value is None else tuple(value) if isinstance(value, tuple) else (value,)
    made = {"state": "COMPLETE", "values": values, "shares": {}, "seeds": (0, 1), "arm": f"search-1/{number}"}
    return Proposal(number=number, trial_ids=(), objectives=objectives, **(made | changes))


# --- the space ----------------------------------------------------------------------------------


def test_dimensions_are_ranges_and_options(folder):
    (task,) = planner_of(folder).searches
    assert task.space.dimensions == {
        "a.x": Range("a.x", 0.5, 8.0, log=True),
        "a.y": Range("a.y", 1, 9, integer=True),
        "a.mode": Choice("a.mode", ('"plain"', '"rich"', '{"nested":1}')),
        "a.deep": Choice("a.deep", (0, 1, 2)),
    }
    (task,) = planner_of(folder, "{over: [a.*], sampler: grid}").searches
    assert [len(dim.options) for dim in task.space.dimensions.values()] == [5, 5, 3, 3]
    assert task.space.size == 225


@given(st.integers(0, 10**6))
def test_a_factor_is_asked_for_only_where_it_varies(folder_factory, seed):
    planner = planner_of(folder_factory)
    (task,) = planner.searches
    answer = task.space.ask(drawn(seed))
    assert ("a.deep" in answer.values) == (answer.values["a.mode"] == "rich")
    arm = planner.propose(task, 3, answer, [])
    assert arm.label == "search-1/3"
    assert arm.config["a"] == {"x": 1.0, "y": 2, "mode": "plain", "deep": 0} | {
        path.removeprefix("a."): value for path, value in answer.values.items()
    }
    located = task.space.locate(arm.factors)
    assert located.keys() == answer.values.keys()
    assert located["a.x"] == answer.values["a.x"]


def test_factors_that_move_together_have_one_dimension(folder):
    together = ("designs:", "together: [[a.x, a.y]]\ndesigns:")
    (task,) = planner_of(
        folder, "{over: [a.x, a.y]}", together, (", ablate_to: 0.5", ""), ("  - leave_one_out: a.x\n", "")
    ).searches
    assert list(task.space.dimensions) == ["a.x"]
    assert task.space.ask(lambda dim: 2.0).values == {"a.x": 2.0, "a.y": 5}
    assert task.space.ask(lambda dim: 8.0).values == {"a.x": 8.0, "a.y": 9}
    assert task.space.locate({"a.x": 2.0, "a.y": 5}) == {"a.x": 2.0}
    assert task.space.locate({"a.x": 2.0, "a.y": 6}) is None


# --- simplex ------------------------------------------------------------------------------------

SIMPLEX = """
study: shares
workload: free
baseline:
  reconstruction:
    {raw_weight: 1.0, distribution_normalized_weight: 1.0, token_weighted_weight: 1.0, rescale: null, shares: null}
factors: {reconstruction.*_weight: {min: 0, max: 2, ablate_to: 0}}
designs: [{search: {over: reconstruction.*_weight, simplex: true, sampler: random, trials: 2}}]
metrics: {primary: {name: eval/loss}}
"""


def test_shares_are_uniform_over_the_simplex(folder):
    (task,) = Planner(folder.load(SIMPLEX), FREE).searches
    answer = task.space.ask(drawn(0))
    assert answer.values == {}
    shares = [list(task.space.ask(drawn(seed)).shares.values()) for seed in range(4000)]
    assert all(math.isclose(sum(three), 1) and min(three) >= 0 for three in shares)
    for first in zip(*shares, strict=True):  # a Dirichlet(1, 1, 1) share is Beta(1, 2): mean 1/3, variance 1/18
        mean = sum(first) / len(first)
        assert mean == pytest.approx(1 / 3, abs=0.02)
        assert sum((share - mean) ** 2 for share in first) / len(first) == pytest.approx(1 / 18, abs=0.005)


def test_a_simplex_arm_is_symbolic_and_relative_to_the_baseline(folder):
    planner = Planner(folder.load(SIMPLEX), FREE)
    (task,) = planner.searches
    answer = task.space.ask(drawn(1))
    arm = planner.propose(task, 0, answer, [])
    shares = {path.rpartition(".")[2]: share for path, share in answer.shares.items()}
    assert arm.config["reconstruction"] == {**dict.fromkeys(TERMS, 1.0), "rescale": None, "shares": shares}
    assert arm.relative
    assert set(arm.factors.values()) == {None}
    one, other = (planner.trials_of(planner.propose(task, 0, a, []), [0])[0].trial_id for a in (answer, answer))
    assert one == other


def test_a_group_shares_its_part_equally(folder):
    together = "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]"
    text = SIMPLEX.replace("designs:", f"{together}\ndesigns:")
    (task,) = Planner(folder.load(text), FREE).searches
    raw, normalized, weighted = task.space.ask(drawn(2)).shares.values()
    assert raw == normalized
    assert raw + normalized + weighted == pytest.approx(1)


# --- constraints --------------------------------------------------------------------------------


def test_what_breaks_a_constraint_is_no_arm(folder):
    planner = planner_of(folder, ALL, ("designs:", 'constraints: ["a.x * a.y <= 12"]\ndesigns:'))
    (task,) = planner.searches
    assert planner.propose(task, 0, Answer({"a.x": 8.0, "a.y": 9}, {}), []) == "breaks a.x * a.y <= 12"
    assert planner.propose(task, 0, Answer({"a.x": 0.5, "a.y": 9}, {}), []).label == "search-1/0"


def test_an_empty_space_is_named_before_anything_starts(folder):
    with pytest.raises(SpecError) as caught:
        planner_of(
            folder,
            "{over: [a.x], trials: 3}",
            ("designs:", 'constraints: ["a.x == 1 or a.x == 0.5"]\ndesigns:'),
        )
    (problem,) = caught.value.problems
    assert str(problem).endswith(
        "designs[1].search.over: 1000 proposals in a row cannot be trained; the space is empty or all but empty: "
        "breaks a.x == 1 or a.x == 0.5 (1000)"
    )
    assert problem.line == 14


# --- the plan -----------------------------------------------------------------------------------


def test_what_is_to_come_is_counted(folder):
    plan = planner_of(folder, "{over: [a.*], trials: 5, seeds: 2, confirm: {top: 2, seeds: 3}}").plan({})
    assert [(part.what, part.trials) for part in plan.pending] == [
        ("5 proposals of search-1 x 2 seeds", 10),
        ("confirm-1, the winners of search-1 again", 9),
    ]
    assert [arm.label for arm in plan.arms] == ["baseline", "-x"]
    assert len(plan.trials) == 8


def test_proposals_and_winners_become_arms(folder):
    planner = planner_of(folder, "{over: [a.*], trials: 4, seeds: 2, confirm: {top: 2, seeds: 3}}")
    values = [3.0, 1.0, None, 2.0]
    proposals = [proposal(number, value, state="COMPLETE" if value else "FAIL") for number, value in enumerate(values)]
    plan = planner.plan({"search-1": SearchResult((*proposals, proposal(9, 0.0, arm="-x", warm_start=True)))})
    assert [arm.label for arm in plan.arms] == [
        "baseline", "-x", *(f"search-1/{n}" for n in range(4)), "confirm-1/baseline", "confirm-1/1", "confirm-1/3",
    ]  # fmt: skip
    assert not plan.pending
    seeds = {trial.seed for trial in plan.trials if trial.arm.role == "confirm"}
    assert seeds == set(range(CONFIRM_SEEDS, CONFIRM_SEEDS + 3))
    assert len(plan.trials) == 2 * 4 + 4 * 2 + 3 * 3
    assert len({trial.trial_id for trial in plan.trials}) == len(plan.trials)
    confirmed = next(arm for arm in plan.arms if arm.label == "confirm-1/1")
    assert confirmed.config["a"]["x"] == 3.0
    assert plan.power == planner.plan({}).power


def test_an_arm_that_is_compared_already_is_not_trained_twice(folder):
    planner = planner_of(folder)
    (task,) = planner.searches
    plan = planner.plan({})
    arm = planner.propose(task, 0, Answer({"a.x": 0.5}, {}), plan.arms)
    assert arm.label == "-x"
    plan = planner.plan({"search-1": SearchResult((proposal(0, 1.0, arm="-x", values={"a.x": 0.5}),))})
    assert [(arm.label, arm.designs) for arm in plan.arms] == [
        ("baseline", ("baseline",)),
        ("-x", ("leave_one_out", "search-1")),
    ]
    assert len(plan.trials) == 8


def test_more_proposals_and_seeds_keep_every_trial(folder):
    result = {"search-1": SearchResult(tuple(proposal(number, 1.0) for number in range(5)))}
    before = planner_of(folder).plan(result)
    after = planner_of(folder, ALL.replace("5", "9"), ("count: 4", "count: 6")).plan(result)
    assert {trial.trial_id for trial in before.trials} <= {trial.trial_id for trial in after.trials}
    assert [part.trials for part in after.pending] == [8]


# --- winners ------------------------------------------------------------------------------------


def test_winners_are_complete_distinct_and_not_the_baseline(folder):
    (task,) = planner_of(folder).searches
    found = [
        proposal(0, 5.0),
        proposal(1, 1.0, arm="baseline"),
        proposal(2, 2.0, state="PRUNED"),
        proposal(3, 3.0),
        proposal(4, 3.0, arm="search-1/3"),
        proposal(5, 4.0, reason="infeasible"),
        proposal(6, 0.0, warm_start=True),
    ]
    assert [best.number for best in ranked(task, SearchResult(tuple(found)))] == [3, 0]


def test_several_objectives_are_ranked_by_fronts(folder):
    search = "{over: [a.x], objective: [{name: s/a, goal: minimize}, {name: s/b, goal: maximize}]}"
    (task,) = planner_of(folder, search).searches
    values = [(1.0, 1.0), (2.0, 2.0), (3.0, 1.5), (0.5, 0.5), (4.0, 0.0)]
    result = SearchResult(tuple(proposal(number, pair) for number, pair in enumerate(values)))
    assert [best.number for best in ranked(task, result)] == [3, 0, 1, 2, 4]


# --- nuisance -----------------------------------------------------------------------------------

NUISANCE = ("seeds: {count: 4}", "seeds: {count: 4}\nnuisance: {over: a.y, trials: 2, seeds: 2}")


def test_each_arm_is_tuned_on_seeds_of_its_own_and_compared_with_the_best(folder):
    planner = planner_of(folder, "X", ("  - search: X\n", ""), NUISANCE, text=STUDY)
    assert [task.name for task in planner.tunings] == ["nuisance/baseline", "nuisance/-x"]
    plan = planner.plan({})
    assert plan.trials == ()
    assert [part.trials for part in plan.pending] == [4, 4, 4, 4]
    tuned = {
        f"nuisance/{arm}": SearchResult(
            tuple(
                proposal(n, v, values={"a.y": n + 3}, arm=f"tune/{arm}/{n}", seeds=(TUNING_SEEDS, TUNING_SEEDS + 1))
                for n, v in enumerate(values)
            )
        )
        for arm, values in {"baseline": (1.0, 2.0), "-x": (2.0, 1.0)}.items()
    }
    plan = planner.plan(tuned)
    by_label = {arm.label: arm for arm in plan.arms}
    assert by_label["baseline"].config["a"] == {"x": 1.0, "y": 3, "mode": "plain", "deep": 0}
    assert by_label["-x"].config["a"] == {"x": 0.5, "y": 4, "mode": "plain", "deep": 0}
    assert by_label["tune/-x/0"].config["a"]["y"] == 3
    assert by_label["tune/-x/0"].config["a"]["x"] == 0.5
    reported = {trial.seed for trial in plan.trials if trial.arm.role != "tuning"}
    chosen = {trial.seed for trial in plan.trials if trial.arm.role == "tuning"}
    assert reported == {0, 1, 2, 3}
    assert chosen == {TUNING_SEEDS, TUNING_SEEDS + 1}


def test_an_arm_whose_tuning_failed_keeps_its_settings(folder):
    planner = planner_of(folder, "X", ("  - search: X\n", ""), NUISANCE, text=STUDY)
    failed = SearchResult(tuple(proposal(n, None, state="FAIL") for n in range(2)))
    assert tuned_values(planner.tunings[0], failed) == {}


def test_seeds_that_choose_never_report(folder):
    with pytest.raises(SpecError) as caught:
        planner_of(folder, "{over: [a.x], confirm: {top: 1}}", ("{count: 4}", f"{{count: 4, start: {CONFIRM_SEEDS}}}"))
    assert "the block ends at 1000000003; with confirm or nuisance it stays below 1000000000" in str(caught.value)


# --- what varies with the seed ------------------------------------------------------------------


def test_each_seed_has_data_of_its_own_paired_over_arms(folder):
    text = """
study: drawn
workload: free
baseline: {x: 1, data: {seed: 7, split_seed: 1}, reference: {seed: 0}}
factors: {x: [1, 2, 3]}
designs: [{grid: x}]
seeds: {count: 3, vary: VARY}
metrics: {primary: {name: loss}}
"""
    plain = make_plan(folder.load(text.replace("VARY", "[training]")), FREE)
    assert all(trial.config is trial.arm.config for trial in plain.trials)
    plan = make_plan(folder.load(text.replace("VARY", "[training, data, split, reference]")), FREE)
    for trial in plan.trials:
        assert trial.config == trial.arm.config | {
            "data": {"seed": 7 + trial.seed, "split_seed": 1 + trial.seed},
            "reference": {"seed": trial.seed},
        }
    ids = [trial.trial_id for trial in plan.trials]
    assert len(set(ids)) == 9
    shared = {trial.trial_id for trial in plain.trials}
    assert shared & set(ids) == {trial.trial_id for trial in plan.trials if trial.seed == 0}


@pytest.mark.parametrize(("share", "warned"), [(1, True), (0.5, False)])
def test_a_file_that_is_used_whole_is_the_same_for_every_seed(folder, share, warned):
    text = f"""
study: drawn
workload: free
baseline: {{x: 1, data: {{seed: 0, share: {share}}}}}
factors: {{x: [1, 2]}}
designs: [{{grid: x}}]
seeds: {{count: 6, vary: [data]}}
metrics: {{primary: {{name: loss}}}}
"""
    warnings = make_plan(folder.load(text), FREE).warnings
    assert any("every seed has the same data" in warning for warning in warnings) == warned


def test_more_seeds_than_the_study_has_are_said(folder):
    planners = [planner_of(folder, f"{{over: [a.*], trials: 5, seeds: {seeds}}}") for seeds in (4, 9)]
    assert [task.seeds for planner in planners for task in planner.searches] == [(0, 1, 2, 3)] * 2
    said = [[note for note in planner.plan({}).notes if "seeds asked for" in note] for planner in planners]
    assert said == [[], ["search-1: 9 seeds asked for; trained on the study's 4"]]
