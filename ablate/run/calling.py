"""Running a study from Python or a notebook: the same as the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablate.errors import StudyError
from ablate.record.frames import Study, open_study
from ablate.run.invocation import RunOptions
from ablate.run.progress import ConsoleProgress
from ablate.run.study import execute
from ablate.spec.loading import load_study
from ablate.spec.models import StudySpec
from ablate.workloads import find_workload, import_path


def run_study(
    path_or_spec: str | Path | StudySpec,
    runs: str | Path = "runs",
    *,
    overrides: Sequence[str] = (),
    seeds: int | None = None,
    options: RunOptions | None = None,
) -> Study:
    """Run a study, resume it, or extend it, and read it back. Builds no report.

    Args:
        path_or_spec: a study file, or one that is loaded already.
        runs: the folder of run folders.
        overrides: `path=value` edits of the file.
        seeds: in place of `seeds.count`.
        options: what the command line's flags say; `runs` in it is ignored.
    Raises: SpecError, StudyError as the command would fail; KeyboardInterrupt after an interrupt.
    """
    spec = path_or_spec if isinstance(path_or_spec, StudySpec) else _load(path_or_spec, overrides, seeds)
    given = options or RunOptions()
    chosen = RunOptions(Path(runs), given.retry_failed, given.on_new_code, given.accept_new_reference, given.arms)
    summary = execute(spec, chosen, ConsoleProgress(spec.study))
    if summary.exit_code == 130:
        raise KeyboardInterrupt
    if summary.stopped:
        raise StudyError(f"{spec.study} stopped: {summary.stopped}")
    return open_study(summary.folder.path)


def _load(path: str | Path, overrides: Sequence[str], seeds: int | None) -> StudySpec:
    with import_path(Path(path).parent):
        return load_study(path, overrides=overrides, seeds=seeds, workload_lookup=find_workload)
