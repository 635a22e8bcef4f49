"""Writes the two frames of a study for other tools."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import SpecError
from ablate.record.frames import Study

FORMATS = ("csv", "parquet")


def export_study(study: Study, out: Path, file_format: str) -> list[Path]:
    """Write `trials`, `curves` and the resolved study file.

    Args:
        out: a folder; made where it is not there.
        file_format: `csv` or `parquet`.
    Returns: the files written.
    Raises: SpecError for another format.
    """
    if file_format not in FORMATS:
        raise SpecError(f"--format: got {file_format!r}; allowed: {', '.join(FORMATS)}")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, frame in (("trials", study.trials()), ("curves", study.curves())):
        path = out / f"{name}.{file_format}"
        if file_format == "csv":
            frame.to_csv(path, index=False)
        else:
            # a factor of several types has no parquet column; as text it keeps its value
            factors = [str(column) for column in frame if str(column).startswith("config.")]
            mixed = [column for column in factors if frame[column].map(type).nunique() > 1]
            frame.astype(dict.fromkeys(mixed, "string")).to_parquet(path, index=False)
        paths.append(path)
    study_file = out / "study.yaml"
    study_file.write_text(study.folder.study_file.read_text(encoding="utf-8"), encoding="utf-8")
    return [*paths, study_file]
