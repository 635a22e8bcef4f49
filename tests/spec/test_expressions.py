# ruff: noqa: E501 - a message is one line
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.spec.expressions import ExpressionError, evaluate, holds, parse
from ablate.spec.paths import leaf_paths

CONFIG = {
    "mode": "sum",
    "flag": True,
    "nothing": None,
    "w": {"a": 1.0, "b": 0.0, "c": 2},
    "kl": {"beta": 0.5},
}
PATHS = list(leaf_paths(CONFIG))


def value(text):
    return evaluate(parse(text, PATHS), CONFIG)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 - 1 - 1", 0),
        ("8 / 2 / 2", 2.0),
        ("-w.a + 3", 2.0),
        ("--2", 2),
        ("1e-1 + .5", 0.6),
        ("sum(w.*)", 3.0),
        ("active(w.*)", 2),
        ("active(w.b)", 0),
        ("active(*)", 5),
        ("w.a", 1.0),
    ],
)
def test_arithmetic(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w.a > 0", True),
        ("w.a>=1 and w.b==0", True),
        ("w.b > 0 or kl.beta < 1", True),
        ("not w.b > 0", True),
        ("not (w.a > 0 or w.b > 0)", False),
        ("mode == 'sum'", True),
        ('mode != "mean"', True),
        ("mode == 'mean' or flag", True),
        ("flag == true", True),
        ("flag == 1", False),
        ("w.a == true", False),
        ("w.c == 2.0", True),
        ("nothing == null", True),
        ("w.a == null", False),
        ("w.a > 0 and not flag", False),
        ("active(w.*) >= 1", True),
        ("w.a + w.b > 0", True),
        ("true or 1 / 0 > 0", True),
    ],
)
def test_conditions(text, expected):
    assert holds(parse(text, PATHS), CONFIG) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got the end; a number, a text, a path or '(' goes here (column 1 of the expression)"),
        ("w.a >", "got the end; a number, a text, a path or '(' goes here (column 6 of the expression)"),
        ("w.a > 0)", 'got ")"; an operator or the end goes here (column 8 of the expression)'),
        ("(w.a > 0", "got the end; ')' goes here (column 9 of the expression)"),
        ("w.a = 1", 'got "="; an operator or the end goes here; equality is written == (column 5 of the expression)'),
        ("w.a $ 1", 'got "$"; a number, a text, a path or an operator goes here (column 5 of the expression)'),
        ("0 < w.a < 1", "comparisons are not chained; write a < b and b < c (column 9 of the expression)"),
        ("w.d > 0", "w.d is no path of the configuration (column 1 of the expression)"),
        ("kl.beeta > 0", "kl.beeta is no path of the configuration; did you mean kl.beta? (column 1 of the expression)"),
        ("active(v.*) > 0", "v.* matches no path of the configuration (column 8 of the expression)"),
        ("max(w.a) > 0", "max is no function; there are active(glob) and sum(glob) (column 1 of the expression)"),
        ("active() > 0", 'got ")"; a path or a glob goes here (column 8 of the expression)'),
        ("__import__('os') == 1", "__import__ is no function; there are active(glob) and sum(glob) (column 1 of the expression)"),
        ("'open", "got \"'\"; a number, a text, a path or an operator goes here (column 1 of the expression)"),
        ("1e999 > 0", "the number is too large (column 1 of the expression)"),
        ("9" * 301 + " > 0", "the number is too large (column 1 of the expression)"),
        ("(" * 51 + "1" + ")" * 51, "nested more than 50 deep (column 52 of the expression)"),
        ("1 + " * 2501 + "1", "longer than 10000 characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(text, message):
    with pytest.raises(ExpressionError) as caught:
        parse(text, PATHS)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("w.a", "got 1.0 where true or false is needed"),
        ("mode > 0", 'got "sum" where a number is needed'),
        ("flag + 1 > 0", "got true where a number is needed"),
        ("sum(*) > 0", 'got "sum" where a number is needed'),
        ("w.a and flag", "got 1.0 where true or false is needed"),
        ("not w.a", "got 1.0 where true or false is needed"),
        ("w.a / w.b > 0", "division by 0"),
        ("nothing > 0", "got null where a number is needed"),
        (" * ".join(["9" * 300] * 3) + " * 0.5 > 0", "a number in it becomes too large"),
    ],
)
def test_what_has_no_answer(text, message):
    with pytest.raises(ExpressionError) as caught:
        holds(parse(text, PATHS), CONFIG)
    assert str(caught.value) == message


def test_as_long_as_it_may_be():
    assert value(" + ".join(["1"] * 2500)) == 2500


numbers = st.integers(0, 9).map(str)
sums = st.recursive(
    numbers,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=12,
)


@given(sums, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), sums)
def test_agrees_with_python_on_whole_numbers(left, operator, right):
    text = f"{left} {operator} {right}"
    assert holds(parse(text, PATHS), CONFIG) == eval(text)


@given(st.text(alphabet="wab.*()+-/<>=!'\" 01notadrsumcive", max_size=40))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ExpressionError):
        assert holds(parse(text, PATHS), CONFIG) in {True, False}
