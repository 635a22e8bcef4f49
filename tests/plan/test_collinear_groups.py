"""Designs over groups of terms: lists in the file, or `auto`, which the reference table answers."""

import shutil

import pytest

from ablate.errors import SpecError
from ablate.plan.collinear_groups import GROUPS_FILE, keep_groups, waits_for_groups, with_groups
from ablate.plan.planning import Planner, make_plan
from ablate.spec.designs import AUTO
from tests.plan.test_geometry import WORKLOAD, ZERO, measure
from tests.spec.example import TYPED, edited

LEAVE = "leave_one_out: reconstruction.*_weight"
UNKNOWN = (
    "its groups come from the reference table: `ablate terms FILE` makes it, `ablate run FILE` before the first trial"
)


@pytest.fixture
def measured(tmp_path):
    """Measures what a plan asks for, in the run folder of the study."""
    return lambda plan: measure(plan, tmp_path / "run" / "reference")


@pytest.fixture
def spec(folder):
    return lambda *edits: folder.load(edited(*edits))


def removed(plan, design):
    """The removed weights of each arm that the design has as a row."""
    return [
        {path.rpartition(".")[2] for path, value in arm.factors.items() if path.endswith("_weight") and value == 0}
        for arm in plan.arms
        if design in arm.designs and arm.role == "arm"
    ]


@pytest.mark.parametrize("design", ["leave_group_out: auto", "factorial: {over: auto}"])
def test_groups_that_are_not_known_yet_are_said_and_yield_no_arm(spec, design):
    study = spec((LEAVE, design))
    assert waits_for_groups(study)
    plan = make_plan(study, TYPED)
    kind = design.partition(":")[0]
    assert plan.notes == (f"{kind}: {UNKNOWN}",)
    assert removed(plan, kind) == []


@pytest.fixture
def resolved(spec, measured, tmp_path):
    def resolve(*edits):
        study = spec(*edits)
        assert with_groups(study, WORKLOAD, tmp_path / "run") == study  # nothing is measured yet
        groups = measured(make_plan(study, TYPED)).points[0].terms.groups
        found = with_groups(study, WORKLOAD, tmp_path / "run")
        assert not waits_for_groups(found)
        return make_plan(found, TYPED), groups

    return resolve


def test_auto_leaves_out_one_group_of_collinear_terms_at_a_time(resolved):
    plan, groups = resolved((LEAVE, "leave_group_out: auto"))
    fields = [factor.path.rpartition(".")[2] for factor in plan.spec.factors if factor.path.endswith("_weight")]
    assert removed(plan, "leave_group_out") == [{fields[index] for index in group} for group in groups]
    assert len(groups) < len(fields)
    assert plan.notes == ()


def test_auto_factorial_moves_groups(resolved):
    plan, groups = resolved((LEAVE, "factorial: {over: auto}"))
    rows = removed(plan, "factorial")
    assert len(rows) == 2 ** len(groups) - 2  # all but the baseline and the one without a term
    assert {"raw_weight", "distribution_normalized_weight"} <= rows[0]
    assert all(("raw_weight" in row) == ("distribution_normalized_weight" in row) for row in rows)


def test_terms_that_are_off_are_in_no_group(resolved):
    on = (
        "normalized_inverse_surprisal_token_weighted_weight: 0,",
        "normalized_inverse_surprisal_token_weighted_weight: 1,",
    )
    weights = ("raw_weight: 1.0,", ZERO["raw_weight: 1.0,"].replace(*on))
    plan, _ = resolved(
        weights, ("{ablate_to: 0, values: [0.5x, 1x, 2x]}", "{ablate_to: 0}"), (LEAVE, "leave_group_out: auto")
    )
    rows = removed(plan, "leave_group_out")
    assert len(rows) == 2
    off = {"example_inverse_surprisal_weight", "token_weighted_weight"}
    assert all(off <= row for row in rows)


def test_one_group_of_all_terms_yields_no_arm(resolved):
    with pytest.raises(SpecError, match=r"leave_group_out: yields no arm: breaks active\(reconstruction"):
        resolved(
            *ZERO.items(),
            (LEAVE, "leave_group_out: auto"),
        )


def test_a_factorial_over_groups_of_the_file(spec):
    plan = make_plan(
        spec((LEAVE, "factorial: {over: [['*.raw_weight', '*.dist*'], ['*.token_weighted_weight'], ['*.example*']]}")),
        TYPED,
    )
    rows = removed(plan, "factorial")
    assert len(rows) == 7
    assert all(("raw_weight" in row) == ("distribution_normalized_weight" in row) for row in rows)
    assert plan.notes[0] == (
        "factorial: all 8 combinations of A = raw_weight, B = example_inverse_surprisal_weight, "
        "C = token_weighted_weight"
    )


