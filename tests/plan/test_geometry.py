# ruff: noqa: E501 - messages and edits of the example are one line

import json
from dataclasses import dataclass, field, replace

import pytest
import torch
from rich.console import Console

from ablate.plan.cost import Cost
from ablate.plan.describe import plan_json, plan_text
from ablate.plan.geometry import MOST_SETTINGS, geometry_json, gram_request, read_geometry
from ablate.plan.geometry_text import geometry_text, geometry_warnings, no_geometry, resolution
from ablate.plan.planning import make_plan
from ablate.workloads.sequence_vae.term_geometry import weight_gram
from ablate.workloads.weight_gram import gram_file
from tests.losses.batches import batch
from tests.spec.example import FREE, FREE_STUDY, TYPED, Workload, edited

ZERO = {
    "raw_weight: 1.0,": "raw_weight: 1.0, distribution_normalized_weight: 2.5, example_inverse_surprisal_weight: 0, "
    "token_weighted_weight: 0, normalized_concentration_corrected_token_weighted_weight: 0, "
    "normalized_inverse_surprisal_token_weighted_weight: 0,",
    "{ablate_to: 0, values: [0.5x, 1x, 2x]}": "{ablate_to: 0, values: [1.0, 2.0, 2.5, 5.0]}",
}
"""A baseline of two terms that are one up to 1/c (2.5), each half of the weight."""


@dataclass(frozen=True)
class Measurable(Workload):
    geometry: str | None = "ablate.workloads.synthetic_sequences.workload:geometry"
    prepared_key: object = field(default=lambda config: f"table-{config['data']['seed']}-{config['reference']['seed']}")


WORKLOAD = Measurable("typed")


@pytest.fixture
def plan(folder):
    return lambda *edits, **options: make_plan(folder.load(edited(*edits), **options), TYPED)


def measure(plan, folder, threshold=0.95):
    """Measures what a plan asks for on random surprisals, as a run would, and reads it."""
    request = gram_request(plan.spec, plan.arms, WORKLOAD)
    data = batch(40, 7)
    scales = {"token_sum": 2.5, "token_mean": 0.5}
    found = weight_gram(data.surprisal, data.mask, request.settings, scales, "0" * 64)
    table = folder / request.key
    table.mkdir(exist_ok=True, parents=True)
    gram_file(table, request.settings).write_text(json.dumps(found.to_json()))
    return read_geometry(plan, WORKLOAD, folder, threshold)


@pytest.fixture
def measured(tmp_path):
    return lambda plan, threshold=0.95: measure(plan, tmp_path, threshold)


