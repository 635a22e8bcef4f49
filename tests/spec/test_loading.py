# ruff: noqa: E501 - a message is one line

import pytest

from ablate.errors import SpecError
from ablate.spec.loading import load_study
from ablate.spec.models import MISSING, Analysis, Controls, Evaluation, Run, Seeds, Track
from ablate.workloads import BUILT_IN, find_workload
from tests.spec.example import FREE_STUDY, STUDY, edited, factor_of

MINIMAL = """\
study: small
workload: typed
factors: {kl.beta: [0.5, 2]}
designs: [one_at_a_time: kl.beta]
metrics: {primary: {name: eval/neg_elbo_per_token}}
"""


def test_what_is_not_written_has_its_default(folder):
    spec = folder.load(MINIMAL)
    assert spec.study == "small"
    assert spec.question == ""
    assert (spec.together, spec.constraints, spec.warnings, spec.code_version) == ((), (), (), None)
    assert spec.seeds == Seeds(count=8, start=0, vary=("training",))
    assert spec.controls == Controls(aa=0, rescaled=False, match_scale=False)
    assert spec.analysis == Analysis(alpha=0.05, test="maxt_signflip", looks=1)
    assert spec.evaluation == Evaluation(every=0.1, iwae_samples=64, iwae_examples=512)
    assert spec.run == Run()
    assert (spec.run.resources.cpu, spec.run.resources.gpu, spec.run.keep, spec.run.retries) == (1, 0, "last", 2)
    assert spec.track == Track(mlflow=None, optuna=None)
    assert spec.report.formats == ("html", "markdown", "latex")
    assert (spec.metrics.primary.goal, spec.metrics.primary.at, spec.metrics.primary.sesoi) == (
        "minimize",
        "last",
        None,
    )
    assert spec.metrics.secondary == ()
    assert spec.baseline["kl"] == {"beta": 1.0, "schedule": "constant", "warmup_steps": 0}
    assert list(spec.baseline) == ["latent", "reference", "data", "reconstruction", "kl", "training"]
    assert (spec.source, spec.folder) == ("s.yaml", str(folder.path))


def test_the_whole_example(folder):
    spec = folder.load(STUDY)
    raw = factor_of(spec, "reconstruction.raw_weight")
    assert (raw.kind, raw.baseline, raw.levels, raw.ablate_to) == ("float", 1.0, (0.5, 1.0, 2.0), 0.0)
    assert [type(value) for value in (*raw.levels, raw.ablate_to)] == [float] * 4
    mode = factor_of(spec, "reconstruction.token_aggregation")
    assert (mode.kind, mode.choices, mode.ablate_to) == ("choice", ("token_sum", "token_mean"), MISSING)
    beta = factor_of(spec, "kl.beta")
    assert (beta.levels, beta.low, beta.high, beta.log) == ((0.5, 1.0, 1.5, 2.0), 0.5, 2.0, False)
    assert [factor.path.rpartition(".")[2] for factor in spec.factors] == [
        "raw_weight",
        "distribution_normalized_weight",
        "example_inverse_surprisal_weight",
        "token_weighted_weight",
        "normalized_concentration_corrected_token_weighted_weight",
        "normalized_inverse_surprisal_token_weighted_weight",
        "token_aggregation",
        "beta",
    ]
    assert [(design.kind, design.name, len(design.over)) for design in spec.designs] == [
        ("leave_one_out", "leave_one_out", 6),
        ("one_at_a_time", "one_at_a_time", 2),
    ]
    assert spec.places["leave_one_out"] == ("s.yaml", 13, 20)


