"""Expressions of `when` and `constraints`: parsed here, never run as Python.

    expression  := all ("or" all)*
    all         := inverse ("and" inverse)*
    inverse     := "not" inverse | comparison
    comparison  := total (("<" | "<=" | ">" | ">=" | "==" | "!=") total)?
    total       := product (("+" | "-") product)*
    product     := signed (("*" | "/") signed)*
    signed      := "-" signed | number | "text" | path | ("active" | "sum") "(" glob ")" | "(" expression ")"

`true`, `false` and `null` are values. Nothing is converted: text is never a number, a number never a condition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.spec.paths import matching
from ablate.spec.wording import hint, shown

MAX_NESTING = 50
MAX_LENGTH = 10_000
MAX_DIGITS = 300


class ExpressionError(Exception):
    """What is wrong with an expression; `column` counts its characters from 1, 0 where there is no place."""

    def __init__(self, message: str, column: int = 0) -> None:
        self.column = column
        super().__init__(f"{message} (column {column} of the expression)" if column else message)


# --- the parsed form ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A number, a text, true, false or null."""

    value: Any


@dataclass(frozen=True)
class Path:
    """The value at a path of the configuration, given by its parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """`active` or `sum` over the paths that a glob stands for."""

    function: str
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Unary:
    """`not` or `-`."""

    operator: str
    operand: Term


@dataclass(frozen=True)
class Chain:
    """Operands joined by operators of one rank, read from the left."""

    first: Term
    rest: tuple[tuple[str, Term], ...]


Term = Value | Path | Call | Unary | Chain


# --- parsing ------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<name>[^\W\d]\w*(?:\.\w+)*)
    | (?P<operator><=|>=|==|!=|[-+*/<>()=])
    )""",
    re.VERBOSE,
)
GLOB = re.compile(r"\s*(?P<glob>[^()\s]+)")
WORDS = {"true": True, "false": False, "null": None}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
FUNCTIONS = ("active", "sum")


@dataclass(frozen=True)
class Token:
    """One word of an expression. `kind` is a group of TOKEN, `glob`, or `end`."""

    kind: str
    text: str
    column: int


def _tokens(text: str) -> list[Token]:
    """The words of an expression; what stands between the parentheses of a function is one word, a glob."""
    tokens: list[Token] = []
    position = 0
    while text[position:].strip():
        call = len(tokens) > 1 and tokens[-1].text == "(" and tokens[-2].text in FUNCTIONS
        found = (GLOB if call else TOKEN).match(text, position)
        if found is None or found.lastgroup is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            wanted = "a path or a glob" if call else "a number, a text, a path or an operator"
            raise ExpressionError(f"got {shown(text[start])}; {wanted} goes here", start + 1)
        tokens.append(Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup) + 1))
        position = found.end()
    return [*tokens, Token("end", "", len(text) + 1)]


class _Parser:
    """Reads a list of tokens by recursive descent; `paths` are those that a configuration has."""

    def __init__(self, tokens: list[Token], paths: Collection[str]) -> None:
        self.tokens = tokens
        self.paths = paths
        self.next = 0
        self.nesting = 0

    def peek(self) -> Token:
        return self.tokens[self.next]

    def take(self, *texts: str) -> Token | None:
        """The next token, if it is an operator or word among `texts`."""
        token = self.peek()
        if token.kind in ("operator", "name") and token.text in texts:
            self.next += 1
            return token
        return None

    def expect(self, text: str) -> None:
        if self.take(text) is None:
            raise self.unexpected(f"'{text}'")

    def unexpected(self, wanted: str) -> ExpressionError:
        token = self.peek()
        got = "the end" if token.kind == "end" else shown(token.text)
        advice = "; equality is written ==" if token.text == "=" else ""
        return ExpressionError(f"got {got}; {wanted} goes here{advice}", token.column)

    def chain(self, operand: Callable[[], Term], *operators: str) -> Term:
        first = operand()
        rest: list[tuple[str, Term]] = []
        while operator := self.take(*operators):
            rest.append((operator.text, operand()))
        return Chain(first, tuple(rest)) if rest else first

    def expression(self) -> Term:
        return self.chain(self.all, "or")

    def all(self) -> Term:
        return self.chain(self.inverse, "and")

    def inverse(self) -> Term:
        if self.take("not"):
            return Unary("not", self.deeper(self.inverse))
        return self.comparison()

    def comparison(self) -> Term:
        first = self.total()
        operator = self.take(*COMPARISONS)
        if operator is None:
            return first
        second = self.total()
        if another := self.take(*COMPARISONS):
            raise ExpressionError("comparisons are not chained; write a < b and b < c", another.column)
        return Chain(first, ((operator.text, second),))

    def total(self) -> Term:
        return self.chain(self.product, "+", "-")

    def product(self) -> Term:
        return self.chain(self.signed, "*", "/")

    def signed(self) -> Term:
        if self.take("-"):
            return Unary("-", self.deeper(self.signed))
        if self.take("("):
            inner = self.deeper(self.expression)
            self.expect(")")
            return inner
        return self.atom()

    def deeper(self, rule: Callable[[], Term]) -> Term:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise ExpressionError(f"nested more than {MAX_NESTING} deep", self.peek().column)
        term = rule()
        self.nesting -= 1
        return term

    def atom(self) -> Term:
        token = self.peek()
        if token.kind not in ("number", "text", "name") or token.text in ("and", "or", "not"):
            raise self.unexpected("a number, a text, a path or '('")
        self.next += 1
        if token.kind == "number":
            return Value(_number(token))
        if token.kind == "text":
            return Value(token.text[1:-1])
        if token.text in WORDS:
            return Value(WORDS[token.text])
        return self.call(token) if self.take("(") else self.path(token)

    def path(self, token: Token) -> Term:
        if token.text not in self.paths:
            advice = hint(token.text, self.paths)
            raise ExpressionError(f"{token.text} is no path of the configuration{advice}", token.column)
        return Path(tuple(token.text.split(".")))

    def call(self, function: Token) -> Term:
        if function.text not in FUNCTIONS:
            raise ExpressionError(
                f"{function.text} is no function; there are active(glob) and sum(glob)", function.column
            )
        glob = self.peek()
        if glob.kind != "glob":
            raise self.unexpected("a path or a glob")
        self.next += 1
        self.expect(")")
        paths = matching(glob.text, self.paths)
        if not paths:
            advice = hint(glob.text, self.paths)
            raise ExpressionError(f"{glob.text} matches no path of the configuration{advice}", glob.column)
        return Call(function.text, tuple(tuple(path.split(".")) for path in paths))