def printed(*parts):
    console = Console(width=300, force_terminal=False, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return [line.rstrip() for line in capture.get().splitlines()]


ALPHA = ("  kl.beta: {min", "  reconstruction.token_weight_alpha: {min: 0, max: 2, levels: 3}\n  kl.beta: {min")


def test_what_is_measured(plan):
    made = plan(ALPHA, ("kl.beta]", "kl.beta, reconstruction.token_weight_alpha]"))
    request = gram_request(made.spec, made.arms, WORKLOAD)
    assert request.key == "table-0-0"
    assert request.settings == (
        (1.0, 0.1, 0.1, "token_sum"),
        (1.0, 0.1, 0.1, "token_mean"),
        (0.0, 0.1, 0.1, "token_sum"),
        (2.0, 0.1, 0.1, "token_sum"),
    )


def test_more_settings_than_are_measured_are_counted_and_said(plan, measured):
    made = plan((ALPHA[0], ALPHA[1].replace("levels: 3", "levels: 70")))
    assert len(gram_request(made.spec, made.arms, WORKLOAD).settings) == MOST_SETTINGS
    grid = plan(
        (ALPHA[0], ALPHA[1].replace("levels: 3", "levels: 70")),
        ("kl.beta]", "kl.beta]\n  - grid: [reconstruction.token_weight_alpha]"),
    )
    warning = geometry_warnings(measured(grid))[-1]
    assert warning == (
        "8 arms have no coordinates: at a setting that was not measured; at most 64 are, by `ablate terms FILE`"
    )


def test_points_begin_with_the_baseline_and_say_what_they_change(plan, measured):
    points = measured(plan(ALPHA)).points
    assert [point.change for point in points] == [
        "",
        "token_aggregation=token_mean",
        "token_weight_alpha=0",
        "token_weight_alpha=2",
    ]
    flat = points[2].terms.cosines
    assert flat[0, 3] == pytest.approx(1)  # alpha 0 makes token-weighted raw


def test_distances_stand_in_the_plan(plan, measured):
    made = plan()
    geometry = measured(made)
    lines = printed(*plan_text(made, {}, Cost(None), None, geometry))
    head = next(line for line in lines if line.startswith("arm "))
    assert head.split() == ["arm", "designs", "distance"]
    shown = {
        line.split()[0]: line.split()[-1] for line in lines if line.startswith(("baseline ", "beta=", "-raw_weight "))
    }
    assert shown["baseline"] == shown["beta=0.5"] == "0"
    assert shown["-raw_weight"] == f"{geometry.arms['-raw_weight'].distance:.3g}"
    assert resolution(geometry) in lines
    assert plan_json(made, {}, geometry)["geometry"] == geometry_json(geometry, "which-terms")
    assert "geometry" not in plan_json(made, {})


def test_resolution_names_the_nearest_and_the_farthest(plan, measured):
    geometry = measured(plan())
    moved = {label: arm.distance for label, arm in geometry.arms.items() if arm.distance > 0}
    nearest, farthest = min(moved, key=moved.get), max(moved, key=moved.get)
    assert resolution(geometry) == (
        f"distance: from {moved[nearest]:.2g} ({nearest}) to {moved[farthest]:.2g} ({farthest}) of the mean token weight; of "
        "arms of one β_eff, the nearer one has the smaller effect to expect and takes more seeds"
    )
    still = replace(geometry, arms={"baseline": geometry.arms["baseline"]})
    assert resolution(still) == "distance: no arm has other token weights than the baseline"


def test_arms_that_are_one_training_are_named_in_pairs(plan, measured):
    made = plan(*ZERO.items(), ("kl.beta]", "kl.beta]\ncontrols: {rescaled: true, aa: 1}"))
    geometry = measured(made)
    twins = ("-raw_weight ~rescaled", "-distribution_normalized_weight ~rescaled")
    assert {(pair.first, pair.second) for pair in geometry.pairs} == {
        ("-raw_weight", "-distribution_normalized_weight"),
        ("baseline", twins[0]),
        ("baseline", twins[1]),
        ("-raw_weight", "beta=2.0"),  # half the weight taken out is beta doubled
    }
    assert "aa-1" in geometry.arms
    plain = next(pair for pair in geometry.pairs if pair.first == "-raw_weight")
    assert plain.sentence() == (
        "-raw_weight and -distribution_normalized_weight are one training up to the objective's scale: token weights "
        "differ by 0 % of their mean, β_eff 1 and 1; their scale is the same too, so seed by seed they give the same "
        "numbers up to rounding"
    )
    assert plain.sentence() in geometry_warnings(geometry)


def test_a_pair_of_another_scale_is_said_to_be_one(plan, measured):
    made = plan(
        *ZERO.items(),
        ("kl: {beta: 1.0}", "kl: {beta: 1.0}\n  training: {steps: 10}"),
        (
            "kl.beta]",
            "kl.beta]\n  - grid: [reconstruction.raw_weight, reconstruction.distribution_normalized_weight, kl.beta]",
        ),
    )
    pairs = {(pair.first, pair.second): pair for pair in measured(made).pairs}
    label = "raw_weight=2.0, distribution_normalized_weight=5.0, beta=2.0"
    sentence = pairs["baseline", label].sentence()
    assert sentence.endswith(
        "β_eff 0.5 and 0.5; a difference between them shows step size and clipping, not information"
    )


def test_arms_that_differ_in_anything_else_are_no_pair(plan, measured):
    made = plan(
        *ZERO.items(),
        (
            "  kl.beta: {min",
            "  training.learning_rate: [0.001, 0.003]\n  latent: [continuous, discrete]\n  kl.beta: {min",
        ),
        ("kl.beta]", "latent, training.learning_rate]"),
    )
    geometry = measured(made)
    assert [(pair.first, pair.second) for pair in geometry.pairs] == [
        ("-raw_weight", "-distribution_normalized_weight")
    ]
    assert geometry.arms["latent=discrete"].distance == 0


def test_collinear_weights_are_offered_as_a_line_to_paste(plan, measured):
    geometry = measured(plan(), threshold=0.99)
    [group] = geometry.together
    assert group[:2] == ("reconstruction.raw_weight", "reconstruction.distribution_normalized_weight")
    assert geometry_warnings(geometry)[-1] == (
        "the data cannot tell these apart (cosines at least 0.99): left out one at a time each looks droppable, because "
        f"the others stay; move them as one: `together: [[{', '.join(group)}]]`"
    )


def test_weights_that_move_as_one_already_are_not_offered(plan, measured):
    line = "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]\ndesigns:"
    geometry = measured(plan(("designs:", line)), threshold=0.999)
    assert geometry.together == ()
    assert measured(plan(*ZERO.items())).together == (
        ("reconstruction.raw_weight", "reconstruction.distribution_normalized_weight"),
    )


def test_an_arm_over_another_table_has_no_coordinates(plan, measured):
    made = plan(("  kl.beta: {min", "  reference.seed: [0, 1]\n  kl.beta: {min"), ("kl.beta]", "reference.seed]"))
    geometry = measured(made)
    assert geometry.arms["reference.seed=1"] is None
    assert geometry_warnings(geometry)[-1] == (
        "1 arm has no coordinates: over another reference table than the baseline's"
    )
    assert geometry_json(geometry, "s")["arms"][-1] == {"arm": "reference.seed=1"}


def test_json_is_json(plan, measured):
    found = geometry_json(measured(plan(*ZERO.items())), "which-terms")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["points"][0]["variance_inflation"][0] is None
    assert found["weights"][0] == "raw_weight"
    assert found["arms"][0]["distance"] == 0
    assert set(found["arms"][0]) >= {"scale", "beta_eff", "effective_token_count", "direction_1", "outside"}


def test_text(plan, measured):
    lines = printed(*geometry_text(measured(plan(ALPHA)), "which-terms"))
    assert lines[0] == "which-terms"
    assert lines[1].startswith("6 terms over ")
    row = next(line.split() for line in lines if line.startswith("1  raw_weight"))
    assert row[2:4] == ["1.00", "1.00"]
    assert row[-1] == "∞"
    assert any(line.startswith("singular values ") and line.endswith(" of 6") for line in lines)
    assert any(line.startswith("token_weight_alpha=2") for line in lines)
    assert any(
        line.startswith("the data cannot tell apart (every cosine at least 0.95): raw_weight, ") for line in lines
    )


def test_what_was_not_measured_is_not_there(plan, tmp_path):
    made = plan()
    assert read_geometry(made, WORKLOAD, tmp_path) is None
    request = gram_request(made.spec, made.arms, WORKLOAD)
    (tmp_path / request.key).mkdir()
    gram_file(tmp_path / request.key, request.settings).write_text("{")
    assert read_geometry(made, WORKLOAD, tmp_path) is None


def test_an_edited_file_is_read_as_far_as_it_was_measured(plan, measured, tmp_path):
    measured(plan(ALPHA))
    made = plan(
        (ALPHA[0], ALPHA[1].replace("levels: 3", "levels: 5")), ("kl.beta]", "reconstruction.token_weight_alpha]")
    )
    geometry = read_geometry(made, WORKLOAD, tmp_path)
    assert [point.change for point in geometry.points] == [
        "",
        "token_aggregation=token_mean",
        "token_weight_alpha=0",
        "token_weight_alpha=2",
    ]
    assert geometry.arms["token_weight_alpha=0.5"] is None
    assert geometry.unmeasured == {"at a setting that was not measured; at most 64 are, by `ablate terms FILE`": 2}
    other = plan(("token_weight_alpha: 1.0", "token_weight_alpha: 0.7"))
    assert read_geometry(other, WORKLOAD, tmp_path) is None  # the baseline's own setting was never measured


def test_a_table_that_newer_code_names_otherwise_still_does(plan, measured, tmp_path):
    made = plan()
    expected = measured(made)
    renamed = replace(WORKLOAD, prepared_key=lambda config: "table-of-newer-code")
    assert read_geometry(made, renamed, tmp_path) is None
    assert read_geometry(made, renamed, tmp_path, keys=["gone", "table-0-0"]).arms == expected.arms


def test_training_data_without_a_token_have_no_geometry(plan, tmp_path):
    made = plan()
    request = gram_request(made.spec, made.arms, WORKLOAD)
    scales = {"token_sum": 1.0, "token_mean": 1.0}
    empty = weight_gram(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool), request.settings, scales)
    (tmp_path / request.key).mkdir()
    gram_file(tmp_path / request.key, request.settings).write_text(json.dumps(empty.to_json()))
    assert read_geometry(made, WORKLOAD, tmp_path) is None


def test_a_workload_without_the_loss_stack_has_none(folder):
    made = make_plan(folder.load(FREE_STUDY), FREE)
    assert gram_request(made.spec, made.arms, replace(WORKLOAD, geometry=None)) is None
    assert gram_request(made.spec, made.arms, WORKLOAD) is None
    assert no_geometry("mine:train") == (
        "mine:train has no term geometry: its weight matrices cannot be known before training; allowed: a workload that "
        "trains with the loss stack over a reference table, such as synthetic_sequences"
    )
