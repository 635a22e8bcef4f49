"""What commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from typing import Any


def say(text: str) -> None:
    """To whoever watches, beside the result."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    """The result, for machines; NaN is none of theirs."""
    import json

    print(json.dumps(value, indent=1, allow_nan=False))
