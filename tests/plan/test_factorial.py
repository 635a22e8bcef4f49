# ruff: noqa: E501 - notes are one line
import itertools

import numpy as np
import pytest

from ablate.errors import SpecError
from ablate.plan.factorial import FIRST_ROWS, GENERATORS, ROMAN, Fraction, Word, fractions, plackett_burman
from ablate.plan.planning import make_plan
from tests.plan.test_planning import study_of
from tests.spec.example import FREE, FREE_STUDY, TYPED, edited

#: Arms and resolution of each fraction, as Montgomery's table 8.14 states them.
PUBLISHED = {
    3: {4: "III"},
    4: {8: "IV"},
    5: {8: "III", 16: "V"},
    6: {8: "III", 16: "IV", 32: "VI"},
    7: {8: "III", 16: "IV", 32: "IV", 64: "VII"},
    8: {16: "IV", 32: "IV", 64: "V", 128: "VIII"},
    9: {16: "III", 32: "IV", 64: "IV", 128: "VI", 256: "IX"},
    10: {16: "III", 32: "IV", 64: "IV", 128: "V", 512: "X"},
    11: {16: "III", 32: "IV", 64: "IV", 128: "V", 1024: "XI"},
}
ALL = [(size, fraction) for size in PUBLISHED for fraction in fractions(size)]


def resolution_by_counting(rows):
    """Size of the smallest set of columns whose product is constant, from the rows alone."""
    matrix = np.array(rows)
    for count in range(1, matrix.shape[1] + 1):
        for columns in itertools.combinations(range(matrix.shape[1]), count):
            if len(set(matrix[:, columns].prod(axis=1))) == 1:
                return count
    return matrix.shape[1] + 1


@pytest.mark.parametrize("size", PUBLISHED)
def test_every_published_fraction_is_there(size):
    found = {2**fraction.base: ROMAN[fraction.resolution] for fraction in fractions(size)}
    assert found == PUBLISHED[size]
    assert len({key for key in GENERATORS if key[0] == size}) == len(found) - (size > 2)


@pytest.mark.parametrize(
    ("size", "fraction"), ALL, ids=lambda item: str(item) if isinstance(item, int) else str(2**item.base)
)
def test_every_fraction_is_orthogonal_and_holds_something(size, fraction):
    rows = list(fraction.rows())
    matrix = np.array(rows)
    assert len(set(rows)) == len(rows) == 2**fraction.base
    assert np.array_equal(matrix.T @ matrix, len(rows) * np.eye(size))
    assert not matrix.sum(axis=0).any()
    assert (-1,) * size not in rows
    assert fraction.resolution == resolution_by_counting(rows) or size > 9


@pytest.mark.parametrize("size", [4, 6, 8, 10])
def test_where_it_can_be_had_the_baseline_is_no_row(size):
    for fraction in fractions(size):
        assert (1,) * size not in set(fraction.rows())


def test_the_six_terms():
    by_resolution = {fraction.resolution: fraction for fraction in fractions(6)}
    assert by_resolution[4].generators() == "E = -ABC, F = BCD"
    assert by_resolution[6].generators() == "F = -ABCDE"
    assert by_resolution[4].aliases() == [
        "AB = -CE",
        "AC = -BE",
        "AD = -EF",
        "AE = -BC = -DF",
        "AF = -DE",
        "BD = CF",
        "BF = CD",
    ]
    assert by_resolution[6].aliases() == []
    assert by_resolution[3].aliases()[0] == "A = -BD = CE"


