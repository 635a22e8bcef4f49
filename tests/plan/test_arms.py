# ruff: noqa: E501 - messages and edits of the example are one line

import pytest

from ablate.errors import SpecError
from ablate.plan.planning import make_plan
from tests.spec.example import FREE, FREE_STUDY, STUDY, TYPED, edited

TERMS = [
    "raw_weight",
    "distribution_normalized_weight",
    "example_inverse_surprisal_weight",
    "token_weighted_weight",
    "normalized_concentration_corrected_token_weighted_weight",
    "normalized_inverse_surprisal_token_weighted_weight",
]
ZIP = "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]\n"


@pytest.fixture
def plan(folder):
    def make(*edits, text=STUDY, **options):
        spec = folder.load(edited(*edits, text=text), **options)
        return make_plan(spec, FREE if spec.workload == "free" else TYPED)

    return make


def designs(*lines, before=""):
    """An edit that replaces the designs of the example."""
    old = "designs:\n  - leave_one_out: reconstruction.*_weight\n  - one_at_a_time: [reconstruction.token_aggregation, kl.beta]\n"
    return old, before + "designs:\n" + "".join(f"  - {line}\n" for line in lines)


def labels(plan):
    return [arm.label for arm in plan.arms]


def arm(plan, label):
    (found,) = [arm for arm in plan.arms if arm.label == label]
    return found


# --- designs ------------------------------------------------------------------------------------


def test_leave_one_out(plan):
    made = plan(designs("leave_one_out: reconstruction.*_weight"))
    assert labels(made) == ["baseline", *(f"-{name}" for name in TERMS)]
    left_out = arm(made, "-token_weighted_weight")
    assert left_out.designs == ("leave_one_out",)
    assert left_out.role == "arm"
    assert left_out.config["reconstruction"] == {**made.spec.baseline["reconstruction"], "token_weighted_weight": 0.0}
    assert {**left_out.config, "reconstruction": None} == {**made.spec.baseline, "reconstruction": None}
    assert left_out.factors["reconstruction.token_weighted_weight"] == 0.0
    assert left_out.factors["reconstruction.raw_weight"] == 1.0
    assert list(left_out.factors) == [factor.path for factor in made.spec.factors]
    assert made.arms[0].factors["kl.beta"] == 1.0
    assert (made.arms[0].designs, made.arms[0].role) == (("baseline",), "baseline")


def test_leave_one_out_skips_what_is_out_already(plan):
    made = plan(
        designs("leave_one_out: reconstruction.*_weight"),
        ("raw_weight: 1.0,", "raw_weight: 0,"),
        ("[0.5x, 1x, 2x]", "[1, 2]"),
    )
    assert labels(made) == ["baseline", *(f"-{name}" for name in TERMS[1:])]
    assert made.notes == ("leave_one_out: raw_weight skipped, the baseline has it at `ablate_to` already",)


def test_add_one_in(plan):
    made = plan(designs("add_one_in: reconstruction.*_weight"))
    assert labels(made) == ["baseline", *(f"+{name}" for name in TERMS)]
    alone = arm(made, "+token_weighted_weight").config["reconstruction"]
    assert {name: alone[name] for name in TERMS} == {name: float(name == "token_weighted_weight") for name in TERMS}


def test_one_at_a_time(plan):
    made = plan(designs("one_at_a_time: [reconstruction.token_aggregation, kl.beta]"))
    assert labels(made) == ["baseline", "token_aggregation=token_mean", "beta=0.5", "beta=1.5", "beta=2.0"]


def test_grid(plan):
    made = plan(designs("grid: [reconstruction.token_aggregation, kl.beta]"))
    assert labels(made) == [
        "baseline",
        "beta=0.5",
        "beta=1.5",
        "beta=2.0",
        "token_aggregation=token_mean, beta=0.5",
        "token_aggregation=token_mean",
        "token_aggregation=token_mean, beta=1.5",
        "token_aggregation=token_mean, beta=2.0",
    ]
    assert made.arms[0].designs == ("baseline", "grid")


