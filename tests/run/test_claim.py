"""When a lease is needed beside the lock of the run folder, and what is said of a file system of a network."""

from types import SimpleNamespace

import pytest

from ablate.record.run_folder import RunFolder
from ablate.run import claim
from ablate.run.stopping import INTERRUPTED, StopRequest


@pytest.mark.parametrize(
    ("address", "kind", "locked", "leased", "warned"),
    [
        (None, None, True, False, ""),
        ("postgresql://db/a", None, True, True, ""),
        ("postgresql://db/a", "nfs4", True, True, ""),
        (None, "nfs4", True, True, "is on a file system of a network (nfs4): "),
        (None, None, False, True, "is on a file system without locks: "),
    ],
)
def test_a_lease_stands_in_where_the_lock_of_the_folder_is_not_enough(
    tmp_path, monkeypatch, address, kind, locked, leased, warned
):
    monkeypatch.setattr(claim, "network_kind", lambda _path: kind)
    spec = SimpleNamespace(track=SimpleNamespace(optuna=address))
    said = []
    assert claim.needs_lease(spec, RunFolder(tmp_path), locked, said.append) == leased
    assert len(said) == bool(warned)
    assert all(text.startswith(f"{tmp_path} {warned}") for text in said)
    assert all("track.optuna and track.mlflow" in text for text in said)


def test_an_interrupt_ends_the_wait_for_a_claim():
    stop = StopRequest()
    stop.pause(0)
    stop.ask(INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        stop.pause(0)
