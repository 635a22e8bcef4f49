"""Commands during and after a run: what is on record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.arguments import DEFAULT_RUNS, Json, Name, Runs, open_named
from ablate.cli.output import print_json, say
from ablate.errors import SpecError, StudyError


def status(name: Name, json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """Count trials by state, with failures and the time left."""
    from ablate.run.status import status_of

    found = status_of(open_named(name, runs))
    if json:
        print_json(found.as_json())
    else:
        print(found.as_text())


def list_studies(json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """List the studies in the runs folder with their state."""
    from ablate.run.status import status_of

    names = sorted(path.parent.name for path in runs.glob("*/study.yaml"))
    found = []
    for name in names:
        try:
            found.append(status_of(open_named(str(runs / name), runs)))
        except (SpecError, StudyError) as error:
            say(f"{name}: cannot be read: {str(error).splitlines()[0]}")
    if json:
        print_json([item.as_json() for item in found])
    for item in [] if json else found:
        print(item.as_line())
    if not names:
        say(f"{runs} holds no study")


def report(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """Rebuild a study's report from its records."""
    from ablate.report.build import build_report

    study = open_named(name, runs)
    print(build_report(study, study.folder.report))


def export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write the frames.")],
    format: Annotated[str, typer.Option("--format", metavar="csv|parquet", help="File format.")] = "parquet",  # noqa: A002 - the option's name
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Write the two frames, trials and curves, for other tools."""
    from ablate.record.export import export_study

    for path in export_study(open_named(name, runs), out, format):
        print(path)


def logs(name: Name, trial: Annotated[str, typer.Argument(metavar="TRIAL")], runs: Runs = DEFAULT_RUNS) -> None:
    """Print what a trial printed."""
    study = open_named(name, runs)
    matching = [planned.trial_id for planned in study.plan.trials if planned.trial_id.startswith(trial)]
    if len(matching) != 1:
        what = "no trial" if not matching else f"{len(matching)} trials"
        raise StudyError(f"{what} of {study.spec.study} with an id that starts with {trial!r}")
    path = study.folder.log(matching[0])
    if path.exists():
        sys.stdout.write(path.read_text(encoding="utf-8", errors="replace"))
    else:
        say(f"{matching[0]} has printed nothing")


def check(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """Verify a study's records and mend what can be mended."""
    from ablate.run.check import check_study

    findings = check_study(open_named(name, runs), say)
    for finding in findings:
        print(finding)
    if not findings:
        print("the records agree")
    sys.exit(0 if all(finding.mended for finding in findings) else 1)


def compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME...")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write a page with the plot there.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Put several studies side by side."""
    if len(names) < 2:
        raise SpecError("ablate compare: name two studies or more")
    from ablate.report.compare import build_comparison, compare_text

    studies = [open_named(name, runs) for name in names]
    print(compare_text(studies))
    if out is not None:
        print(build_comparison(studies, out))


def dashboard(name: Name, port: int = 8080, runs: Runs = DEFAULT_RUNS) -> None:
    """Serve the Optuna dashboard of a study on loopback."""
    from ablate.run.servers import serve_dashboard

    serve_dashboard(open_named(name, runs), port)


def mlflow(name: Name, port: int = 5000, runs: Runs = DEFAULT_RUNS) -> None:
    """Serve the MLflow pages of a study on loopback."""
    from ablate.run.servers import serve_mlflow

    serve_mlflow(open_named(name, runs), port)