def test_a_zip_is_one_factor(plan):
    made = plan(
        designs(
            "leave_one_out: reconstruction.*_weight",
            "add_one_in: [reconstruction.raw_weight, reconstruction.token_weighted_weight]",
            "grid: '*.raw_weight'",
            before=ZIP,
        )
    )
    assert labels(made)[:3] == ["baseline", "-raw_weight", "-example_inverse_surprisal_weight"]
    out = arm(made, "-raw_weight")
    assert (
        out.config["reconstruction"]["raw_weight"],
        out.config["reconstruction"]["distribution_normalized_weight"],
    ) == (0, 0)
    half = arm(made, "raw_weight=0.5").config["reconstruction"]
    assert (half["raw_weight"], half["distribution_normalized_weight"]) == (0.5, 0.5)
    assert len(made.arms) == 1 + 5 + 2


def test_the_same_arm_of_two_designs_is_one(plan):
    made = plan(
        ("[0.5x, 1x, 2x]", "[1, 0]"),
        designs("leave_one_out: '*.raw_weight'", "one_at_a_time: '*.raw_weight'", "grid: ['*.raw_weight', kl.beta]"),
    )
    assert arm(made, "-raw_weight").designs == ("leave_one_out", "one_at_a_time", "grid")
    assert labels(made) == ["baseline", "-raw_weight", "beta=0.5", "beta=1.5", "beta=2.0"] + [
        f"-raw_weight, beta={beta}" for beta in (0.5, 1.5, 2.0)
    ]
    assert made.arms[0].designs == ("baseline", "grid")


def test_add_one_in_of_two_is_leave_one_out_of_the_other(plan):
    two = "[reconstruction.raw_weight, reconstruction.token_weighted_weight]"
    made = plan(designs(f"leave_one_out: {two}", f"add_one_in: {two}"))
    assert labels(made) == ["baseline", "-raw_weight", "-token_weighted_weight"]
    assert {arm.designs for arm in made.arms[1:]} == {("leave_one_out", "add_one_in")}


def test_two_arms_never_share_a_label(plan):
    made = plan(
        designs(
            "add_one_in: [reconstruction.raw_weight, reconstruction.token_weighted_weight]",
            "add_one_in: [reconstruction.raw_weight, reconstruction.example_inverse_surprisal_weight]",
        )
    )
    assert labels(made) == [
        "baseline",
        "+raw_weight",
        "+token_weighted_weight",
        "+raw_weight (2)",
    ]
    assert arm(made, "+raw_weight (2)").designs == ("add_one_in-2",)


# --- what is left out ---------------------------------------------------------------------------


def test_rows_that_leave_no_term_on_are_left_out_and_named(plan):
    off = ", ".join(f"{name}: 0" for name in TERMS[2:])
    made = plan(
        ("raw_weight: 1.0,", f"raw_weight: 1.0, {off},"),
        ("[0.5x, 1x, 2x]", "[0, 1]"),
        designs("grid: [reconstruction.raw_weight, reconstruction.distribution_normalized_weight]"),
    )
    assert labels(made) == ["baseline", "-raw_weight", "-distribution_normalized_weight"]
    assert made.notes == (
        "grid: left out, breaks active(reconstruction.*_weight) >= 1: -raw_weight, -distribution_normalized_weight",
    )


def test_rows_that_break_a_constraint_are_left_out_and_named(plan):
    constraint = "constraints: [\"kl.beta < 1.7 or reconstruction.token_aggregation == 'token_sum'\"]\n"
    made = plan(designs("grid: [reconstruction.token_aggregation, kl.beta]", before=constraint))
    assert len(made.arms) == 7
    assert made.notes == (
        "grid: left out, breaks kl.beta < 1.7 or reconstruction.token_aggregation == 'token_sum': "
        "token_aggregation=token_mean, beta=2.0",
    )


def test_rows_that_the_type_refuses_are_left_out_and_named(plan):
    made = plan(
        ("kl.beta: {min: 0.5, max: 2, levels: 4}", "kl.schedule: [constant, linear]\n  kl.warmup_steps: [0, 10]"),
        designs("grid: kl.*"),
    )
    assert labels(made) == ["baseline", "warmup_steps=10", "schedule=linear, warmup_steps=10"]
    assert made.notes == ("grid: left out, kl: a linear schedule needs warmup_steps >= 1: schedule=linear",)