def test_a_second_design_of_a_kind_has_a_number(folder):
    text = edited(("  - one_at", "  - leave_one_out: '*.raw_weight'\n  - one_at"))
    assert [design.name for design in folder.load(text).designs] == [
        "leave_one_out",
        "leave_one_out-2",
        "one_at_a_time",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1", 1),
        ("1.0", 1.0),
        ("1e-4", 1e-4),
        ("1E+2", 100.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.0", 0.0),
        ("0o17", 15),
        ("0x1F", 31),
        ("+3", 3),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("'null'", "null"),
        ("'None'", "None"),
        ("None", "None"),
        ('"false"', "false"),
        ("off", "off"),
        ("on", "on"),
        ("no", "no"),
        ("y", "y"),
        ("017", 17),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("0b11", "0b11"),
        ("<<", "<<"),
        ("=", "="),
        ("[[32, 32], [64]]", [[32, 32], [64]]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("x" * 400, "x" * 400),
        ("é", "é"),
    ],
)
def test_a_scalar_is_what_it_looks_like(folder, written, expected):
    text = edited(("name: null", f"name: {written}"), text=FREE_STUDY)
    found = folder.load(text).baseline["name"]
    assert found == expected
    assert type(found) is type(expected)
    assert str(found) == str(expected)


def test_values_that_no_type_settles_stay_different(folder):
    text = edited(
        ("rate: [0.1x", 'name: [1, 1.0, true, "1", null, "None", false, "false"]\n  rate: [0.1x'), text=FREE_STUDY
    )
    levels = factor_of(folder.load(text), "name").levels
    assert [repr(level) for level in levels] == ["1", "1.0", "True", "'1'", "None", "'None'", "False", "'false'"]


def test_levels_may_be_lists_and_mappings(folder):
    text = edited(
        ("rate: [0.1x", "hidden: [[32, 32], [64]]\n  net: [{depth: 2}, {depth: 3, width: 5}]\n  rate: [0.1x"),
        text=FREE_STUDY,
    )
    spec = folder.load(text)
    assert factor_of(spec, "hidden").levels == ([32, 32], [64])
    assert factor_of(spec, "net").levels == ({"depth": 2}, {"depth": 3, "width": 5})


def test_a_section_may_be_a_factor(folder):
    spec = folder.load(edited(("kl.beta: {min: 0.5, max: 2, levels: 4}", "kl: [{beta: 2}]"), ("kl.beta]", "kl]")))
    assert factor_of(spec, "kl").levels == ({"beta": 2.0, "schedule": "constant", "warmup_steps": 0},)


def test_multiples_are_of_the_baseline(folder):
    text = edited(
        ("rate: [0.1x, 1x, 10x]", "rate: [0.1x, 1x, 3x]\n  count: [2x, 0.5x]\n  net.depth: [2x, 2.0]"), text=FREE_STUDY
    )
    spec = folder.load(text)
    assert factor_of(spec, "rate").levels == (0.01, 0.1, 0.3)
    assert [repr(level) for level in factor_of(spec, "count").levels] == ["6", "1.5"]
    assert [repr(level) for level in factor_of(spec, "net.depth").levels] == ["4", "2.0"]
    assert factor_of(folder.load(edited(("name: null", "name: a2x"), text=FREE_STUDY)), "rate").kind == "free"


def test_a_multiple_that_the_type_refuses(folder):
    text = edited(
        ("kl.beta: {min: 0.5, max: 2, levels: 4}", "training.steps: [0.0001x, 2x]"), ("kl.beta]", "training.steps]")
    )
    assert folder.problems(text) == [
        "s.yaml:11:20: factors.training.steps[0]: got 0.1; allowed: a whole number",
    ]


def test_a_range_has_levels(folder):
    entries = """\
  kl.beta: {min: 0.1, max: 10, distribution: log_uniform}
  training.steps: {min: 1, max: 4, levels: 7}
  reconstruction.token_weight_alpha: {min: 0, max: 1}
"""
    spec = folder.load(edited(("  kl.beta: {min: 0.5, max: 2, levels: 4}\n", entries)))
    assert factor_of(spec, "kl.beta").levels == (0.1, 0.316227766017, 1.0, 3.16227766017, 10.0)
    assert factor_of(spec, "kl.beta").log
    assert factor_of(spec, "training.steps").levels == (1, 2, 3, 4)
    assert factor_of(spec, "training.steps").kind == "int"
    assert factor_of(spec, "reconstruction.token_weight_alpha").levels == (0.0, 0.25, 0.5, 0.75, 1.0)


def test_kinds_and_choices(folder):
    entries = (
        "  training.amsgrad: [true]\n  reconstruction.zfree_reference_scale: [auto]\n  reconstruction.rescale: [null]\n"
    )
    spec = folder.load(edited(("designs:", f"{entries}designs:")))
    assert (factor_of(spec, "training.amsgrad").kind, factor_of(spec, "training.amsgrad").choices) == (
        "choice",
        (False, True),
    )
    assert factor_of(spec, "reconstruction.zfree_reference_scale").kind == "free"
    assert factor_of(spec, "reconstruction.rescale").choices == ("baseline", None)


def test_without_levels_a_factor_has_two(folder):
    spec = folder.load(edited(("{ablate_to: 0, values: [0.5x, 1x, 2x]}", "{ablate_to: 0}")))
    assert factor_of(spec, "reconstruction.raw_weight").levels == (1.0, 0.0)


def test_the_same_level_twice_is_one(folder):
    spec = folder.load(edited(("[0.5x, 1x, 2x]", "[1, 1.0, 2, 2x]")))
    assert factor_of(spec, "reconstruction.raw_weight").levels == (1.0, 2.0)


def test_a_path_speaks_before_a_glob_that_matches_it(folder):
    spec = folder.load(edited(("factors:\n", "factors:\n  reconstruction.raw_weight: {ablate_to: 0.25}\n")))
    assert factor_of(spec, "reconstruction.raw_weight").ablate_to == 0.25
    assert factor_of(spec, "reconstruction.token_weighted_weight").ablate_to == 0.0
    assert len(spec.factors) == 8


def test_together_may_be_globs(folder):
    spec = folder.load(
        edited(("designs:", "together: [['reconstruction.token_weighted_*', reconstruction.raw_weight]]\ndesigns:"))
    )
    assert spec.together == (("reconstruction.raw_weight", "reconstruction.token_weighted_weight"),)


def test_a_byte_order_mark_and_windows_line_ends(folder):
    assert folder.load(b"\xef\xbb\xbf" + STUDY.replace("\n", "\r\n").encode()).baseline == folder.load(STUDY).baseline


def test_a_loss_of_ones_own_is_a_metric_like_any_other(folder):
    spec = folder.load(edited(("name: loss", "name: eval/loss"), text=FREE_STUDY))
    assert spec.metrics.primary.name == "eval/loss"


def test_sixty_factors(folder):
    names = [f"f{index}" for index in range(60)]
    text = f"""\
study: many
workload: free
baseline: {{{", ".join(f"{name}: 1" for name in names)}}}
factors: {{"*": {{ablate_to: 0}}}}
designs: [leave_one_out: "*"]
metrics: {{primary: {{name: loss}}}}
"""
    assert [factor.path for factor in folder.load(text).factors] == names


def test_warnings(folder):
    text = edited(
        ("name: eval/neg_elbo_per_token", "name: eval/nll_per_token"), ("[token_sum, token_mean]", "[token_sum]")
    )
    assert folder.load(text).warnings == (
        "metrics.primary: eval/nll_per_token is the distortion, which KL buys: an arm that spends more rate always wins "
        "on it; eval/neg_elbo_per_token charges the rate",
        "factors.reconstruction.token_aggregation: its one level is the baseline's; it changes nothing",
    )


def test_no_workload_is_asked_without_a_lookup(folder):
    spec = load_study(
        folder.write(edited(("workload: free", "workload: no.such:thing"), text=FREE_STUDY)), workload_lookup=None
    )
    assert spec.workload == "no.such:thing"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "it cannot be loaded: SystemExit: 3"),
        (KeyError("a"), "it cannot be loaded: KeyError: 'a'"),
        (ImportError("No module\nnamed x"), "it cannot be loaded: ImportError: No module named x"),
        (LookupError("allowed: a, b"), "allowed: a, b"),
    ],
)
def test_a_workload_that_cannot_be_loaded(folder, error, reason):
    def broken(name):
        raise error

    with pytest.raises(SpecError) as caught:
        load_study(folder.write(STUDY), workload_lookup=broken)
    assert str(caught.value) == f's.yaml:4:11: workload: got "typed"; {reason}'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synthetic_sequence", "; did you mean synthetic_sequences?"),
        ("nothing_like_it", ""),
    ],
)
def test_a_workload_that_is_not_built_in(folder, name, message):
    with pytest.raises(SpecError) as caught:
        load_study(folder.write(edited(("workload: typed", f"workload: {name}"))), workload_lookup=find_workload)
    allowed = f"allowed: {', '.join(sorted(BUILT_IN))} or package.module:function"
    assert str(caught.value) == f's.yaml:4:11: workload: got "{name}"; {allowed}{message}'
