# ruff: noqa: E501 - messages and edits of the example are one line

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ablate.errors import SpecError
from ablate.plan import planning
from ablate.plan.configurations import Configurations
from ablate.plan.designs import DESIGNS, Moved, Row
from ablate.plan.identity import IDENTITY_VERSION, trial_id
from ablate.spec.designs import units
from ablate.spec.dumping import dump_study
from ablate.spec.loading import load_study
from ablate.spec.paths import canonical
from tests.spec.example import FREE, FREE_STUDY, STUDY, TYPED, Config, Workload, edited, lookup


def plan_of(folder, text=STUDY, workload=TYPED, **options):
    return planning.make_plan(folder.load(text, **options), workload)


def ids(plan):
    return [trial.trial_id for trial in plan.trials]


# --- identity -----------------------------------------------------------------------------------


def written_out(**content):
    """The identity as STUDY.md has it, by the standard library alone."""
    text = json.dumps({"identity": 1, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_the_identity_is_the_hash_of_all_that_matters(folder):
    plan = plan_of(folder, edited(("metrics:", "controls: {rescaled: true, aa: 1}\nmetrics:")))
    evaluation = {"every": 0.1, "iwae_samples": 64, "iwae_examples": 512}
    baseline = Config().model_dump(mode="json")
    assert IDENTITY_VERSION == 1
    for trial in plan.trials:
        assert trial.trial_id == written_out(
            workload="typed",
            data="{'examples': 4096, 'seed': 0}",
            configuration=trial.arm.config,
            evaluation=evaluation,
            seed=trial.seed,
            replicate=trial.arm.replicate,
            baseline=baseline if trial.arm.relative else None,
        )
    assert len(set(ids(plan))) == len(plan.trials) == 8 * (1 + 6 + 4 + 6 + 1)


def test_ids_are_what_they_have_always_been():
    """Expected: `printf '{"baseline":null,"configuration":{"a":1.0,"b":[null,"\\u00e9"]},…}' | sha256sum`."""
    content = dict(workload="w", fingerprint="f", config={"a": 1.0, "b": [None, "é"]}, evaluation={"every": 0.1})  # noqa: C408
    assert trial_id(**content, seed=3) == "30d59c31887a"
    assert trial_id(**content, seed=3, replicate=1) == "e70bf5fa2cce"
    assert trial_id(**content, seed=3, baseline={"a": 2}) == "a194e8a116e4"


BASE = {
    "workload": "w",
    "fingerprint": "f",
    "config": {"a": 1},
    "evaluation": {"every": 0.1},
    "seed": 0,
    "replicate": 0,
}


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "v"},
        {"fingerprint": "g"},
        {"config": {"a": 1.0}},
        {"config": {"a": True}},
        {"config": {"a": "1"}},
        {"config": {"a": None}},
        {"evaluation": {"every": 0.2}},
        {"seed": 1},
        {"replicate": 1},
        {"baseline": {"a": 1}},
    ],
)
def test_whatever_matters_changes_the_id(change):
    assert trial_id(**{**BASE, **change}) != trial_id(**BASE)


def test_a_value_is_read_as_its_type_before_it_is_named(folder):
    whole = plan_of(folder, edited(("kl: {beta: 1.0}", "kl: {beta: 1}"), ("ablate_to: 0,", "ablate_to: 0.0,")))
    assert ids(whole) == ids(plan_of(folder))
    assert ids(plan_of(folder, FREE_STUDY.replace("rate: 0.1", "rate: 1"), FREE)) != ids(
        plan_of(folder, FREE_STUDY.replace("rate: 0.1", "rate: 1.0"), FREE)
    )


@pytest.mark.parametrize(
    "edit",
    [
        ("question: Which reconstruction terms can go?", "question: Another"),
        ("study: which-terms", "study: another"),
        ("kl: {beta: 1.0}", "kl: {schedule: constant, beta: 1}"),
        ("baseline:\n  reconstruction: {raw_weight: 1.0, token_weight_alpha: 1.0}\n  kl: {beta: 1.0}\n", "baseline: {}\n"),
        ("metrics:", "run: {retries: 5, resources: {cpu: 2}}\nmetrics:"),
        ("metrics:", "analysis: {alpha: 0.1}\nmetrics:"),
        ("sesoi: 0.02", "sesoi: 0.5"),
        ("[reconstruction.token_aggregation, kl.beta]", "[kl.beta, reconstruction.token_aggregation]"),
        ("  reconstruction.token_aggregation: [token_sum, token_mean]\n  kl.beta: {min: 0.5, max: 2, levels: 4}\n",
         "  kl.beta: {min: 0.5, max: 2, levels: 4}\n  reconstruction.token_aggregation: [token_sum, token_mean]\n"),
        ("{min: 0.5, max: 2, levels: 4}", "[2.0, 0.5x, 1.5]"),
        ("version: 1\n", ""),
    ],
)  # fmt: skip
def test_what_does_not_matter_changes_no_id(folder, edit):
    assert set(ids(plan_of(folder, edited(edit)))) == set(ids(plan_of(folder)))


