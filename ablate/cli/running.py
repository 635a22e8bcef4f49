"""The command that runs a study."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.arguments import DEFAULT_RUNS, File, Runs, SeedCount, Set, load, open_named
from ablate.cli.output import say
from ablate.errors import SpecError


def run(
    file: File,
    runs: Runs = DEFAULT_RUNS,
    overrides: Set = None,
    seeds: SeedCount = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    keep_old: Annotated[bool, typer.Option("--keep-old", help="Keep trials that ran with other code.")] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run trials again that ran with other code.")] = False,
    accept_new_reference: Annotated[
        bool, typer.Option("--accept-new-reference", help="Go on with a reference table that came out different.")
    ] = False,
    arm: Annotated[list[str] | None, typer.Option("--arm", metavar="LABEL", help="Run this arm alone.")] = None,
) -> None:
    """Run a study, resume it, or extend it; then build the report."""
    if keep_old and rerun:
        raise SpecError("--keep-old and --rerun exclude each other")
    spec, _ = load(file, overrides, seeds)
    for warning in spec.warnings:
        say(f"warning: {warning}")
    from ablate.run.invocation import RunOptions
    from ablate.run.progress import ConsoleProgress
    from ablate.run.study import execute

    options = RunOptions(
        runs=runs,
        retry_failed=retry_failed,
        on_new_code="keep_old" if keep_old else "rerun" if rerun else "ask",
        accept_new_reference=accept_new_reference,
        arms=tuple(arm or ()),
    )
    summary = execute(spec, options, ConsoleProgress(spec.study))
    for failure in summary.failures:
        what = f"{failure.arm} · seed {failure.seed}, {failure.reason}"
        say(f"failed: {what}; see: ablate logs {spec.study} {failure.trial_id}")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    say(f"{spec.study}: {counts}" + (f"; stopped: {summary.stopped}" if summary.stopped else ""))
    if summary.exit_code != 130:
        print(_up_to_date_report(summary.folder.path, rebuild=summary.ran > 0))
    else:
        say(f"the same command goes on from here: {shlex.join(['ablate', *sys.argv[1:]])}")
    sys.exit(summary.exit_code)


def _up_to_date_report(folder: Path, rebuild: bool) -> Path:
    page = folder / "report" / "index.html"
    if rebuild or not page.exists() or page.stat().st_mtime < (folder / "study.yaml").stat().st_mtime:
        from ablate.report.build import build_report

        say("building the report")
        return build_report(open_named(str(folder), folder.parent), folder / "report")
    return page