@pytest.mark.parametrize("size", [5, 6, 7])
def test_aliases_are_effects_with_the_same_column(size):
    for fraction in fractions(size):
        matrix = np.array(list(fraction.rows()))
        effects = [(index,) for index in range(size)] + list(itertools.combinations(range(size), 2))
        columns = {"".join("ABCDEFG"[index] for index in effect): matrix[:, effect].prod(axis=1) for effect in effects}
        expected = {
            frozenset((left, right if np.array_equal(columns[left], columns[right]) else f"-{right}"))
            for left, right in itertools.combinations(columns, 2)
            if abs(columns[left] @ columns[right]) == len(matrix)
        }
        found = set()
        for chain in fraction.aliases():
            first, *others = chain.split(" = ")
            found |= {frozenset((first, other)) for other in others}
            signs = {other.lstrip("-"): -1 if other.startswith("-") else 1 for other in others}
            for left, right in itertools.combinations(signs, 2):
                found.add(frozenset((left, right if signs[left] == signs[right] else f"-{right}")))
        assert {frozenset(name.lstrip("-") for name in pair) for pair in found} == {
            frozenset(name.lstrip("-") for name in pair) for pair in expected
        }
        assert {sum(name.startswith("-") for name in pair) for pair in found} <= {0, 1}
        for pair in expected:
            assert pair in found or frozenset(reversed_sign(pair)) in found


def reversed_sign(pair):
    """`A = -B` is `-A = B`."""
    minus = [name for name in pair if name.startswith("-")]
    plus = [name for name in pair if not name.startswith("-")]
    return (minus[0][1:], f"-{plus[0]}") if minus and plus else pair


def test_a_full_factorial_has_every_row():
    assert set(Fraction(4).rows()) == set(itertools.product((1, -1), repeat=4))
    assert next(Fraction(3).rows()) == (1, 1, 1)
    assert Fraction(4).aliases() == []
    assert str(Word(0b101, -1)) == "-AC"


@pytest.mark.parametrize("size", range(3, 36))
def test_every_screening_design_is_orthogonal(size):
    rows = plackett_burman(size)
    matrix = np.array(rows)
    assert len(rows) == min(count for count in FIRST_ROWS if count > size)
    assert np.array_equal(matrix.T @ matrix, len(rows) * np.eye(size))
    assert not matrix.sum(axis=0).any()
    assert (-1,) * size not in rows
    assert (1,) * size not in rows or size < 5


def test_there_is_no_larger_screening_design():
    assert plackett_burman(36) is None


# --- in a plan ----------------------------------------------------------------------------------

AVERAGED = "factorial: an effect is averaged over the other factors, unlike in leave_one_out, which has them at baseline; a baseline that is no row of the design is an extra arm, outside the effects"
NAMES = "A = raw_weight, B = distribution_normalized_weight, C = example_inverse_surprisal_weight, D = token_weighted_weight, E = normalized_concentration_corrected_token_weighted_weight, F = normalized_inverse_surprisal_token_weighted_weight"


@pytest.fixture
def plan(folder):
    return lambda design, *edits, **options: make_plan(folder.load(study_of(design, *edits), **options), TYPED)


def test_a_fraction_in_a_plan(plan):
    made = plan("factorial: {over: reconstruction.*_weight, resolution: IV}")
    assert len(made.arms) == 17
    assert made.arms[0].designs == ("baseline",)
    assert {arm.designs for arm in made.arms[1:]} == {("factorial",)}
    rows = {tuple(1 if arm.factors[factor.path] else -1 for factor in made.spec.factors[:6]) for arm in made.arms[1:]}
    (fraction,) = [fraction for fraction in fractions(6) if fraction.resolution == 4]
    assert rows == set(fraction.rows())
    assert made.notes == (
        f"factorial: 2^(6-2), resolution IV, 16 arms; {NAMES}",
        "factorial: generators E = -ABC, F = BCD",
        "factorial: aliases of up to two factors: AB = -CE, AC = -BE, AD = -EF, AE = -BC = -DF, AF = -DE, BD = CF, BF = CD",
        AVERAGED,
    )


def test_a_full_factorial_in_a_plan(plan):
    made = plan("factorial: {over: [reconstruction.raw_weight, reconstruction.token_weighted_weight]}")
    assert [arm.label for arm in made.arms] == [
        "baseline",
        "-raw_weight",
        "-token_weighted_weight",
        "-raw_weight, -token_weighted_weight",
    ]
    assert made.arms[0].designs == ("baseline", "factorial")
    assert made.notes == ("factorial: all 4 combinations of A = raw_weight, B = token_weighted_weight", AVERAGED)