def test_an_edited_file_runs_what_is_new_alone(folder):
    before = set(ids(plan_of(folder)))
    assert before < set(ids(plan_of(folder, seeds=9)))
    assert before < set(ids(plan_of(folder, edited(("levels: 4", "levels: 7")))))
    assert not before & set(ids(plan_of(folder, edited(("metrics:", "evaluation: {every: 0.5}\nmetrics:")))))
    assert not before & set(ids(plan_of(folder, edited(("kl: {beta: 1.0}", "reference: {seed: 1}")))))


def test_the_data_is_in_the_identity_by_its_content(folder):
    other = Workload("typed", fingerprint=lambda config: "other")
    assert not set(ids(plan_of(folder))) & set(ids(plan_of(folder, workload=other)))


def test_the_fingerprint_is_that_of_the_arms_own_data(folder):
    seen = []
    workload = Workload("typed", fingerprint=lambda config: seen.append(config["data"]["seed"]) or "same")
    text = edited(("kl.beta: {min: 0.5, max: 2, levels: 4}", "data.seed: [0, 1, 2]"), ("kl.beta]", "data.seed]"))
    plan = plan_of(folder, text, workload)
    assert seen == [0, 1, 2]
    assert len(set(ids(plan))) == len(plan.trials)


def test_a_dumped_study_has_the_same_plan(folder):
    plan = plan_of(
        folder, edited(("metrics:", "controls: {rescaled: true, aa: 1}\nmetrics:")), overrides=["seeds.start=3"]
    )
    again = load_study(folder.write(dump_study(plan.spec), "study.yaml"), workload_lookup=lookup)
    made = planning.make_plan(again, TYPED)
    assert made.trials == plan.trials
    assert (made.arms, made.power, made.notes, made.warnings) == (plan.arms, plan.power, plan.notes, plan.warnings)


