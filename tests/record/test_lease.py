"""A claim on a study: whoever holds it, a second one is refused; a dead one's expires; no clock hands it to two."""

import json
import os
import shutil
import threading

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from ablate.errors import StudyError
from ablate.record import lease as module
from ablate.record.lease import BEAT_S, EXPIRY_S, FENCE_S, Lease, LeaseLostError
from ablate.record.optuna_storage import Ledger
from tests.record.test_optuna_storage import plan_of


class Clock:
    """A clock that is moved by sleeping; what happens meanwhile on other machines happens at its times."""

    def __init__(self):
        self.now = 1000.0
        self.at_each_sleep = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for action in self.at_each_sleep:
            action()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A database with one study: making one takes seconds."""
    path = tmp_path_factory.mktemp("store") / "shared.db"
    Ledger.create(f"sqlite:///{path}", path.parent, "s", "minimize").close()
    return path


@pytest.fixture
def address(fresh, tmp_path):
    shutil.copy(fresh, tmp_path)
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def ledger(address, tmp_path):
    made = Ledger.create(address, tmp_path, "s", "minimize")
    yield made
    made.close()


@pytest.fixture
def contender(address, ledger, tmp_path, monkeypatch):
    """Makes a lease as a process of another machine would: with a host, a process namespace and a clock of its own."""
    engine = create_engine(address)
    said = []

    def make(host, clock=None):
        monkeypatch.setattr(module.socket, "gethostname", lambda: host)
        monkeypatch.setattr(module, "this_machine", lambda: host)
        clock = clock or Clock()
        made = Lease(engine, 1, tmp_path / host, say=said.append, clock=clock, sleep=clock.sleep)
        return made, clock

    make.said = said
    make.engine = engine
    yield make
    engine.dispose()


def stored(contender):
    with contender.engine.connect() as connection:
        found = connection.execute(text("SELECT value_json FROM study_user_attributes WHERE key = 'lease'")).scalar()
        return None if found is None else json.loads(found)


def test_a_claim_is_an_attribute_of_the_study(contender, ledger, tmp_path):
    lease, _ = contender("alpha")
    lease.acquire()
    claim = ledger.study_note("lease")
    assert (claim["host"], claim["pid"], claim["folder"]) == ("alpha", os.getpid(), str(tmp_path / "alpha"))
    assert claim["expires_after_s"] == EXPIRY_S
    lease.renew()
    assert ledger.study_note("lease")["beat"] > claim["beat"]
    lease.release()
    assert ledger.study_note("lease") is None


def test_a_live_holder_is_refused_to_another_machine(contender):
    alpha, _ = contender("alpha")
    alpha.acquire()
    beta, clock = contender("beta")
    clock.at_each_sleep.append(lambda: clock.now > 1000 + BEAT_S and alpha.renew())
    with pytest.raises(StudyError, match=rf"the study is being run by process {os.getpid()} on alpha \(\S+/alpha\) "):
        beta.acquire()
    assert clock.now - 1000 <= 2 * BEAT_S, "it is known as soon as its heart beats"
    alpha.renew()


def test_a_dead_holder_expires_and_finds_out(contender):
    alpha, alphas_clock = contender("alpha")
    alpha.acquire()
    beta, clock = contender("beta")
    beta.acquire()
    assert EXPIRY_S <= clock.now - 1000 <= EXPIRY_S + 5
    (said,) = contender.said
    assert said.endswith(f"holds a claim on the study; waiting up to {EXPIRY_S:g} s for its heartbeat")
    alpha.hold()  # a claim that was renewed just now, as far as alpha knows
    alphas_clock.now += FENCE_S + 1
    for _ in range(2):
        with pytest.raises(LeaseLostError, match=r"the study was taken over by process \d+ on beta"):
            alpha.hold()
    alpha.release()
    assert stored(contender)["host"] == "beta", "what is not one's own is not given up"


def test_time_in_which_the_store_was_away_proves_nothing(contender, monkeypatch):
    alpha, _ = contender("alpha")
    alpha.acquire()
    beta, clock = contender("beta")
    read = beta._read

    def stalling():
        if clock.now == 1000 + 20:
            clock.now += EXPIRY_S  # the store answers again only now
        return read()

    monkeypatch.setattr(beta, "_read", stalling)
    clock.at_each_sleep.append(lambda: clock.now > 1000 + 20 + EXPIRY_S + BEAT_S and alpha.renew())
    with pytest.raises(StudyError, match="on alpha"):
        beta.acquire()

    def failing():
        raise OperationalError("SELECT", {}, Exception("down"))

    monkeypatch.setattr(beta, "_read", failing)
    with pytest.raises(OperationalError):
        beta.acquire()


def test_a_jump_of_the_time_of_day_changes_nothing(contender, monkeypatch):
    alpha, _ = contender("alpha")
    alpha.acquire()
    beta, clock = contender("beta")
    monkeypatch.setattr(module.time, "time", lambda: 4e9)
    clock.at_each_sleep.append(lambda: clock.now > 1000 + BEAT_S and alpha.renew())
    with pytest.raises(StudyError, match="on alpha"):
        beta.acquire()


def test_of_many_that_want_an_expired_claim_one_gets_it(contender):
    dead, _ = contender("dead")
    dead.acquire()
    rivals = [contender(f"rival-{index}")[0] for index in range(6)]
    got, refused = [], []
    start = threading.Barrier(len(rivals))

    def claim(rival):
        start.wait()
        try:
            rival.acquire()
            got.append(rival)
        except StudyError:
            refused.append(rival)

    threads = [threading.Thread(target=claim, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # a claim that does not beat expires in turn, on clocks that only sleeping moves; the last one holds it
    holders = []
    for rival in got:
        try:
            rival.renew()
            holders.append(rival)
        except LeaseLostError:
            pass
    assert len(holders) == 1
    assert stored(contender)["token"] == holders[0]._owner["token"]
    assert len(got) + len(refused) == len(rivals)


def test_a_process_of_the_same_machine_is_known_to_live_or_not(contender, monkeypatch):
    first, _ = contender("alpha")
    first.acquire()
    second, clock = contender("alpha")
    with pytest.raises(StudyError, match="the study is being run by process"):
        second.acquire()
    monkeypatch.setattr(module, "process_start", lambda _pid: None)
    second.acquire()
    assert clock.now == 1000, "the claim of a process that is gone is taken over at once"


def test_a_claim_whose_writing_was_not_confirmed_is_ones_own(contender, monkeypatch):
    lease, _ = contender("alpha")
    execute = lease._execute

    def unconfirmed(*arguments, **values):
        execute(*arguments, **values)
        raise OperationalError("UPDATE", {}, Exception("connection lost"))

    for action in (lease.acquire, lease.renew):
        monkeypatch.setattr(lease, "_execute", unconfirmed)
        with pytest.raises(OperationalError):
            action()
        monkeypatch.setattr(lease, "_execute", execute)
        action()
    lease.renew()


@pytest.mark.parametrize("hostile", ["", "[]", "null", '{"pid": "x", "host": ["\\u001b[2J"]}', "{" * 5000])
def test_a_claim_that_someone_else_wrote_is_data(contender, hostile):
    statement = "INSERT INTO study_user_attributes (study_id, key, value_json) VALUES (1, 'lease', :value)"
    with contender.engine.begin() as connection:
        connection.execute(text(statement), {"value": hostile})
    lease, _ = contender("alpha")
    lease.acquire()
    assert stored(contender)["host"] == "alpha"
    assert "\x1b" not in contender.said[0]


def test_nothing_is_written_without_the_claim(ledger, contender, tmp_path):
    plan = plan_of((1.0, "sum", 1, "x"))
    lost = []
    with ledger.leased(tmp_path, print, lost.append, lambda _s: None):
        ledger.add(plan.trials, plan)
        with contender.engine.begin() as connection:
            connection.execute(text("UPDATE study_user_attributes SET value_json = '{}' WHERE key = 'lease'"))
        ledger._storage.guard.__self__._renewed -= FENCE_S + 1
        with pytest.raises(LeaseLostError, match="the study was taken over by process unknown on unknown"):
            ledger.set_study_note("facts", {})
    assert len(ledger.attempts()) == 1
    ledger.set_study_note("facts", {})