def test_rows_left_out_of_a_factorial_are_named(plan):
    made = plan(
        "factorial: {over: [reconstruction.raw_weight, reconstruction.token_weighted_weight], fraction: full}",
        ("designs:", 'constraints: ["active(reconstruction.*_weight) >= 5"]\ndesigns:'),
    )
    assert made.notes[2:] == (
        "factorial: left out, breaks active(reconstruction.*_weight) >= 5: -raw_weight, -token_weighted_weight",
        "factorial: with rows left out its effects are no longer orthogonal",
    )


def test_a_screening_design_in_a_plan(folder):
    names = [f"f{index}" for index in range(11)]
    text = edited(
        ("rate: 0.1,", f"rate: 0.1, {', '.join(f'{name}: 1' for name in names)},"),
        ("  rate: [0.1x, 1x, 10x]\n", "  f*: {ablate_to: 0}\n  rate: {ablate_to: 0.1}\n"),
        ("one_at_a_time: rate", "factorial: {over: ['f*', rate], fraction: plackett_burman}"),
        text=FREE_STUDY.replace("flag: false, ", ""),
    )
    made = make_plan(folder.load(text), FREE)
    assert len(made.arms) == 13
    assert made.notes == (
        "factorial: rate skipped, the baseline has it at `ablate_to` already",
        "factorial: Plackett-Burman, 12 arms; main effects are partly aliased with all interactions of two factors",
        AVERAGED,
    )


@pytest.mark.parametrize(
    ("over", "settings", "message"),
    [
        ("['*.raw_weight', '*.token_weighted_weight']", "resolution: III", "no fraction of resolution III for 2 factors; possible: fraction: full with 4"),
        ("['*.raw_weight', '*.token_weighted_weight', '*.dist*', '*.ex*_weight']", "resolution: V",
         "no fraction of resolution V for 4 factors; possible: IV with 8 arms, fraction: plackett_burman with 8, fraction: full with 16"),
        ("'*e*_w*'", "resolution: VI", None),
        ("['*.raw_weight', '*.token_weighted_weight', '*.dist*']", "resolution: IV",
         "no fraction of resolution IV for 3 factors; possible: III with 4 arms, fraction: plackett_burman with 4, fraction: full with 8"),
        ("['*.raw_weight', '*.token_weighted_weight']", "fraction: plackett_burman", "no Plackett-Burman design for 2 factors; possible: 3 to 35 factors"),
    ],
)  # fmt: skip
def test_a_fraction_that_does_not_exist(plan, over, settings, message):
    design = f"factorial: {{over: {over}, {settings}}}"
    if message is None:
        assert len(plan(design).arms) > 1
        return
    with pytest.raises(SpecError) as caught:
        plan(design)
    assert str(caught.value) == f"s.yaml:13:5: designs[0].factorial: {message}"


def test_groups_are_left_out_together(plan):
    made = plan("leave_group_out: [['*.raw_weight', '*.dist*'], ['*.token_weighted_weight'], ['*.raw_weight']]")
    assert [arm.label for arm in made.arms] == [
        "baseline",
        "-raw_weight, -distribution_normalized_weight",
        "-token_weighted_weight",
        "-raw_weight",
    ]
    assert {arm.designs for arm in made.arms[1:]} == {("leave_group_out",)}


def test_a_group_takes_a_zip_as_one(plan):
    zipped = "together: [[reconstruction.raw_weight, reconstruction.distribution_normalized_weight]]\ndesigns:"
    made = plan("leave_group_out: [['*.raw_weight', '*.token_weighted_weight']]", ("designs:", zipped))
    assert made.arms[1].label == "-raw_weight, -token_weighted_weight"
    assert made.arms[1].factors["reconstruction.distribution_normalized_weight"] == 0.0
