"""Digits follow the uncertainty."""

from __future__ import annotations

import math

import pytest

from ablate.report.numbers import interval, number, p_value, with_half


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.11834, "2.118"),
        (-0.0123456, "−0.01235"),
        (0.0, "0.000"),
        (123456.7, "123457"),
        (1.5e7, "1.500e+07"),
        (2e-5, "2.000e−05"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_mean_with_half() -> None:
    assert with_half(2.11834, 0.01234) == "2.118 ± 0.012"
    assert with_half(2.11834, math.nan) == "2.118"
    assert with_half(0.5, 0.0) == "0.5000 ± 0.0000"
    assert with_half(0.021, 0.0099, signed=True) == "+0.0210 ± 0.0099"
    assert with_half(1234.5, 321.0) == "1234 ± 321"


def test_interval() -> None:
    assert interval(-0.0123, 0.0321) == "[−0.012, +0.032]"
    assert interval(-math.inf, math.inf) == "no interval"
    assert interval(0.0, 0.0) == "[0.00, 0.00]"
    assert interval(-0.0001, 0.3) == "[0.00, +0.30]"


def test_p_value() -> None:
    assert [p_value(p) for p in (0.0001, 0.03125, 1.0, math.nan)] == ["< 0.001", "0.031", "1.000", "–"]
