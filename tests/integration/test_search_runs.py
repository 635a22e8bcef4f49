"""Searches from end to end: killed at any write they go on as if never stopped; stopped, confirmed, tuned, extended."""

import math
from collections import Counter

import optuna
import pytest

from ablate.plan.searches import CONFIRM_SEEDS, TUNING_SEEDS
from tests.integration.test_kill_points import LEDGER, run

pytestmark = pytest.mark.slow

RECORD = "ablate.record.optuna_search:SearchRecord"
WRITES = [
    (f"{RECORD}.warm_start", 1, "after"),
    (f"{RECORD}.enter", 1, "before"),
    (f"{RECORD}.enter", 1, "after"),
    (f"{LEDGER}.add", 2, "after"),
    (f"{RECORD}.report", 2, "after"),
    (f"{RECORD}.tell", 1, "before"),
    (f"{RECORD}.tell", 1, "after"),
    (f"{RECORD}.extend", 1, "after"),
    (f"{LEDGER}.finish", 3, "after"),
]
SEARCH = """
study: toy
workload: toy_workload:train
baseline: {{x: 4.0, fault: none, steps: 4, sleep: 0.0, log: {log}}}
factors: {{x: {{min: 0, max: 8, ablate_to: 8}}}}
constraints: ["x <= 7 or x == 8"]
designs:
  - leave_one_out: x
  - search:
      {{over: x, sampler: tpe, trials: TRIALS, objective: loss, seeds: 2, seed: 1, confirm: {{top: 2, seeds: 3}}}}
early_stop: {{kind: median, startup_trials: 2}}
seeds: {{count: 3}}
metrics: {{primary: {{name: loss}}}}
"""
NUISANCE = """
study: toy
workload: toy_workload:train
baseline: {{x: 4.0, fault: none, steps: 2, sleep: 0.0, log: {log}}}
factors: {{x: {{min: 1, max: 8}}, fault: [none, other]}}
designs: [{{one_at_a_time: fault}}]
nuisance: {{over: x, sampler: random, trials: 3, objective: loss, seeds: 2}}
seeds: {{count: 2}}
metrics: {{primary: {{name: loss}}}}
"""


def proposals(place, search="search-1"):
    study = optuna.load_study(study_name=f"toy/{search}", storage=f"sqlite:///{place.path}/runs/toy/optuna.db")
    return [(t.number, t.state.name, t.params, t.values, t.user_attrs) for t in study.trials]


def undisturbed(place, tmp_path_factory, text):
    other = type(place)(tmp_path_factory.mktemp("undisturbed"), place.databases)
    (other.path / "toy_workload.py").write_text((place.path / "toy_workload.py").read_text())
    other.write(text)
    other.lend("toy")
    run(other)
    return other


@pytest.mark.parametrize(
    "writes", [WRITES[2::9], pytest.param(WRITES, marks=pytest.mark.campaign)], ids=["some", "all"]
)
def test_a_killed_search_ends_as_if_it_had_never_been_stopped(place, tmp_path_factory, writes):
    text = SEARCH.format(log=place.path / "executions.txt").replace("TRIALS", "6")
    place.write(text)
    place.lend("toy")
    run(place, writes)
    other = undisturbed(place, tmp_path_factory, text)
    assert proposals(place) == proposals(other)
    assert place.final_metrics() == pytest.approx(other.final_metrics(), nan_ok=True)
    assert place.ablate("check", "toy")[0] == "the records agree\n"

    study = place.study()
    frame = study.trials()
    assert not study.plan.pending
    assert len(frame) == frame["trial_id"].nunique()
    assert set(frame["state"]) == {"COMPLETE", "PRUNED"}
    ended = {number: state for number, state, _, _, attributes in proposals(place) if "arm" in attributes}
    stopped = frame.loc[frame["state"] == "PRUNED"]
    assert Counter(ended.values())["PRUNED"] == len(stopped) > 0
    for arm in stopped["arm"]:  # stopped on its first seed, with the value it had; the others are not run
        assert list(frame.loc[frame["arm"] == arm, "seed"]) == [0]
    for number, state, _, values, attributes in proposals(place):
        own = frame.loc[frame["arm"] == f"search-1/{number}", "metric.loss"]
        if state == "COMPLETE" and "warm_start" not in attributes:
            assert values == [math.fsum(own) / 2]
            assert len(attributes["trial_ids"]) == 2
    warm = [(attributes["arm"], values) for *_, values, attributes in proposals(place) if "warm_start" in attributes]
    assert [arm for arm, _ in warm] == ["baseline", "-x"]
    assert warm[0][1] == [frame.loc[(frame["arm"] == "baseline") & (frame["seed"] < 2), "metric.loss"].mean()]

    confirmed = frame.loc[frame["arm"].str.startswith("confirm-1/")]
    assert set(confirmed["seed"]) == set(range(CONFIRM_SEEDS, CONFIRM_SEEDS + 3))
    best = sorted(
        (values, number)
        for number, state, _, values, attributes in proposals(place)
        if state == "COMPLETE" and "warm_start" not in attributes
    )
    assert list(confirmed["arm"].unique()) == ["confirm-1/baseline", *(f"confirm-1/{n}" for _, n in best[:2])]

    place.write(text.replace("trials: 6", "trials: 8"))  # extended: what is there stays
    before = proposals(place)
    run(place)
    assert proposals(place)[: len(before)] == before
    assert sum("arm" in attributes and "warm_start" not in attributes for *_, attributes in proposals(place)) == 8


@pytest.mark.campaign
def test_nuisance_factors_are_tuned_for_each_arm(place, tmp_path_factory):
    text = NUISANCE.format(log=place.path / "executions.txt")
    place.write(text)
    place.lend("toy")
    run(place, [(f"{RECORD}.enter", 2, "after"), (f"{RECORD}.tell", 3, "after"), (f"{LEDGER}.add", 2, "before")])
    other = undisturbed(place, tmp_path_factory, text)
    assert place.final_metrics() == other.final_metrics()
    study = place.study()
    frame = study.trials()
    assert set(frame["state"]) == {"COMPLETE"}
    for arm in ("baseline", "fault=other"):
        tried = frame.loc[frame["arm"].str.startswith(f"tune/{arm}/")]
        assert set(tried["seed"]) == {TUNING_SEEDS, TUNING_SEEDS + 1}
        best = tried.groupby("config.x")["metric.loss"].mean().idxmin()
        own = frame.loc[frame["arm"] == arm]
        assert set(own["config.x"]) == {best}
        assert list(own["seed"]) == [0, 1]
    assert len(frame) == 2 * 3 * 2 + 2 * 2


def test_what_is_stopped_early_frees_its_worker(place):
    text = SEARCH.format(log=place.path / "executions.txt").replace("TRIALS", "6").replace("sleep: 0.0", "sleep: 0.02")
    place.write(text)
    place.ablate("run", "study.yaml")
    study = place.study()
    states = Counter(study.trials()["state"])
    assert not study.plan.pending
    assert states.keys() == {"COMPLETE", "PRUNED"}
    assert states["PRUNED"] > 0