def _number(token: Token) -> int | float:
    if len(token.text) > MAX_DIGITS or math.isinf(float(token.text)):
        raise ExpressionError("the number is too large", token.column)
    return int(token.text) if token.text.isdecimal() else float(token.text)


def parse(text: str, paths: Collection[str]) -> Term:
    """Read an expression over a configuration that has these leaf paths.

    Raises: ExpressionError.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    parser = _Parser(_tokens(text), paths)
    term = parser.expression()
    if parser.peek().kind != "end":
        raise parser.unexpected("an operator or the end")
    return term


# --- evaluation ---------------------------------------------------------------------------------


def holds(term: Term, config: Mapping[str, Any]) -> bool:
    """Whether a condition is true of a configuration.

    Raises: ExpressionError if it is no condition, or asks what has no answer (text as a number, division by 0).
    """
    try:
        return _condition(evaluate(term, config))
    except OverflowError:
        raise ExpressionError("a number in it becomes too large") from None


def evaluate(term: Term, config: Mapping[str, Any]) -> Any:
    """The value of an expression; a missing path reads as null.

    Raises: ExpressionError as holds.
    """
    match term:
        case Value(value):
            return value
        case Path(parts):
            return _read(config, parts)
        case Call("active", paths):
            return sum(_read(config, path) not in (0, None) for path in paths)
        case Call(_, paths):
            return sum(_quantity(_read(config, path)) for path in paths)
        case Unary("not", operand):
            return not _condition(evaluate(operand, config))
        case Unary(_, operand):
            return -_quantity(evaluate(operand, config))
        case Chain(first, ((("and" | "or") as joint, _), *_) as rest):
            results = (_condition(evaluate(operand, config)) for operand in (first, *(term for _, term in rest)))
            return all(results) if joint == "and" else any(results)
        case Chain(first, rest):
            result = evaluate(first, config)
            for operator, operand in rest:
                result = OPERATIONS[operator](result, evaluate(operand, config))
            return result


def _read(config: Mapping[str, Any], parts: tuple[str, ...]) -> Any:
    value: Any = config
    try:
        for part in parts:
            value = value[part]
    except (KeyError, TypeError, IndexError):
        return None
    return value


def _condition(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"got {shown(value)} where true or false is needed")
    return value


def _quantity(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"got {shown(value)} where a number is needed")
    return value


def _equal(left: Any, right: Any) -> bool:
    """True is not 1; 1 is 1.0."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _divided(left: Any, right: Any) -> float:
    if _quantity(right) == 0:
        raise ExpressionError("division by 0")
    return _quantity(left) / _quantity(right)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: _quantity(left) + _quantity(right),
    "-": lambda left, right: _quantity(left) - _quantity(right),
    "*": lambda left, right: _quantity(left) * _quantity(right),
    "/": _divided,
    "<": lambda left, right: _quantity(left) < _quantity(right),
    "<=": lambda left, right: _quantity(left) <= _quantity(right),
    ">": lambda left, right: _quantity(left) > _quantity(right),
    ">=": lambda left, right: _quantity(left) >= _quantity(right),
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
}
