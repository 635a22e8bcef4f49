"""The command line. Heavy imports happen inside the commands, so that `ablate --help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from ablate.cli.planning import diff, init, plan, schema, terms, validate
from ablate.cli.records import check, compare, dashboard, export, list_studies, logs, mlflow, report, status
from ablate.cli.running import run
from ablate.errors import SpecError, StudyError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would cost more than all the rest of it
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ablation studies: plan them, run them, and read what they can honestly say.",
)

#: In the order of the help.
COMMANDS: dict[str, Callable[..., None]] = {
    "init": init,
    "validate": validate,
    "plan": plan,
    "terms": terms,
    "diff": diff,
    "schema": schema,
    "run": run,
    "status": status,
    "list": list_studies,
    "report": report,
    "export": export,
    "logs": logs,
    "check": check,
    "compare": compare,
    "dashboard": dashboard,
    "mlflow": mlflow,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    """Entry point: turns the two errors a user can cause into messages and exit codes."""
    try:
        app()
    except SpecError as error:
        _fail(str(error), 2)
    except StudyError as error:
        _fail(f"ablate: {error}", 1)
    except KeyboardInterrupt:
        _fail("ablate: interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _fail(text: str, code: int) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(code)
