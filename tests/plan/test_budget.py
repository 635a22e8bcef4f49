"""The menu of designs for a budget."""

import math

import pytest
from rich.console import Console

from ablate.errors import SpecError
from ablate.plan.budget import design_menu, menu_json, menu_text
from ablate.plan.cost import Cost
from ablate.plan.power import test_power as power_of
from tests.spec.example import STUDY, TYPED, edited


def menu(folder, budget, *edits):
    return {option.design: option for option in design_menu(folder.load(edited(*edits)), TYPED.config_type, budget)}


def test_every_design_of_six_terms_stands_beside_the_others(folder):
    found = menu(folder, 2000)
    assert {name: option.arms for name, option in found.items()} == {
        "leave_one_out": 7,
        "add_one_in": 7,
        "factorial {fraction: plackett_burman}": 9,
        "factorial {resolution: III}": 9,
        "factorial {resolution: IV}": 17,
        "factorial {resolution: VI}": 33,
        "factorial {fraction: full}": 63,
    }
    for option in found.values():
        assert option.trials <= 2000
        assert option.trials + option.arms > 2000
        assert option.estimand


def test_precision_is_that_of_the_formulas(folder):
    found = menu(folder, 112)
    alone, halves = found["leave_one_out"], found["factorial {resolution: IV}"]
    assert (alone.seeds, halves.seeds) == (16, 6)
    assert alone.standard_error == pytest.approx(math.sqrt(2 / 16))
    assert halves.standard_error == pytest.approx(2 / math.sqrt(6 * 16))
    assert alone.detectable == pytest.approx(math.sqrt(2) * power_of(16, 6, 0.05).detectable_effect_sd)
    assert halves.smallest_p == power_of(6, 6, 0.05).smallest_p


def test_a_budget_too_small_to_reject_says_nothing_is_detectable(folder):
    assert math.isinf(menu(folder, 21)["leave_one_out"].detectable)
    as_json = menu_json(list(menu(folder, 21).values()), Cost(30.0, 0.25))
    assert as_json[0]["detectable"] is None
    assert as_json[0]["gpu_hours"] == pytest.approx(21 * 30 * 0.25 / 3600)


def test_a_budget_smaller_than_any_design_is_refused(folder):
    with pytest.raises(SpecError) as caught:
        menu(folder, 6)
    assert str(caught.value) == "--budget: got 6; the smallest design, leave_one_out, takes 7 trials with one seed"


def test_without_anything_to_take_out_there_is_no_menu(folder):
    text = STUDY.replace("ablate_to: 0, ", "").replace("leave_one_out", "one_at_a_time")
    with pytest.raises(SpecError) as caught:
        design_menu(folder.load(text), TYPED.config_type, 100)
    assert str(caught.value) == "s.yaml: --budget compares designs over factors with `ablate_to`; there is none"


def test_a_group_counts_as_one(folder):
    together = "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]\ndesigns:"
    assert menu(folder, 100, ("designs:", together))["leave_one_out"].arms == 6


def test_text(folder):
    console = Console(width=220, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(menu_text(list(menu(folder, 64).values()), 64, Cost(60.0)))
    lines = capture.get().splitlines()
    assert lines[0] == "64 trials"
    assert lines[1].split() == [
        "design", "arms", "seeds", "trials", "SE", "detectable", "smallest", "p", "an", "effect", "is", "aliases",
        "cost",
    ]  # fmt: skip
    one = next(line for line in lines if line.startswith("leave_one_out"))
    assert "effect of taking one out, the others at baseline" in one
    assert one.rstrip().endswith("63.0 min of one worker")