def test_groups_that_share_a_factor_with_a_zip_move_as_one(spec):
    zipped = "together: [[reconstruction.raw_weight, reconstruction.token_weighted_weight]]\ndesigns:"
    study = spec((LEAVE, "factorial: {over: [['*.raw_weight', '*.dist*'], ['*.example*']]}"), ("designs:", zipped))
    rows = removed(make_plan(study, TYPED), "factorial")
    assert rows == [
        {"raw_weight", "distribution_normalized_weight", "token_weighted_weight"},
        {"example_inverse_surprisal_weight"},
        {"raw_weight", "distribution_normalized_weight", "token_weighted_weight", "example_inverse_surprisal_weight"},
    ]


SEARCH = "search: {over: canonical, trials: 4}"
WITH_SELECT = ("workload: typed", "workload: searched")


def test_a_search_in_canonical_coordinates_waits_for_the_groups(spec):
    study = spec((LEAVE, SEARCH), WITH_SELECT)
    assert waits_for_groups(study)
    planner = Planner(study, TYPED)
    assert planner.search_names() == []
    assert planner.plan({}).notes == (f"search-1: {UNKNOWN}",)


def test_a_search_in_canonical_coordinates_has_a_share_for_each_direction(spec, measured, tmp_path):
    study = spec((LEAVE, SEARCH), WITH_SELECT)
    groups = measured(make_plan(study, TYPED)).points[0].terms.groups
    found = with_groups(study, WORKLOAD, tmp_path / "run")
    [task] = Planner(found, TYPED).searches
    weights = [factor.path for factor in found.factors if factor.path.endswith("_weight")]
    assert list(task.space.dimensions) == [weights[group[0]] for group in groups]
    assert len(groups) < len(weights)
    shares = task.space.ask(lambda dimension: 0.3).shares
    assert sum(shares.values()) == pytest.approx(1)
    for group in groups:
        own = [shares[weights[index]] for index in group]
        assert own == pytest.approx([1 / len(groups) / len(group)] * len(group))


def test_one_direction_is_nothing_to_search(spec, measured, tmp_path):
    two = ("raw_weight: 1.0,", ZERO["raw_weight: 1.0,"])
    own = "  reconstruction.raw_weight: [1, 2]\n  reconstruction.distribution_normalized_weight: [1, 2]"
    factors = ("  reconstruction.*_weight: {ablate_to: 0, values: [0.5x, 1x, 2x]}", own)
    study = spec(two, factors, (LEAVE, SEARCH), WITH_SELECT)
    measured(make_plan(study, TYPED))
    with pytest.raises(SpecError, match="got canonical, but the data tell one direction apart"):
        Planner(with_groups(study, WORKLOAD, tmp_path / "run"), TYPED)


def test_a_search_over_auto_is_over_a_factor_of_that_name(folder):
    [problem] = folder.problems(edited((LEAVE, "search: {over: auto}"), WITH_SELECT))
    assert problem.startswith("s.yaml:13:20: designs[0].search.over: auto matches no factor; ")


def test_groups_outlive_the_table_they_come_from(spec, measured, tmp_path):
    study = spec((LEAVE, "leave_group_out: auto\n  - factorial: {over: auto}"))
    measured(make_plan(study, TYPED))
    found = with_groups(study, WORKLOAD, tmp_path / "run")
    keep_groups(found, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "reference")
    assert with_groups(study, WORKLOAD, tmp_path / "run") == found
    (tmp_path / "run" / GROUPS_FILE).write_text("[")
    assert with_groups(study, WORKLOAD, tmp_path / "run") == study


def test_a_study_without_auto_is_left_as_it_is(spec, tmp_path):
    study = spec()
    assert with_groups(study, WORKLOAD, tmp_path / "run") is study
    assert all(design.settings.get("groups") != AUTO for design in study.designs)


def test_auto_needs_weights_among_the_factors(folder):
    text = edited(
        (LEAVE, "leave_group_out: auto"), ("  reconstruction.*_weight: {ablate_to: 0, values: [0.5x, 1x, 2x]}\n", "")
    )
    [problem] = folder.problems(text)
    assert problem.startswith("s.yaml:12:22: designs[0].leave_group_out: reconstruction.*_weight matches no factor; ")
