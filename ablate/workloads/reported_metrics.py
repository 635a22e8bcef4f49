"""What the text of a trial function says of its metrics and settings."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def reported_metrics(function: Callable[..., object]) -> tuple[str, ...] | None:
    """Every metric that the function reports, what it returns first; None where its text leaves that open.

    It is certain of a function without decorators whose own text holds every report: each `return` and each
    `trial.report(step, ...)` has a dict display with text keys, and the trial is used by its attributes alone, so
    that no one else can report to it.
    """
    tree = _definition(function)
    if tree is None or tree.decorator_list or len(tree.args.args) < 2:
        return None
    trial = tree.args.args[1].arg
    uses = list(_uses(tree, trial))
    if any(use is None for use in uses):
        return None
    reports = [use for use in uses if isinstance(use, ast.Call)]
    displays = [node.value for node in _own_nodes(tree) if isinstance(node, ast.Return)]
    displays += [call.args[1] if len(call.args) == 2 and not call.keywords else None for call in reports]
    names: dict[str, None] = {}
    for display in displays:
        keys = _text_keys(display)
        if keys is None:
            return None
        names |= dict.fromkeys(keys)
    return tuple(names) or None


def _definition(function: Callable[..., object]) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return tree.body[0] if tree.body and isinstance(tree.body[0], ast.FunctionDef) else None


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions inside it."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            yield from _own_nodes(node)


def _uses(tree: ast.AST, trial: str) -> Iterator[ast.AST | None]:
    """What stands around each mention of the trial: a call of `report`, another attribute, or None for all else.

    `trial = trial or Trial(...)` is no use.
    """
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and node.id == trial):
            continue
        around = parents[node]
        if isinstance(around, ast.Attribute):
            call = parents[around]
            called = isinstance(call, ast.Call) and call.func is around
            yield (call if called else None) if around.attr == "report" else around
        elif not (_is_default(around, trial) or _is_default(parents[around], trial)):
            yield None


def _is_default(node: ast.AST, trial: str) -> bool:
    """Whether a statement is `trial = trial or ...`."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.BoolOp)
        and [target.id for target in node.targets if isinstance(target, ast.Name)] == [trial]
    )


def _text_keys(display: ast.expr | None) -> list[str] | None:
    if not isinstance(display, ast.Dict):
        return None
    keys = [key.value for key in display.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return keys if len(keys) == len(display.keys) else None


def read_settings(function: Callable[..., object]) -> dict[str, Any]:
    """The settings that the function reads as `config.get("name", default)`, with their defaults.

    A start for a study file, no more: what it reads otherwise is not seen.
    """
    tree = _definition(function)
    if tree is None or not tree.args.args:
        return {}
    config = tree.args.args[0].arg
    found = {}
    for call in ast.walk(tree):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=str(key)), default]
            ) if name == config:
                with contextlib.suppress(ValueError):
                    found[key] = ast.literal_eval(default)
    return found
