import re
import subprocess
import sys

import pytest

from ablate.errors import StudyError
from ablate.record.optuna_storage import LedgerTrial
from ablate.record.run_folder import RunFolder, write_atomically
from ablate.run.recorder import begin_attempt

HOLD = """
import sys, time
from pathlib import Path
from ablate.record.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_by_name_and_a_dead_one_holds_nothing(tmp_path):
    folder = RunFolder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert re.fullmatch(rf"process {holder.pid} on \S+ since [0-9: -]+", folder.holder())
        with pytest.raises(StudyError, match=rf"is being run by process {holder.pid} on "), folder.locked():
            pass
        holder.kill()
        holder.wait()
    assert folder.holder() is None
    with folder.locked():
        assert folder.holder() is not None
    assert folder.holder() is None


def test_a_new_attempt_begins_without_the_checkpoint_of_the_last_wherever_it_lies(tmp_path):
    entry = LedgerTrial(1, 0, "abc", 2, "WAITING", {}, None, None)
    for storage in (None, tmp_path / "elsewhere"):
        folder = RunFolder(tmp_path / "toy", storage)
        left = folder.checkpoints("abc") / "checkpoint.pt"
        left.parent.mkdir(parents=True)
        left.write_text("old")
        (folder.trial("abc") / "attempt").unlink(missing_ok=True)
        begin_attempt(folder, entry)
        assert not left.exists()
    assert left.parent == tmp_path / "elsewhere" / "toy" / "abc"


def test_a_folder_without_a_lock_is_held_by_no_one(tmp_path):
    assert RunFolder(tmp_path).holder() is None


def test_an_atomic_write_leaves_no_other_file(tmp_path):
    write_atomically(tmp_path / "a.txt", "one")
    write_atomically(tmp_path / "a.txt", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "two")]


def test_the_source_folder_is_the_run_folder_where_nothing_is_noted(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.source_folder() == str(tmp_path)
    folder.write_settings("/somewhere/else", {})
    assert folder.source_folder() == "/somewhere/else"
