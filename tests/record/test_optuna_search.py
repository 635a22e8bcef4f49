"""Every sampler over a space with conditions and constraints: in it, reproducible, resumed as if never stopped."""

import json
import math
import shutil

import optuna
import pytest
from optuna.trial import TrialState

from ablate.errors import StudyError
from ablate.plan.planning import Planner
from ablate.record.optuna_search import SAMPLERS, SearchRecord, make_pruner, search_results
from ablate.record.optuna_storage import Ledger, open_storage
from ablate.spec.models import EarlyStop
from tests.spec.example import FREE, Folder

IDS = ["0123456789ab", "ba9876543210"]
CHOICES = """
study: hunt
workload: free
baseline: {x: 1.0, y: 2, mode: plain, deep: 0}
factors:
  x: {min: 0.5, max: 8, distribution: log_uniform, levels: 3}
  y: {min: 1, max: 9, levels: 3}
  mode: [plain, rich]
  deep: {values: [0, 1, 2], when: "mode == 'rich'"}
constraints: ["x * y <= 40"]
designs: [{search: {sampler: SAMPLER, over: OVER, trials: 20, objective: loss, seed: 3}}]
metrics: {primary: {name: loss}}
"""


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """A database without a study: making one takes a second."""
    path = tmp_path_factory.mktemp("empty")
    open_storage(None, path).remove_session()
    return path / "optuna.db"


@pytest.fixture
def folder(tmp_path, monkeypatch, empty):
    shutil.copy(empty, tmp_path)
    return Folder(tmp_path, monkeypatch)


class Search:
    """A search without trainings: the objective is a function of the arm."""

    def __init__(self, folder, sampler, *, pruner=None, over=None, **edits):
        over = over or ("[x, y]" if sampler == "cmaes" else "['*']")
        text = CHOICES.replace("SAMPLER", sampler).replace("OVER", over)
        for old, new in edits.get("edits", ()):
            text = text.replace(old, new)
        self.planner = Planner(folder.load(text), FREE)
        (self.task,) = self.planner.searches
        self.folder = folder
        self.pruner = pruner or make_pruner(EarlyStop(), None, None)
        self.ledger = Ledger.create(None, folder.path, "hunt", "minimize")
        self.open()

    def open(self):
        """As a new process would."""
        private = self.folder.path / "private.jsonl"
        self.record = SearchRecord(
            self.ledger.storage, "hunt/search-1", self.task.settings, self.task.space, self.pruner, private
        )

    def step(self):
        """One proposal that can be trained, told its loss; or nothing where the space has ended."""
        while not self.record.exhausted:
            number, answer = self.record.ask()
            made = self.planner.propose(self.task, number, answer, [])
            if isinstance(made, str):
                self.record.reject(number, answer, made)
                continue
            self.record.enter(number, answer, made.label, (0, 1), IDS)
            values = made.config
            loss = (math.log(values["x"]) - 1) ** 2 + (values["y"] - 4) ** 2 / 9 + values["deep"] * 0.1
            if number % 7 == 6:
                self.record.tell(number, "FAIL", None, "diverged")
            else:
                self.record.tell(number, "COMPLETE", [loss] * len(self.task.settings.objectives))
            return
        return

    def sequence(self):
        return [(p.number, p.state, dict(p.params), p.objectives, p.reason) for p in self.record.proposals()]

    def stored(self):
        (result,) = search_results(self.ledger, "hunt", ["search-1"]).values()
        return [(p.number, p.state, dict(p.params), p.objectives, p.reason) for p in result.proposals]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler_goes_on_as_if_it_had_never_been_stopped(tmp_path, monkeypatch, empty, sampler):
    searches = []
    for path in (tmp_path / "a", tmp_path / "b"):
        path.mkdir()
        shutil.copy(empty, path)
        searches.append(Search(Folder(path, monkeypatch), sampler))
    straight, broken = searches
    for index in range(12):
        straight.step()
        broken.step()
        if index % 3 == 1:
            broken.open()
    assert straight.sequence() == broken.sequence() == broken.stored() == straight.stored()
    own = [p for p in straight.record.proposals() if p.own]
    assert len(own) == 12
    for proposal in own:
        arm = straight.planner.propose(straight.task, proposal.number, proposal_answer(proposal), [])
        assert arm.config["x"] * arm.config["y"] <= 40
        assert ("deep" in proposal.params) <= (arm.config["mode"] == "rich")


def proposal_answer(proposal):
    from ablate.plan.space import Answer

    return Answer(dict(proposal.values), dict(proposal.shares))


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=pytest.mark.campaign), "cmaes"])
def test_a_sampler_learns(folder, sampler):
    search = Search(folder, sampler, over="[x, y]")
    for _ in range(30):
        search.step()
    values = [p.objectives[0] for p in search.record.proposals() if p.own and p.objectives]
    assert sum(values[-8:]) < sum(values[:8]) / 2