def test_a_constraint_without_an_answer_leaves_the_row_out(plan):
    made = plan(designs("one_at_a_time: kl.beta", before='constraints: ["1 / (kl.beta - 2) < 0"]\n'))
    assert labels(made) == ["baseline", "beta=0.5", "beta=1.5"]
    assert made.notes == ("one_at_a_time: left out, 1 / (kl.beta - 2) < 0: division by 0: beta=2.0",)


def test_a_design_that_yields_no_arm(plan):
    with pytest.raises(SpecError) as caught:
        plan(designs("leave_one_out: '*.raw_weight'", before='constraints: ["reconstruction.raw_weight > 0"]\n'))
    assert (
        str(caught.value)
        == "s.yaml:14:20: designs[0].leave_one_out: yields no arm: breaks reconstruction.raw_weight > 0"
    )


# --- when ---------------------------------------------------------------------------------------

ALPHA = '  reconstruction.token_weight_alpha: {values: [0, 1, 2], when: "reconstruction.token_weighted_weight > 0"}\n'


def test_a_factor_whose_when_is_false_keeps_its_baseline_value(plan):
    made = plan(
        ("  kl.beta: {min: 0.5, max: 2, levels: 4}\n", ALPHA),
        ("[0.5x, 1x, 2x]", "[0, 1]"),
        designs("grid: [reconstruction.token_weighted_weight, reconstruction.token_weight_alpha]"),
    )
    assert labels(made) == ["baseline", "-token_weighted_weight", "token_weight_alpha=0.0", "token_weight_alpha=2.0"]
    assert arm(made, "-token_weighted_weight").factors["reconstruction.token_weight_alpha"] == 1.0
    assert arm(made, "-token_weighted_weight").config["reconstruction"]["token_weight_alpha"] == 1.0


def test_conditions_may_hang_on_each_other(plan):
    made = plan(
        (
            "rate: [0.1x, 1x, 10x]",
            'rate: {values: [0.1, 5], when: "count == 9"}\n  count: {values: [3, 9], when: "flag"}\n  flag: [false, true]',
        ),
        ("one_at_a_time: rate", 'grid: "*"'),
        text=FREE_STUDY,
    )
    assert labels(made) == ["baseline", "flag=true", "count=9, flag=true", "rate=5, count=9, flag=true"]


def test_what_moves_together_falls_back_together(plan):
    made = plan(
        ("rate: [0.1x, 1x, 10x]", 'rate: {values: [0.1, 5], when: "flag"}\n  count: [3, 9]\n  flag: [false, true]'),
        ("designs:", "together: [[rate, count]]\ndesigns:"),
        ("one_at_a_time: rate", 'grid: "*"'),
        text=FREE_STUDY,
    )
    assert labels(made) == ["baseline", "flag=true", "rate=5, flag=true"]


def test_a_when_that_is_never_true(plan):
    with pytest.raises(SpecError) as caught:
        plan(("levels: 4", 'levels: 4, when: "reconstruction.raw_weight > 5"'))
    assert str(caught.value) == (
        "s.yaml:11:48: factors.kl.beta.when: never true in any arm, so the factor never varies"
    )


# --- controls -----------------------------------------------------------------------------------


def test_twins_and_replicates(plan):
    made = plan(
        (
            "  - one_at_a_time: [reconstruction.token_aggregation, kl.beta]\n",
            "  - grid: [reconstruction.token_aggregation, '*.raw_weight']\n",
        ),
        ("leave_one_out: reconstruction.*_weight", "leave_one_out: reconstruction.raw_weight"),
        ("[0.5x, 1x, 2x]", "[0, 1]"),
        ("metrics:", "controls: {aa: 2, rescaled: true, match_scale: true}\nmetrics:"),
    )
    assert [(arm.label, arm.role, arm.replicate, arm.relative, arm.designs) for arm in made.arms] == [
        ("baseline", "baseline", 0, False, ("baseline", "grid")),
        ("-raw_weight", "arm", 0, False, ("leave_one_out", "grid")),
        ("-raw_weight ~rescaled", "rescaled", 0, True, ("rescaled",)),
        ("-raw_weight, token_aggregation=token_mean", "arm", 0, False, ("grid",)),
        ("-raw_weight, token_aggregation=token_mean ~rescaled", "rescaled", 0, True, ("rescaled",)),
        ("token_aggregation=token_mean", "arm", 0, False, ("grid",)),
        ("token_aggregation=token_mean ~matched", "matched", 0, True, ("matched",)),
        ("aa-1", "aa", 1, False, ("aa",)),
        ("aa-2", "aa", 2, False, ("aa",)),
    ]
    assert arm(made, "-raw_weight ~rescaled").config["reconstruction"]["rescale"] == "baseline"
    assert arm(made, "-raw_weight").config["reconstruction"]["rescale"] is None
    assert arm(made, "aa-1").config == made.spec.baseline


