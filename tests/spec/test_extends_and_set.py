"""A study file made of others, and edited from the command line."""

# ruff: noqa: E501 - a message is one line

import pytest

from ablate.spec.models import Seeds
from tests.spec.example import STUDY, edited, factor_of

# --- extends ------------------------------------------------------------------------------------


def test_extends_merges_deeply_and_the_later_wins(folder):
    (folder.path / "sub").mkdir()
    folder.write(STUDY, "sub/base.yaml")
    folder.write("extends: base.yaml\nseeds: {count: 3, start: 5}\nkey: 1\n", "sub/middle.yaml")
    text = """\
        extends: sub/middle.yaml
        study: other
        baseline: {kl: {beta: 2}, training: {steps: 10}}
        seeds: {count: 4}
    """
    assert folder.problems(text) == [
        "sub/middle.yaml:3:1: key: unknown key; allowed: analysis, baseline, code_version, constraints, controls, designs, "
        "early_stop, evaluation, extends, factors, metrics, nuisance, question, report, run, seeds, study, together, track, version, "
        "workload"
    ]
    folder.write("extends: base.yaml\nseeds: {count: 3, start: 5}\n", "sub/middle.yaml")
    spec = folder.load(text)
    assert (spec.study, spec.question) == ("other", "Which reconstruction terms can go?")
    assert (spec.baseline["kl"]["beta"], spec.baseline["training"]["steps"]) == (2.0, 10)
    assert spec.baseline["reconstruction"]["raw_weight"] == 1.0
    assert (spec.seeds.count, spec.seeds.start) == (4, 5)
    assert factor_of(spec, "kl.beta").levels == (0.5, 1.0, 1.5, 2.0)
    assert "extends" not in spec.document


def test_a_list_replaces_a_list(folder):
    folder.write(STUDY, "base.yaml")
    spec = folder.load("extends: base.yaml\ndesigns: [leave_one_out: reconstruction.raw_weight]\n")
    assert [(design.name, len(design.over)) for design in spec.designs] == [("leave_one_out", 1)]


def test_problems_of_extends(folder):
    folder.write("extends: s.yaml\n", "a.yaml")
    assert folder.problems("study: x\nextends: a.yaml\n") == [
        'a.yaml:1:10: extends: got "s.yaml"; it extends this file in turn, a cycle'
    ]
    assert folder.problems("extends: s.yaml\n") == [
        's.yaml:1:10: extends: got "s.yaml"; it extends this file in turn, a cycle'
    ]
    assert folder.problems("extends: none.yaml\n") == [
        "s.yaml:1:10: extends: none.yaml cannot be read: No such file or directory"
    ]
    assert folder.problems(f"{STUDY}extends: [a]\n") == [
        "s.yaml:17:10: extends: got a list; allowed: the name of a file, relative to this one"
    ]
    assert folder.problems(f"{STUDY}extends: 'a\\0'\n")[0].startswith("s.yaml:17:10: extends: ")
    folder.write("- 1\n", "b.yaml")
    assert folder.problems("extends: b.yaml\n") == ["b.yaml:1:1: got a list; a study file is a mapping"]


def test_a_problem_is_placed_in_the_file_that_has_it(folder):
    folder.write(edited(("levels: 4", "levels: 1")), "base.yaml")
    assert folder.problems("extends: base.yaml\nseeds: {count: -1}\n") == [
        "base.yaml:11:39: factors.kl.beta.levels: got 1; allowed: a number >= 2",
        "s.yaml:2:16: seeds.count: got -1; allowed: a number >= 1",
    ]


# --- the command line ---------------------------------------------------------------------------


def test_set_edits_any_key(folder):
    spec = folder.load(
        STUDY,
        overrides=[
            "study=other",
            "seeds.count=3",
            "baseline.kl.beta=1e-1",
            "baseline.training.steps=7",
            "factors.kl.beta.max=4",
            "factors.reconstruction.*_weight.values=[1x, 3x]",
            "factors.kl.warmup_steps=[0, 5]",
            "factors.training.batch_size.ablate_to=1",
            "designs.1.one_at_a_time=kl.*",
            'question="a=b"',
            "metrics.secondary=[{name: eval/rate_per_token}]",
            "seeds.count=5",
        ],
        seeds=None,
    )
    assert (spec.study, spec.seeds.count, spec.question) == ("other", 5, "a=b")
    assert (spec.baseline["kl"]["beta"], spec.baseline["training"]["steps"]) == (0.1, 7)
    assert factor_of(spec, "kl.beta").high == 4.0
    assert factor_of(spec, "reconstruction.raw_weight").levels == (1.0, 3.0)
    assert factor_of(spec, "kl.warmup_steps").levels == (0, 5)
    assert factor_of(spec, "training.batch_size").ablate_to == 1
    assert spec.designs[1].over == ("kl.beta", "kl.warmup_steps")
    assert [metric.name for metric in spec.metrics.secondary] == ["eval/rate_per_token"]


def test_seeds_of_the_command_line(folder):
    assert folder.load(STUDY, seeds=3).seeds.count == 3
    assert folder.load(edited(("metrics:", "seeds: {start: 4}\nmetrics:")), seeds=3).seeds == Seeds(count=3, start=4)
    assert folder.problems(STUDY, seeds=0) == ["--seeds: seeds.count: got 0; allowed: a number >= 1"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds", '--set: got "seeds"; allowed: path=value'),
        ("=3", '--set: got "=3"; allowed: path=value'),
        ("seeds.count=many", '--set: seeds.count: got "many"; allowed: a whole number'),
        ("seeds.count=", "--set: seeds.count: got null; allowed: a whole number"),
        ("seeds.cuont=3", "--set: seeds.cuont: unknown key; allowed: count, start, vary; did you mean count?"),
        ("baseline.kl.beta='1'", '--set: baseline.kl.beta: got "1"; allowed: a number; a quoted number is text'),
        ("designs.2.grid=kl.beta", '--set: designs.2.grid: got the item "2"; allowed: 0 to 1, the items of this list'),
        ("baseline.kl.beta=[", "--set: baseline.kl.beta: not YAML: expected the node content, but found '<stream end>', while parsing a flow node"),
        ("baseline.kl.beta=!!int 1", "--set: baseline.kl.beta: got the tag !!int; tags are not allowed, values are what they look like"),
        ("study=a: b: c", "--set: study: not YAML: mapping values are not allowed here"),
        ("." * 500 + "=1", f'--set: "{"." * 59}…: nested more than 100 deep'),
    ],
)  # fmt: skip
def test_problems_of_set(folder, override, message):
    assert folder.problems(STUDY, overrides=[override])[-1:] == [message]
