"""What a store may hold under our names without our having written it: told apart by its types, before it is used.

A store is shared, and everyone who may write to it may write anything. A record of wrong types is left aside and named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ablate.spec.wording import cut, printable

TRIAL_ID = re.compile(r"[0-9a-f]{12}")
"""It names a folder."""
RUN_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
STATES = frozenset({"COMPLETE", "PRUNED", "FAIL"})
LONGEST_TEXT = 100_000
LONGEST_ERROR = 5_000
"""Characters; JSON writes one in 12 bytes at most, and a text column of MySQL holds 64 KiB."""
MOST_ATTEMPTS = 1_000_000


def shortened(text: str) -> str:
    """A text that fits into a store, without its middle where it is too long."""
    half = LONGEST_ERROR // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: Any) -> bool:
    """A number as the ledger writes it: those that JSON has none for are texts."""
    if isinstance(value, str):
        return value in ("nan", "inf", "-inf")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_metrics(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_text(name) and _is_number(item) for name, item in value.items())


def _is_outcome(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.get("state") not in STATES:
        return False
    number = value.get("value")
    texts = _is_text(value.get("reason")) and _is_text(value.get("error"))
    if value["state"] == "COMPLETE" and not (isinstance(number, int | float) and math.isfinite(number)):
        return False
    return texts and (number is None or _is_number(number))


def _is_plain_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


def _is_provenance(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())


REQUIRED: dict[str, Callable[[Any], bool]] = {
    "trial_id": lambda value: isinstance(value, str) and TRIAL_ID.fullmatch(value) is not None,
    "arm": _is_text,
    "seed": _is_whole,
    "replicate": _is_whole,
    "designs": _is_text,
}
OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "attempt": lambda value: _is_whole(value) and 1 <= value <= MOST_ATTEMPTS,
    "deaths": _is_whole,
    "metrics": _is_metrics,
    "outcome": _is_outcome,
    "provenance": _is_provenance,
    "mlflow_run_id": lambda value: isinstance(value, str) and RUN_ID.fullmatch(value) is not None,
}


def fault_of(attributes: Mapping[str, Any]) -> str | None:
    """Why attributes are not those of a trial of ours, or None where they are."""
    for name, fits in REQUIRED.items():
        if name not in attributes:
            return f"attribute {name} is missing"
        if not fits(attributes[name]):
            return f"attribute {name} is {_shown(attributes[name])}"
    for name, fits in OPTIONAL.items():
        if attributes.get(name) is not None and not fits(attributes[name]):
            return f"attribute {name} is {_shown(attributes[name])}"
    return None


PROPOSAL: dict[str, Callable[[Any], bool]] = {
    "values": _is_plain_mapping,
    "shares": _is_metrics,
    "seeds": lambda value: isinstance(value, list) and all(map(_is_whole, value)),
    "trial_ids": lambda value: isinstance(value, list) and all(map(REQUIRED["trial_id"], value)),
    "arm": _is_text,
    "reason": _is_text,
    "infeasible": _is_text,
    "again": _is_whole,
}


def proposal_fault_of(attributes: Mapping[str, Any]) -> str | None:
    """Why attributes are not those of a proposal of ours, or None where they are."""
    for name, fits in PROPOSAL.items():
        if attributes.get(name) is not None and not fits(attributes[name]):
            return f"attribute {name} is {_shown(attributes[name])}"
    return None


def _shown(value: Any) -> str:
    return printable(cut(repr(value), 80))
