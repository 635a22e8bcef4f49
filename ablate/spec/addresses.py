"""Addresses of stores and clusters: `${NAME}` in them is filled in from the environment, at use and nowhere else.

What stands in `track.optuna`, `track.mlflow` and `run.address` is kept, recorded and shown as it is written; the text
of an error is shown with the names in place of their values.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from ablate.errors import Problem, SpecError
from ablate.spec.findings import Findings, Loc
from ablate.spec.models import StudySpec

OPTUNA: Loc = ("track", "optuna")
ADDRESSES: tuple[Loc, ...] = (OPTUNA, ("track", "mlflow"), ("run", "address"))
"""Where an address stands in a study file."""

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
QUERY_SECRET = re.compile(r"(?i)[?&](?:password|passwd|pwd|token|secret|sslpassword)=(?!\$\{)[^&]")

SHORTEST_PART = 3
"""Parts of a secret shorter than this stand everywhere."""


def check_addresses(findings: Findings, document: Mapping[str, Any]) -> None:
    """Add what is wrong with the addresses of a document: a password in the file, a `${` that names no variable."""
    for section, key in ADDRESSES:
        written = document.get(str(section))
        address = written.get(key) if isinstance(written, Mapping) else None
        if not isinstance(address, str):
            continue
        rest = VARIABLE.sub("", address)
        if "${" in rest:
            findings.add(
                (section, key), "got a ${ that names no variable; allowed: ${NAME}, NAME of letters, digits, _"
            )
        elif _written_password(address):
            findings.add(
                (section, key),
                "a password stands in the file, which is copied into the records; put it into an environment variable "
                "and write ${NAME} in its place",
            )


def _written_password(address: str) -> bool:
    """Whether some part of a password is written out."""
    scheme, _, rest = address.partition("://")
    if scheme.startswith("sqlite"):
        return False
    if scheme.startswith("http"):
        rest = rest.partition("/")[0]
    password = VARIABLE.sub("", rest.rpartition("@")[0]).partition(":")[2]
    return bool(password or QUERY_SECRET.search(address))


def require_variables(spec: StudySpec, *locs: Loc) -> None:
    """See that the environment has every variable that the addresses of a study name: those at `locs`, or all.

    Raises: SpecError with each that is missing, at its place in the file.
    """
    problems = []
    for section, key in locs or ADDRESSES:
        path = f"{section}.{key}"
        file, line, column = spec.places.get(path, (spec.source, 0, 0))
        address = getattr(getattr(spec, str(section)), str(key))
        problems += [Problem(file, line, column, path, _unset(name)) for name in _missing(address or "")]
    if problems:
        raise SpecError(problems)


def filled_in(address: str) -> str:
    """The address with the values of its variables. One that stands before the `@` is plain text: it is quoted.

    Raises: SpecError where the environment lacks one.
    """
    missing = list(_missing(address))
    if missing:
        raise SpecError(f"{address}: {'; '.join(map(_unset, missing))}")
    head, at, tail = address.rpartition("@")
    if "://" not in head:
        return VARIABLE.sub(lambda found: os.environ[found[1]], address)
    scheme, separator, user_info = head.partition("://")
    user_info = VARIABLE.sub(lambda found: quote(os.environ[found[1]], safe=":"), user_info)
    return VARIABLE.sub(lambda found: os.environ[found[1]], scheme) + separator + user_info + at + filled_in(tail)


def concealed(text: str, address: str | None) -> str:
    """The text with `${NAME}` wherever the value of one of the address's variables stands, in any of its spellings."""
    for name in VARIABLE.findall(address or ""):
        spellings = {spelling for secret in _secrets(os.environ.get(name, "")) for spelling in _spellings(secret)}
        for spelling in sorted(filter(None, spellings), key=len, reverse=True):
            text = text.replace(spelling, f"${{{name}}}")
    return text


def _missing(address: str) -> Iterator[str]:
    return (name for name in dict.fromkeys(VARIABLE.findall(address)) if not os.environ.get(name))


def _unset(name: str) -> str:
    state = "is empty" if name in os.environ else "is not set"
    return f"the environment variable {name} {state}; it stands in this address"


def _secrets(value: str) -> Iterator[str]:
    """What must not be shown of a value: the whole, and where it is a URL itself, the parts before its last `@`."""
    yield value
    user_info = value.partition("://")[2].rpartition("@")[0]
    yield user_info
    yield user_info.partition(":")[2]
    yield from (part for part in re.split(r"[:/@?#]", user_info) if len(part) >= SHORTEST_PART)


def _spellings(secret: str) -> Iterator[str]:
    for plain in (secret, unquote(secret)):
        yield plain
        yield quote(plain, safe=":")
        yield quote(plain, safe="")
        yield quote_plus(plain)
        yield repr(plain)[1:-1]
        yield json.dumps(plain)[1:-1]