@pytest.mark.parametrize("sampler", ["grid", "brute_force"])
def test_a_finite_space_is_proposed_whole_and_then_ended(folder, sampler):
    search = Search(folder, sampler, over="[x, y, mode]", edits=[("trials: 20", "trials: 99")])
    for _ in range(99):
        search.step()
    own = [p for p in search.record.proposals() if p.own]
    refused = [p for p in search.record.proposals() if p.reason == "infeasible"]
    assert search.record.exhausted
    assert len({json.dumps(dict(p.params)) for p in own}) == len(own) == 16  # 3 x 3 x 2 less those over the constraint
    assert len(refused) == 2
    assert search.task.complete(search_results(search.ledger, "hunt", ["search-1"])["search-1"])
    search.open()
    assert search.record.exhausted


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "qmc"])
def test_what_cannot_be_trained_is_told_to_samplers_that_learn_from_it(folder, sampler):
    search = Search(folder, sampler)
    for _ in range(15):
        search.step()
    study = optuna.load_study(study_name="hunt/search-1", storage=search.ledger.storage)
    refused = [trial for trial in study.trials if "infeasible" in trial.user_attrs]
    learns = sampler in {"tpe", "nsga2"}
    assert refused
    for trial in refused:
        assert trial.user_attrs["infeasible"] == "breaks x * y <= 40"
        assert trial.state == (TrialState.PRUNED if learns else TrialState.FAIL)
        assert trial.values is None
    if learns:
        assert {trial.constraints["feasible"] for trial in refused} <= {1.0}
        assert {trial.constraints["feasible"] for trial in study.trials if trial not in refused} == {0.0}


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "nsga3", "random"])
def test_several_objectives(folder, sampler):
    two = ("objective: loss", "objective: [{name: loss, goal: minimize}, {name: size, goal: maximize}]")
    search = Search(folder, sampler, edits=[two])
    for _ in range(12):
        search.step()
    assert [len(p.objectives) for p in search.record.proposals() if p.state == "COMPLETE"] == [2] * sum(
        p.state == "COMPLETE" for p in search.record.proposals()
    )
    study = optuna.load_study(study_name="hunt/search-1", storage=search.ledger.storage)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]


@pytest.mark.parametrize("kind", ["asha", "median", "hyperband"])
def test_what_is_behind_is_said_to_be(folder, kind):
    stop = EarlyStop(kind=kind, reduction_factor=2, startup_trials=2)
    search = Search(folder, "random", pruner=make_pruner(stop, 10, 80), edits=[("trials: 20", "trials: 99")])
    stopped = 0
    for index in range(12):
        number, answer = search.record.ask()
        search.record.enter(number, answer, f"search-1/{number}", (0,), IDS[:1])
        for step in range(10, 90, 10):
            level = 1.0 if index % 3 == 0 else 9.0
            if search.record.report(number, step, level - index / 100):
                search.record.tell(number, "PRUNED", None)
                stopped += 1
                break
            if index == 5:
                search.open()  # a kill in the middle
        else:
            search.record.tell(number, "COMPLETE", [level])
    assert 2 <= stopped <= 10
    for proposal in search.record.proposals():
        if proposal.state == "PRUNED":
            level = 1.0 if proposal.number % 3 == 0 else 9.0
            assert proposal.objectives == (level - proposal.number / 100,)
    assert [p.state for p in search.record.proposals()] == [state for _, state, *_ in search.stored()]
    assert all(p.state == "COMPLETE" for p in search.record.proposals()[::3])


def test_a_sampler_is_told_of_arms_that_were_trained_before(folder):
    search = Search(folder, "tpe")
    search.record.warm_start({"x": 1.0, "y": 2, "mode": "plain"}, "baseline", (0, 1), IDS, [0.25])
    (warm,) = search.record.proposals()
    assert (warm.arm, warm.objectives, warm.warm_start, warm.own) == ("baseline", (0.25,), True, False)
    search.step()
    assert len([p for p in search.record.proposals() if p.own]) == 1
    assert search.stored() == search.sequence()


def test_another_search_under_the_same_name_is_refused(folder):
    search = Search(folder, "tpe")
    search.record.warm_start({"x": 1.0, "y": 2, "mode": "plain"}, "baseline", (0, 1), IDS, [0.25])
    with pytest.raises(StudyError) as caught:
        Search(folder, "gp", edits=[("max: 9", "max: 10")])
    assert str(caught.value) == (
        "hunt/search-1 has 1 proposals, made with other dimensions, sampler; proposals of two searches cannot go on as "
        "one: put the old one back, or give the study another name"
    )
    Search(folder, "tpe", edits=[("trials: 20", "trials: 30")])


def test_nothing_pickled_is_read_from_the_store(folder):
    search = Search(folder, "cmaes")
    for _ in range(8):
        search.step()
    study_id = search.ledger.storage.get_study_id_from_name("hunt/search-1")
    stored = search.ledger.storage.get_all_trials(study_id)
    assert not [key for trial in stored for key in trial.system_attrs if key.startswith("cma:")]
    assert (folder.path / "private.jsonl").exists()
    last = stored[-1]._trial_id
    search.ledger.storage.create_new_trial(
        study_id,
        template_trial=optuna.trial.create_trial(
            state=TrialState.COMPLETE, value=1.0, system_attrs={"cma:optimizer": "80049500"}
        ),
    )
    assert last
    search.open()
    search.step()