def test_the_same_on_any_hash_seed(folder):
    code = """
import sys
from ablate.plan.planning import make_plan
from ablate.spec.loading import load_study
from tests.spec.example import TYPED, lookup
plan = make_plan(load_study(sys.argv[1], workload_lookup=lookup), TYPED)
for trial in plan.trials:
    print(trial.trial_id, trial.seed, trial.arm.label, trial.arm.designs)
print(plan.power, plan.notes, plan.warnings)
"""
    text = edited(
        (
            "  - leave_one_out: reconstruction.*_weight\n",
            "  - leave_one_out: reconstruction.*_weight\n  - grid: ['*.raw_weight', '*.token_weighted_weight', kl.beta, '*aggregation']\n",
        ),
        ("[0.5x, 1x, 2x]", "[0, 1]"),
        ("metrics:", "controls: {aa: 1, rescaled: true, match_scale: true}\nseeds: {count: 1}\nmetrics:"),
    )
    file = folder.path / folder.write(text)
    root = Path(__file__).parents[2]
    printed = {
        subprocess.run(
            [sys.executable, "-c", code, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    arms = 2**2 * 2 * 4 + 4  # the grid, and what leave_one_out adds
    twins = 3 * 2 * 4 + 4 + 4  # of what removes in the grid; beside it; of the other aggregation with both terms on
    assert len(printed) == 1
    assert printed.pop().count("\n") == arms + twins + 1 + 1


# --- order --------------------------------------------------------------------------------------


def test_trials_go_by_seed_block(folder):
    plan = plan_of(folder, edited(("metrics:", "seeds: {count: 3, start: 5}\nmetrics:")))
    assert [trial.seed for trial in plan.trials] == [5] * 11 + [6] * 11 + [7] * 11
    assert [trial.arm for trial in plan.trials] == list(plan.arms) * 3


def test_more_trials_than_can_be_meant(folder):
    with pytest.raises(SpecError) as caught:
        plan_of(folder, edited(("levels: 4", "levels: 200")), seeds=100_000)
    assert (
        str(caught.value) == "--seeds: seeds.count: got 100000; allowed: at most 48076 with 208 arms, 10000000 trials"
    )


# --- contracts over the table of designs ----------------------------------------------------------


TERMS = "reconstruction.*_weight"
WRITTEN = {
    "leave_group_out": "[['*.raw_weight', '*.token_weighted_weight'], ['*.dist*', '*.example*'], ['*.normalized*']]",
    "factorial": f"{{over: {TERMS}, resolution: IV}}",
}
TWO_LEVELS = ("leave_one_out", "leave_group_out", "add_one_in", "factorial")


def study_of(design, *edits):
    """The example with this one design."""
    old = "  - leave_one_out: reconstruction.*_weight\n  - one_at_a_time: [reconstruction.token_aggregation, kl.beta]\n"
    return edited((old, f"  - {design}\n"), *edits)


@pytest.mark.parametrize("kind", DESIGNS)
def test_every_design(folder, kind):
    constraint = 'constraints: ["active(reconstruction.*_weight) >= 2 or reconstruction.raw_weight == 1"]\ndesigns:'
    text = study_of(
        f"{kind}: {WRITTEN.get(kind, TERMS)}", ("designs:", constraint), ("[0.5x, 1x, 2x]", "[0, 0.5x, 2x]")
    )
    plan = plan_of(folder, text)
    spec = plan.spec
    assert plan.arms[0].label == "baseline"
    assert plan.arms[0].config == spec.baseline
    assert len({arm.label for arm in plan.arms}) == len({canonical(arm.config) for arm in plan.arms}) == len(plan.arms)
    assert len(set(ids(plan))) == len(plan.trials) == len(plan.arms) * spec.seeds.count
    assert ids(plan_of(folder, text)) == ids(plan)
    for arm in plan.arms:
        weights = [arm.config["reconstruction"][factor.path.partition(".")[2]] for factor in spec.factors[:6]]
        assert [arm.factors[factor.path] for factor in spec.factors[:6]] == weights
        assert sum(weight != 0 for weight in weights) >= 2 or weights[0] == 1
        assert TYPED.config_type.model_validate(arm.config)
        assert kind in arm.designs or arm.label == "baseline"
    factors = {factor.path: factor for factor in spec.factors}
    moved = Moved(units(spec.designs[0].over, factors, ()), {path: path for path in factors}, spec.designs[0].settings)
    rows = [row.values for row in DESIGNS[kind](moved) if isinstance(row, Row)]
    for path in spec.designs[0].over:
        seen = {row.get(path, factors[path].baseline) for row in rows} | {factors[path].baseline}
        assert seen == ({0, 1} if kind in TWO_LEVELS else {0, 0.5, 1, 2})


@pytest.mark.parametrize(
    ("design", "arms"),
    [
        (f"leave_one_out: {TERMS}", 1 + 6),
        (f"leave_group_out: {WRITTEN['leave_group_out']}", 1 + 3),
        (f"add_one_in: {TERMS}", 1 + 6),
        (f"one_at_a_time: {TERMS}", 1 + 6 * 2),
        (f"grid: {TERMS}", 3**6),
        (f"factorial: {{over: {TERMS}}}", 2**6 - 1),
        (f"factorial: {{over: {TERMS}, fraction: full}}", 2**6 - 1),
        (f"factorial: {{over: {TERMS}, resolution: III}}", 1 + 2**3),
        (f"factorial: {{over: {TERMS}, resolution: IV}}", 1 + 2**4),
        (f"factorial: {{over: {TERMS}, resolution: V}}", 1 + 2**5),
        (f"factorial: {{over: {TERMS}, resolution: VI}}", 1 + 2**5),
        (f"factorial: {{over: {TERMS}, fraction: plackett_burman}}", 1 + 8),
    ],
)
def test_counts_are_as_the_formula_says(folder, design, arms):
    assert len(plan_of(folder, study_of(design)).arms) == arms


# --- sharing ------------------------------------------------------------------------------------

levels = st.sampled_from([0.0, 1.0, 2.0, "linear", "constant", 3, True, None])


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["kl.beta", "kl.schedule", "training.steps", "latent"]), levels), max_size=6
    )
)
def test_shared_sections_are_written_as_they_are(changes):
    baseline = Config().model_dump(mode="json")
    configurations = Configurations(baseline, Config)
    for change in changes:
        config = configurations.changed(change)
        expected = json.loads(json.dumps(baseline))
        for path, value in change.items():
            *around, last = path.split(".")
            section = expected
            for part in around:
                section = section[part]
            section[last] = value
        assert config == expected
        assert configurations.text(config) == canonical(expected)
        try:
            Config.model_validate_json(canonical(expected), strict=True)
        except ValueError:
            assert configurations.refusal(config) is not None
        else:
            assert configurations.refusal(config) is None
    assert baseline == Config().model_dump(mode="json")


def test_many_arms_share_their_sections(folder):
    plan = plan_of(folder, study_of("grid: '*.*'"), seeds=1)
    assert len(plan.arms) == 3**6 * 2 * 4
    assert len({id(arm.config["kl"]) for arm in plan.arms}) == 4
    assert len({id(arm.config["training"]) for arm in plan.arms}) == 1


def test_a_key_that_came_later_enters_the_identity_once_it_says_something_new(folder):
    class Training(BaseModel):
        steps: int = 1000

    class NewTraining(Training):
        buckets: int = 1

    class Old(BaseModel):
        training: Training = Training()

    class New(BaseModel):
        training: NewTraining = NewTraining()

    text = "study: s\nworkload: typed\nfactors: {training.steps: [10, 20]}\ndesigns: [grid: training.steps]\n"
    text += "metrics: {primary: {name: loss}}\n"
    old = Workload("typed", Old, metrics=None)
    new = Workload("typed", New, metrics=None, later={"training.buckets": 1})

    def planned(workload, *overrides):
        file = folder.write(text, "study.yaml")
        return ids(
            planning.make_plan(load_study(file, workload_lookup=lambda _: workload, overrides=overrides), workload)
        )

    assert planned(new) == planned(old)
    assert not set(planned(new, "baseline.training.buckets=2")) & set(planned(old))
