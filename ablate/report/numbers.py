"""Numbers as a reader wants them: digits that the uncertainty supports, never more."""

from __future__ import annotations

import math

MINUS, PLUS_MINUS, MISSING = "−", "±", "–"


def number(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits; inf and a missing value by name."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    return fixed(value, max(0, digits - 1 - _magnitude(value)))


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with so many decimals."""
    if not math.isfinite(value):
        return number(value)
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    if not text.strip("+-0."):  # rounded to zero, which has no sign
        return text.lstrip("+-")
    return text.replace("-", MINUS)


def decimals_for(half: float, *values: float) -> int:
    """Decimals that show an uncertainty of `half` with two digits; without one, four digits of the largest value."""
    if math.isfinite(half) and half > 0:
        return min(8, max(0, 1 - _magnitude(half)))
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return min(8, max(0, 3 - _magnitude(largest))) if largest else 2


def with_half(mean: float, half: float, *, signed: bool = False) -> str:
    """`mean ± half`, both to the digits that half supports; the mean alone where half is unknown."""
    decimals = decimals_for(half, mean)
    text = fixed(mean, decimals, signed=signed)
    return f"{text} {PLUS_MINUS} {fixed(half, decimals)}" if math.isfinite(half) else text


def interval(low: float, high: float) -> str:
    """`[low, high]` to two digits of its half-width."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    decimals = decimals_for((high - low) / 2, low, high)
    return f"[{fixed(low, decimals, signed=True)}, {fixed(high, decimals, signed=True)}]"


def p_value(p: float) -> str:
    """A p value to three decimals, with `<` below that."""
    if math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0
