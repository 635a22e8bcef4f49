"""Commands before a run: a study file, and what it would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.arguments import DEFAULT_RUNS, File, Json, Runs, SeedCount, Set, load_plan
from ablate.cli.output import print_json, say
from ablate.errors import SpecError

if TYPE_CHECKING:
    from ablate.plan.cost import Cost
    from ablate.plan.geometry import StudyGeometry
    from ablate.plan.model import Plan
    from ablate.spec.models import StudySpec
    from ablate.workloads.contract import Workload


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
        say(f"what {name} reads of its config is not known; write it under baseline, in place of the examples there")
    say(f"wrote {file}; try: ablate plan {file}")


def validate(file: File, overrides: Set = None, seeds: SeedCount = None) -> None:
    """Check a study file: every problem at once, each with its place."""
    plan, _ = load_plan(file, overrides, seeds)
    for warning in plan.warnings:
        say(f"warning: {warning}")
    to_come = sum(part.trials for part in plan.pending)
    more = f", and {to_come} to come of searches" if to_come else ""
    print(f"{file}: {len(plan.arms)} arms x {plan.spec.seeds.count} seeds, {len(plan.trials)} trials{more}")


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

    planned, workload = load_plan(file, overrides, seeds, runs)
    states, cost = _recorded(planned, runs)
    if budget is not None:
        _print_menu(planned.spec, workload, budget, cost, json=json)
        return
    if json:
        print_json(plan_json(planned, states, _geometry(planned, workload, runs), cost))
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
        print_json(menu_json(options, cost))
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

    planned, workload = load_plan(file, overrides)
    measure_study(planned, workload, runs / planned.spec.study, say)
    planned, workload = load_plan(file, overrides, runs=runs)  # with the groups that were not known before
    geometry = measured_geometry(planned, workload, runs / planned.spec.study, threshold)
    if json:
        print_json(geometry_json(geometry, planned.spec.study))
        return
    from rich.console import Console

    from ablate.plan.geometry_text import geometry_text

    console = Console()
    for part in geometry_text(geometry, planned.spec.study):
        console.print(part)


def diff(old: File, new: File, json: Json = False, runs: Runs = DEFAULT_RUNS) -> None:
    """Show what an edited file would run, and what that costs."""
    from rich.console import Console

    from ablate.plan.difference import difference_json, difference_text, plan_difference

    before, after = (load_plan(file, runs=runs)[0] for file in (old, new))
    difference = plan_difference(before, after)
    cost = next(
        (cost for plan in (after, before) if (cost := _recorded(plan, runs)[1]).known), _recorded(after, runs)[1]
    )
    if json:
        print_json(difference_json(difference, cost))
    else:
        Console().print(difference_text(difference, cost))


def schema() -> None:
    """Print the JSON Schema of the study file, for editors."""
    from ablate.spec.schema import study_schema

    print_json(study_schema())
