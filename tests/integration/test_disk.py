"""Run folders that cannot be written, or are full."""

import os
import subprocess

import pytest

from tests.integration.test_faults import study_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root"),
]


@pytest.fixture
def mounted(tmp_path_factory):
    """Mounts file systems in memory, and unmounts them."""
    points = []

    def mount(options):
        point = tmp_path_factory.mktemp("mounted")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", "-l", point], check=True)


def test_a_read_only_folder_is_named_and_nothing_starts(place, mounted):
    place.write(study_text(place))
    point = mounted("size=1m,ro")
    _, err = place.ablate("run", "study.yaml", "--runs", str(point), code=1)
    assert err == f"ablate: {point}/toy cannot be written: Read-only file system; name another with --runs DIR\n"
    assert place.executions() == []


@pytest.mark.campaign
def test_a_full_disk_is_one_clear_error_and_loses_nothing(place, mounted):
    place.write(study_text(place, seeds=3))
    point = mounted("size=3m")
    filler = point / "filler"
    filler.write_bytes(b"x" * 1_500_000)
    _, err = place.ablate("run", "study.yaml", "--runs", str(point), code=1)
    assert "Traceback" not in err, err
    assert "disk is full" in err or "No space left on device" in err
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", point], check=True)
    place.ablate("run", "study.yaml", "--runs", str(point), "--retry-failed")
