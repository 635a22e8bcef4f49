"""The command line. Heavy imports happen inside the commands, so that `ablate --help` answers at once."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ablate.errors import SpecError, StudyError

if TYPE_CHECKING:
    from ablate.plan.cost import Cost
    from ablate.plan.geometry import StudyGeometry
    from ablate.plan.model import Plan
    from ablate.record.frames import Study
    from ablate.spec.models import StudySpec
    from ablate.workloads.contract import Workload

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would cost more than all the rest of it
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ablation studies: plan them, run them, and read what they can honestly say.",
)

Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of run folders.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A study's name, its run folder, or its study file.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A study file.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Edit a key of the file.")]
SeedCount = Annotated[int | None, typer.Option("--seeds", metavar="N", help="Run N seeds (seeds.count).")]
DEFAULT_RUNS = Path("runs")


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


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=1, allow_nan=False))


def _load(file: Path, overrides: list[str] | None, seeds: int | None) -> tuple[StudySpec, Workload]:
    from ablate.spec.addresses import require_variables
    from ablate.spec.loading import load_study
    from ablate.workloads import find_workload, import_path

    with import_path(file.parent):
        spec = load_study(file, overrides=overrides or [], seeds=seeds, workload_lookup=find_workload)
        workload = find_workload(spec.workload)
    require_variables(spec)
    return spec, workload


def _load_plan(
    file: Path, overrides: list[str] | None = None, seeds: int | None = None, runs: Path | None = None
) -> tuple[Plan, Workload]:
    """The plan of a file; with `runs`, after what its searches have proposed on record there."""
    from ablate.plan.planning import Planner

    spec, workload = _load(file, overrides, seeds)
    folder = None if runs is None else runs / spec.study
    if folder is not None:
        from ablate.plan.collinear_groups import with_groups

        spec = with_groups(spec, workload, folder)
    planner = Planner(spec, workload)
    if folder is None or not planner.search_names() or not (folder.is_dir() or spec.track.optuna):
        return planner.plan({}), workload
    from ablate.record.frames import recorded_plan

    return recorded_plan(planner, spec, folder), workload


def _open(name: str, runs: Path) -> Study:
    from ablate.record.frames import open_study

    return open_study(name, runs)


# --- before a run -------------------------------------------------------------------------------


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")] = Path("study.yaml"),
    workload: Annotated[
        str | None, typer.Option(help="A workload's name, or package.module:function; default: synthetic_sequences.")
    ] = None,
) -> None:
    """Write a commented study file that runs."""
    from ablate.spec.template import study_template
    from ablate.workloads import default_settings, find_workload, import_path

    name = workload or "synthetic_sequences"
    with import_path(file.parent):
        try:
            found = find_workload(name)
        except (Exception, SystemExit) as error:
            reason = str(error) if type(error) is LookupError else f"{type(error).__name__}: {error}"
            raise SpecError(f"--workload: got {name!r}; {reason}") from error
        settings = default_settings(found)
    text = study_template(found, settings)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise SpecError(f"{file}: exists already; name another file") from None
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}") from None
    if ":" in name and not settings:
        _say(f"what {name} reads of its config is not known; write it under baseline, in place of the examples there")
    _say(f"wrote {file}; try: ablate plan {file}")


@app.command()
def validate(file: File, overrides: Set = None, seeds: SeedCount = None) -> None:
    """Check a study file: every problem at once, each with its place."""
    plan, _ = _load_plan(file, overrides, seeds)
    for warning in plan.warnings:
        _say(f"warning: {warning}")
    to_come = sum(part.trials for part in plan.pending)
    more = f", and {to_come} to come of searches" if to_come else ""
    print(f"{file}: {len(plan.arms)} arms x {plan.spec.seeds.count} seeds, {len(plan.trials)} trials{more}")


@app.command()
def plan(
    file: File,
    json: Json = False,
    runs: Runs = DEFAULT_RUNS,
    overrides: Set = None,
    seeds: SeedCount = None,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show what each design finds out with N trials.")
    ] = None,
) -> None:
    """Show arms, trials, cost and what can be concluded. Starts nothing."""
    from ablate.plan.describe import plan_json

    planned, workload = _load_plan(file, overrides, seeds, runs)
    states, cost = _recorded(planned, runs)
    if budget is not None:
        _print_menu(planned.spec, workload, budget, cost, json=json)
        return
    if json:
        _print_json(plan_json(planned, states, _geometry(planned, workload, runs), cost))
        return
    from rich.console import Console

    from ablate.plan.describe import plan_text

    console = Console()
    geometry = _geometry(planned, workload, runs)
    scales = _scales(planned, workload, runs, geometry)
    for part in plan_text(planned, states, cost, scales, geometry):
        console.print(part)


def _print_menu(spec: StudySpec, workload: Workload, budget: int, cost: Cost, *, json: bool) -> None:
    from ablate.plan.budget import design_menu, menu_json, menu_text

    options = design_menu(spec, workload.config_type, budget)
    if json:
        _print_json(menu_json(options, cost))
        return
    from rich.console import Console

    Console().print(menu_text(options, budget, cost))


def _recorded(planned: Plan, runs: Path) -> tuple[dict[str, str], Cost]:
    """State of each trial on record, and what a finished one took."""
    from ablate.plan.cost import Cost

    gpus = float(planned.spec.run.resources.gpu)
    folder = runs / planned.spec.study
    if not folder.is_dir() and planned.spec.track.optuna is None:
        return {}, Cost(None, gpus)
    from ablate.record.frames import Study
    from ablate.run.status import worker_s

    study = Study(folder, planned.spec, planned)
    frame = study.trials()
    states = dict(zip(frame["trial_id"], frame["state"], strict=True))
    done = frame[frame["state"] == "COMPLETE"]
    return states, Cost(worker_s(study, done["started"], done["duration_s"]), gpus)


def _scales(planned: Plan, workload: Workload, runs: Path, geometry: StudyGeometry | None) -> list[Any] | None:
    """What the reference table says of each arm, where there is one; None for a workload that makes none.

    The geometry has it already where every arm was measured.
    """
    if workload.scales is None:
        return None
    if geometry is not None and all(geometry.arms.values()):
        return list(geometry.arms.values())
    shared = runs / planned.spec.study / "reference"
    if not shared.is_dir():
        return [None] * len(planned.arms)
    from ablate.workloads import load_object

    scales = load_object(workload.scales)([arm.config for arm in planned.arms], planned.spec.baseline, shared)
    return list(scales)


def _geometry(planned: Plan, workload: Workload, runs: Path) -> StudyGeometry | None:
    """What the reference table says of terms and arms, where it was measured."""
    from ablate.plan.geometry import read_geometry

    return read_geometry(planned, workload, runs / planned.spec.study / "reference")


@app.command()
def terms(
    file: File,
    json: Json = False,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Cosine from which terms are one group.")] = 0.95,
    runs: Runs = DEFAULT_RUNS,
    overrides: Set = None,
) -> None:
    """Show which terms and arms the data can tell apart. Makes the reference pass alone."""
    from ablate.plan.geometry import geometry_json
    from ablate.run.geometry import measure_study, measured_geometry

    planned, workload = _load_plan(file, overrides)
    measure_study(planned, workload, runs / planned.spec.study, _say)
    planned, workload = _load_plan(file, overrides, runs=runs)  # with the groups that were not known before
    geometry = measured_geometry(planned, workload, runs / planned.spec.study, threshold)
    if json:
        _print_json(geometry_json(geometry, planned.spec.study))
        return
    from rich.console import Console

    from ablate.plan.geometry_text import geometry_text

    console = Console()
    for part in geometry_text(geometry, planned.spec.study):
        console.print(part)


@app.command()
def diff(old: File, new: File, json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """Show what an edited file would run, and what that costs."""
    from rich.console import Console

    from ablate.plan.difference import difference_json, difference_text, plan_difference

    before, after = (_load_plan(file, runs=runs)[0] for file in (old, new))
    difference = plan_difference(before, after)
    cost = next(
        (cost for plan in (after, before) if (cost := _recorded(plan, runs)[1]).known), _recorded(after, runs)[1]
    )
    if json:
        _print_json(difference_json(difference, cost))
    else:
        Console().print(difference_text(difference, cost))


@app.command()
def schema() -> None:
    """Print the JSON Schema of the study file, for editors."""
    from ablate.spec.schema import study_schema

    _print_json(study_schema())


# --- the run ------------------------------------------------------------------------------------


@app.command()
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
    spec, _ = _load(file, overrides, seeds)
    for warning in spec.warnings:
        _say(f"warning: {warning}")
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
        _say(f"failed: {what}; see: ablate logs {spec.study} {failure.trial_id}")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    _say(f"{spec.study}: {counts}" + (f"; stopped: {summary.stopped}" if summary.stopped else ""))
    if summary.exit_code != 130:
        print(_up_to_date_report(summary.folder.path, rebuild=summary.ran > 0))
    else:
        _say(f"the same command goes on from here: {shlex.join(['ablate', *sys.argv[1:]])}")
    sys.exit(summary.exit_code)


def _up_to_date_report(folder: Path, rebuild: bool) -> Path:
    page = folder / "report" / "index.html"
    if rebuild or not page.exists() or page.stat().st_mtime < (folder / "study.yaml").stat().st_mtime:
        from ablate.report.build import build_report

        _say("building the report")
        return build_report(_open(str(folder), folder.parent), folder / "report")
    return page


# --- after a run --------------------------------------------------------------------------------


@app.command()
def status(name: Name, json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """Count trials by state, with failures and the time left."""
    from ablate.run.status import status_of

    found = status_of(_open(name, runs))
    if json:
        _print_json(found.as_json())
    else:
        print(found.as_text())


@app.command(name="list")
def list_studies(json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """List the studies in the runs folder with their state."""
    from ablate.run.status import status_of

    names = sorted(path.parent.name for path in runs.glob("*/study.yaml"))
    found = []
    for name in names:
        try:
            found.append(status_of(_open(str(runs / name), runs)))
        except (SpecError, StudyError) as error:
            _say(f"{name}: cannot be read: {str(error).splitlines()[0]}")
    if json:
        _print_json([item.as_json() for item in found])
    for item in [] if json else found:
        print(item.as_line())
    if not names:
        _say(f"{runs} holds no study")


@app.command()
def report(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """Rebuild a study's report from its records."""
    from ablate.report.build import build_report

    study = _open(name, runs)
    print(build_report(study, study.folder.report))


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write the frames.")],
    format: Annotated[str, typer.Option("--format", metavar="csv|parquet", help="File format.")] = "parquet",  # noqa: A002 - the option's name
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Write the two frames, trials and curves, for other tools."""
    from ablate.record.export import export_study

    for path in export_study(_open(name, runs), out, format):
        print(path)


@app.command()
def logs(name: Name, trial: Annotated[str, typer.Argument(metavar="TRIAL")], runs: Runs = DEFAULT_RUNS) -> None:
    """Print what a trial printed."""
    study = _open(name, runs)
    matching = [planned.trial_id for planned in study.plan.trials if planned.trial_id.startswith(trial)]
    if len(matching) != 1:
        what = "no trial" if not matching else f"{len(matching)} trials"
        raise StudyError(f"{what} of {study.spec.study} with an id that starts with {trial!r}")
    path = study.folder.log(matching[0])
    if path.exists():
        sys.stdout.write(path.read_text(encoding="utf-8", errors="replace"))
    else:
        _say(f"{matching[0]} has printed nothing")


@app.command()
def check(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """Verify a study's records and mend what can be mended."""
    from ablate.run.check import check_study

    findings = check_study(_open(name, runs), _say)
    for finding in findings:
        print(finding)
    if not findings:
        print("the records agree")
    sys.exit(0 if all(finding.mended for finding in findings) else 1)


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME...")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write a page with the plot there.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Put several studies side by side."""
    if len(names) < 2:
        raise SpecError("ablate compare: name two studies or more")
    from ablate.report.compare import build_comparison, compare_text

    studies = [_open(name, runs) for name in names]
    print(compare_text(studies))
    if out is not None:
        print(build_comparison(studies, out))


@app.command()
def dashboard(name: Name, port: int = 8080, runs: Runs = DEFAULT_RUNS) -> None:
    """Serve the Optuna dashboard of a study on loopback."""
    from ablate.run.servers import serve_dashboard

    serve_dashboard(_open(name, runs), port)


@app.command()
def mlflow(name: Name, port: int = 5000, runs: Runs = DEFAULT_RUNS) -> None:
    """Serve the MLflow pages of a study on loopback."""
    from ablate.run.servers import serve_mlflow

    serve_mlflow(_open(name, runs), port)


if __name__ == "__main__":
    main()
