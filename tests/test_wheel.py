"""What is installed from the wheel is what the repository runs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    [wheel] = out.glob("ablate_toolkit-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_both_packages_is_in_the_wheel(names):
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in ("ablate", "losses")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= names


def test_nothing_else_is(names):
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"ablate", "losses", "ablate_toolkit"}