def test_only_what_removes_has_a_rescaled_twin(plan):
    made = plan(("metrics:", "controls: {rescaled: true}\nmetrics:"))
    assert [label for label in labels(made) if "~" in label] == [f"-{name} ~rescaled" for name in TERMS]


def test_add_one_in_has_rescaled_twins(plan):
    made = plan(designs("add_one_in: '*.*_weight'"), ("metrics:", "controls: {rescaled: true}\nmetrics:"))
    assert [label for label in labels(made) if "~" in label] == [f"+{name} ~rescaled" for name in TERMS]


# --- labels -------------------------------------------------------------------------------------


def test_the_shortest_name_that_is_unambiguous(plan):
    made = plan(
        ("net: {depth: 2}", "net: {depth: 2, size: {w: 1}}, other: {depth: 1, size: {w: 2}}, depth: 5"),
        ("rate: [0.1x, 1x, 10x]", "net.depth: [3]\n  net.size.w: [4]\n  depth: [7]\n  other.size.w: [1]"),
        ("one_at_a_time: rate", "one_at_a_time: ['*', '*.*', '*.*.*']"),
        text=FREE_STUDY,
    )
    assert labels(made) == ["baseline", "net.depth=3", "net.size.w=4", "depth=7", "other.size.w=1"]


def test_values_in_labels(plan):
    values = 'null, 1, 1.0, true, "1", "None", None, "null", "a b", "x=1, y", [32, 32], {b: 1, a: [x]}, "-q", é'
    made = plan(
        ("rate: [0.1x, 1x, 10x]", f"name: [{values}, {'y' * 400}, {'y' * 399}z]"),
        ("time: rate", "time: name"),
        text=FREE_STUDY,
    )
    assert labels(made)[1:-2] == [
        "name=1",
        "name=1.0",
        "name=true",
        'name="1"',
        "name=None",
        'name="null"',
        'name="a b"',
        'name="x=1, y"',
        "name=[32,32]",
        'name={"a":["x"],"b":1}',
        "name=-q",
        "name=é",
    ]
    assert labels(made)[-2:] == [f"name={'y' * 48}…1e6722", f"name={'y' * 48}…9c865d"]
    assert [arm.factors["name"] for arm in made.arms][1:4] == [1, 1.0, True]
    assert [type(arm.config["name"]) for arm in made.arms][1:5] == [int, float, bool, str]


# --- warnings -----------------------------------------------------------------------------------

ONE_TERM = (
    "raw and distribution-normalized are one term up to 1/c: left out one at a time each looks droppable, because the "
    "other stays; move them as one: `together: [[reconstruction.raw_weight, "
    "reconstruction.distribution_normalized_weight]]`"
)


def test_raw_and_normalized_one_at_a_time_draw_a_warning(plan):
    assert plan().warnings == (ONE_TERM,)
    assert plan(designs("leave_one_out: '*.*_weight'", before=ZIP)).warnings == ()
    assert plan(designs("leave_one_out: '*.raw_weight'")).warnings == ()


def test_too_few_seeds_draw_a_warning(plan):
    made = plan(designs("leave_one_out: '*.raw_weight'"), seeds=5)
    assert made.warnings == (
        "the test can never reject: with 5 seeds the smallest p value is 0.0625, above alpha 0.05; it takes 6 seeds",
    )
    made = plan(designs("leave_one_out: '*.raw_weight'"), ("metrics:", "analysis: {looks: 4}\nmetrics:"), seeds=6)
    assert made.warnings == (
        "the test can never reject: with 6 seeds the smallest p value is 0.0312, above alpha 0.0125; it takes 8 seeds",
    )
