"""A round of Ray Tune: it asks the driver for trials, and tells it what workers send and how they end."""

from __future__ import annotations

import contextlib
import io
import shutil
import threading
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.tune.search import Searcher

from ablate.run.assignment import Assignment, Message
from ablate.run.placement import resources
from ablate.run.ray_tune.worker import train
from ablate.spec.models import Run

#: While trials run, Ray is asked this often whether it lives.
ASK_EVERY_S = 10.0
#: How Ray's account of a worker that its memory monitor killed is known.
OUT_OF_MEMORY = "running low on memory"


class Driver(Protocol):
    """What the executor asks of the study, and tells it."""

    def next_assignments(self) -> tuple[Assignment, ...]:
        """The next trials to start in one process; none while there are none."""

    def exhausted(self) -> bool:
        """Whether no trial is left to start and none is running."""

    def should_stop(self) -> bool:
        """Whether running trials are to be stopped now."""

    def receive(self, message: Message) -> bool:
        """Take what a worker sent. Returns: whether its trial is to end now."""

    def left(self, trial_ids: Sequence[str]) -> None:
        """What a process was given to run came back; what had no ending was stopped."""

    def died(self, trial_ids: Sequence[str], why: str, *, crowded: bool = False) -> None:
        """The process of these trials died; `crowded`: its node was out of memory, whoever is to blame."""

    def abort(self) -> None:
        """Start nothing more: hearing something failed, and the failure is raised once Ray has come back."""


def run_round(
    driver: Driver, folder: Path, run: Run, slots: Callable[[], int], alive: Callable[[], bool]
) -> Exception | None:
    """Run trials until the driver is exhausted or Ray gives up.

    Args:
        driver: says what runs and hears what comes of it.
        folder: for Ray's own files; emptied afterwards.
        run: what a worker needs.
        slots: how many workers run at once.
        alive: whether the cluster answers.
    Returns: why Ray gave up, or None.
    """
    guard = _Guard(driver)
    tuner = tune.Tuner(
        tune.with_resources(train, resources(run)),
        tune_config=tune.TuneConfig(
            search_alg=_NextTrial(driver, guard, slots),
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name=f"round-{uuid.uuid4().hex[:8]}",
            storage_path=str(folder.resolve()),
            callbacks=[_Callback(driver, guard)],
            stop=_Listener(driver, guard),
            failure_config=tune.FailureConfig(max_failures=0),
            verbose=0,
        ),
    )
    fit = _Fit(tuner)
    # Ray's nodes print of every dead worker on standard output, which is for data
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        fit.start()
        while fit.is_alive():
            fit.join(ASK_EVERY_S)
            if fit.is_alive() and not alive():
                guard.close()
                return ConnectionError("its node, or the head of the cluster, is gone")
    shutil.rmtree(folder, ignore_errors=True)
    if guard.failure is not None:
        raise guard.failure
    return fit.given_up


class _Fit(threading.Thread):
    """Tune, in a thread that can be left behind: on a cluster that died its cleaning up never ends."""

    def __init__(self, tuner: tune.Tuner) -> None:
        super().__init__(daemon=True)
        self._tuner = tuner
        self.given_up: Exception | None = None

    def run(self) -> None:
        try:
            self._tuner.fit()
        except Exception as error:  # noqa: BLE001 - whatever stops Ray, the records decide what is left to do
            self.given_up = error


def _name(trial: Any) -> str:
    return f"{trial.config['trial_ids'][0]}-{trial.trial_id}"


class _NextTrial(Searcher):  # type: ignore[misc]
    """Hands the driver's next trials to Tune: those of one process are one trial to it."""

    def __init__(self, driver: Driver, guard: _Guard, slots: Callable[[], int]) -> None:
        super().__init__(metric=None, mode=None)
        self._driver = driver
        self._guard = guard
        self._slots = slots
        self._live: set[str] = set()

    def suggest(self, trial_id: str) -> Any:
        if self._driver.should_stop() or (not self._live and self._driver.exhausted()):
            return Searcher.FINISHED
        if len(self._live) >= self._slots():
            return None
        assignments = self._guard(self._driver.next_assignments)
        if not assignments:
            return Searcher.FINISHED if not self._live and self._driver.exhausted() else None
        self._live.add(trial_id)
        return {"assignments": [a.to_json() for a in assignments], "trial_ids": [a.trial_id for a in assignments]}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self._live.discard(trial_id)

    def on_trial_result(self, trial_id: str, result: Any) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text("{}")

    def restore(self, checkpoint_path: str) -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        return {"_metric": None, "_mode": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Guard:
    """Keeps an exception of the driver, which would abort Tune half-way, until Tune has come back."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._closed = False
        self.failure: Exception | None = None

    def __call__(self, action: Callable[[], Any]) -> Any:
        if self.failure is None and not self._closed:
            try:
                return action()
            except Exception as error:  # noqa: BLE001 - raised again once Tune has come back
                self.failure = error
                self._driver.abort()
        return None

    def close(self) -> None:
        """Hear nothing any more."""
        self._closed = True


class _Listener(tune.Stopper):  # type: ignore[misc]
    """Hands what workers send to the driver, and ends a trial, a pack's member, or the round, when the driver says so.

    A stopper, since Tune asks it before anyone else about each result, and waits for what it says.
    """

    def __init__(self, driver: Driver, guard: _Guard) -> None:
        self._driver = driver
        self._guard = guard

    def __call__(self, trial_id: str, result: Any) -> bool:
        if result.get("done"):  # Tune shows the last result once more when a function has returned
            return False
        for text in result.get("messages", ()):
            message = Message.from_json(text)
            if self._is_to_end(message):
                if message.trial_id not in result["leave"]:
                    return True
                self._guard(Path(result["leave"][message.trial_id]).touch)
        return False

    def _is_to_end(self, message: Message) -> bool:
        return bool(self._guard(lambda: self._driver.receive(message)))

    def stop_all(self) -> bool:
        return self._driver.should_stop()

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Callback(tune.Callback):  # type: ignore[misc]
    """Tells the driver how trials end in Tune."""

    def __init__(self, driver: Driver, guard: _Guard) -> None:
        self._driver = driver
        self._guard = guard

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_info: Any) -> None:
        self._guard(lambda: self._driver.left(trial.config["trial_ids"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_info: Any) -> None:
        text = _account(trial)
        crowded = OUT_OF_MEMORY in text
        why = "its node ran out of memory" if crowded else _why(text)
        self._guard(lambda: self._driver.died(trial.config["trial_ids"], why, crowded=crowded))

    def get_state(self) -> None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {}


def _account(trial: Any) -> str:
    """All that Ray says of a death."""
    with contextlib.suppress(OSError, TypeError):
        return Path(trial.error_file).read_text(errors="replace")
    return ""


def _why(account: str) -> str:
    """The point of it, without Ray's list of guesses."""
    lines = [line for line in account.splitlines() if line.strip()]
    text = lines[-1].strip().partition(" Some common causes")[0] if lines else "no account"
    return text.rpartition("Worker exit detail: ")[2].rstrip(".")
