"""Arguments that commands share, and what they name: study files and studies on record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ablate.plan.model import Plan
    from ablate.record.frames import Study
    from ablate.spec.models import StudySpec
    from ablate.workloads.contract import Workload

Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of run folders.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A study's name, its run folder, or its study file.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A study file.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Edit a key of the file.")]
SeedCount = Annotated[int | None, typer.Option("--seeds", metavar="N", help="Run N seeds (seeds.count).")]
DEFAULT_RUNS = Path("runs")


def load(file: Path, overrides: list[str] | None, seeds: int | None) -> tuple[StudySpec, Workload]:
    """What a study file says, and the workload that it names."""
    from ablate.spec.addresses import require_variables
    from ablate.spec.loading import load_study
    from ablate.workloads import find_workload, import_path

    with import_path(file.parent):
        spec = load_study(file, overrides=overrides or [], seeds=seeds, workload_lookup=find_workload)
        workload = find_workload(spec.workload)
    require_variables(spec)
    return spec, workload


def load_plan(
    file: Path, overrides: list[str] | None = None, seeds: int | None = None, runs: Path | None = None
) -> tuple[Plan, Workload]:
    """The plan of a file; with `runs`, after what its searches have proposed on record there."""
    from ablate.plan.planning import Planner

    spec, workload = load(file, overrides, seeds)
    folder = None if runs is None else runs / spec.study
    if folder is not None:
        from ablate.plan.collinear_groups import with_groups

        spec = with_groups(spec, workload, folder)
    planner = Planner(spec, workload)
    if folder is None or not planner.search_names() or not (folder.is_dir() or spec.track.optuna):
        return planner.plan({}), workload
    from ablate.record.frames import recorded_plan

    return recorded_plan(planner, spec, folder), workload


def open_named(name: str, runs: Path) -> Study:
    """The study of that name, run folder or file."""
    from ablate.record.frames import open_study

    return open_study(name, runs)
