"""Ray Tune as the executor: it starts workers and carries messages. The only file importing ray.

Ray is never asked to remember a trial. Which trial runs next, what came of it and whether a dead one is
tried again is the driver's business; a round is one `Tuner.fit()`, and a round that Ray itself aborts is
followed by another.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import shutil
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

for _variable, _value in {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "60",  # a trial that is stopped may take a while to leave its step
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}.items():
    os.environ.setdefault(_variable, _value)

import ray
from ray import tune
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as NodeAffinity

from ablate.errors import SpecError
from ablate.run.assignment import LEAVE, Assignment, Message
from ablate.run.packed_worker import run_trials
from ablate.run.placement import require_resources, resources, workers_on
from ablate.spec.addresses import concealed, filled_in
from ablate.spec.models import Run
from ablate.workloads import load_object
from ablate.workloads.contract import PackCost, Prepared

#: While trials run, Ray is asked this often whether it lives, and has so long to answer.
ASK_EVERY_S, ANSWER_S = 10.0, 60.0
#: How Ray's account of a worker that its memory monitor killed is known.
OUT_OF_MEMORY = "running low on memory"
#: The workers of a cluster are counted this often.
COUNT_EVERY_S = 3.0


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


@contextlib.contextmanager
def ray_session(run: Run) -> Iterator[Session]:
    """A Ray cluster for one study: one of this machine's own, or the one at `run.address`.

    Raises: SpecError where there is no such cluster, or no worker as asked for can ever be placed.
    """
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial's failure is told by the study, once
    local = run.address is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own future changes; a study's output is not the place
        arguments: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if local:
            arguments |= {"include_dashboard": False, "object_store_memory": 256 * 2**20}
        try:
            address = "local" if run.address is None else filled_in(run.address)
            if not local:
                _knock(address)
            ray.init(address=address, **arguments)
        except ConnectionError:
            raise SpecError(
                f"run.address: got {run.address!r}; no Ray cluster answers there; see that it runs, and that "
                "RAY_AUTH_MODE and the authentication token are the same here as there"
            ) from None
        except (ValueError, RuntimeError) as error:
            if local:
                raise
            reason = concealed((str(error).splitlines() or [""])[0], run.address)
            raise SpecError(f"run.address: got {run.address!r}; Ray does not take it: {reason}") from None
    try:
        require_resources(run, _hosts())
        yield Session(run)
    finally:
        _within(ANSWER_S, ray.shutdown)


def _within(seconds: float, action: Callable[[], object]) -> bool:
    """Do something of Ray's, which waits for ever on a dead cluster. Returns: whether it was done in time."""
    done = threading.Event()

    def act() -> None:
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError, RuntimeError):
            action()
            done.set()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return done.is_set()


def _knock(address: str) -> None:
    """See whether anything listens at `host:port`; Ray itself would wait for minutes.

    Raises: ConnectionError.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(str(error)) from error


def _hosts() -> list[Mapping[str, Any]]:
    """The nodes that are up, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


class Session:
    """A running Ray cluster."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._slots, self._counted_at = 1, -COUNT_EVERY_S

    def slots(self) -> int:
        """How many workers run at once, as nodes come and go."""
        if time.monotonic() - self._counted_at >= COUNT_EVERY_S:
            self._slots, self._counted_at = self._count_slots(), time.monotonic()
        return self._slots

    def _count_slots(self) -> int:
        slots = max(1, sum(workers_on(host, self._run) for host in _hosts()))
        return slots if self._run.max_concurrent == "auto" else min(slots, self._run.max_concurrent)

    def ask_nodes(self, question: Callable[..., list[str]], *arguments: Any) -> dict[str, list[str]]:
        """Call a function on each node of a cluster that can run workers. Returns: the answers by node's address."""
        if self._run.address is None:
            return {}
        hosts = {host["NodeID"]: host["NodeManagerAddress"] for host in _hosts() if workers_on(host, self._run)}
        ask = ray.remote(num_cpus=0, max_retries=1)(question)
        asked = {node: ask.options(scheduling_strategy=NodeAffinity(node, soft=False)) for node in hosts}
        futures = {node: task.remote(*arguments) for node, task in asked.items()}
        return {f"{hosts[node]} ({node[:8]})": _answer(future) for node, future in futures.items()}

    def prepare(self, function: str, config: Mapping[str, Any], shared_dir: Path, import_path: tuple[str, ...]) -> Any:
        """Start a workload's `prepare` in a worker. Returns: a future for `result`."""
        return _prepare.remote(function, dict(config), str(shared_dir), import_path)

    def measure_packs(
        self,
        function: str,
        config: Mapping[str, Any],
        shared_dir: Path,
        sizes: Sequence[int],
        import_path: tuple[str, ...],
    ) -> Any:
        """Start a workload's `pack_costs` in a worker like those of trials. Returns: a future for `pack_costs`."""
        wanted = resources(self._run)
        cpus, gpus = wanted.pop("cpu"), wanted.pop("gpu")
        measure = _measure_packs.options(num_cpus=cpus, num_gpus=gpus, resources=wanted)
        return measure.remote(function, dict(config), str(shared_dir), tuple(sizes), import_path)

    def pack_costs(self, future: Any) -> tuple[dict[int, PackCost], float]:
        """Wait for a future of `measure_packs`. Returns: what it measured, and the bytes of memory that a worker has.

        Raises: what `pack_costs` raised.
        """
        costs, device_bytes = _result(future)
        if device_bytes is not None:  # of a GPU, of which a worker may have a fraction
            return costs, device_bytes * min(1.0, float(self._run.resources.gpu))
        hosts = [(host, workers_on(host, self._run)) for host in _hosts()]
        rooms = [float(host["Resources"].get("memory", math.inf)) / workers for host, workers in hosts if workers]
        return costs, min(rooms, default=math.inf)

    def ready(self, futures: Mapping[str, Any]) -> dict[str, Any]:
        """Those that have ended, after a second of waiting at most."""
        done, _ = ray.wait(list(futures.values()), num_returns=1, timeout=1.0)
        return {key: future for key, future in futures.items() if future in done}

    def cancel(self, futures: Mapping[str, Any]) -> None:
        """End those that still run."""
        for future in futures.values():
            ray.cancel(future, force=True)

    def result(self, future: Any) -> Prepared:
        """Wait for a future of `prepare`.

        Raises: what `prepare` raised.
        """
        prepared = _result(future)
        assert isinstance(prepared, Prepared)
        return prepared

    def alive(self) -> bool:
        """Whether the cluster answers, and counts this process's own node among its nodes."""
        here = ray.get_runtime_context().get_node_id()

        def ask() -> None:
            if here not in {host["NodeID"] for host in _hosts()}:
                raise ConnectionError

        return _within(ANSWER_S, ask)

    def run_round(self, driver: Driver, folder: Path) -> Exception | None:
        """Run trials until the driver is exhausted or Ray gives up.

        Args:
            driver: says what runs and hears what comes of it.
            folder: for Ray's own files; emptied afterwards.
        Returns: why Ray gave up, or None.
        """
        guard = _Guard(driver)
        tuner = tune.Tuner(
            tune.with_resources(_trial, resources(self._run)),
            tune_config=tune.TuneConfig(
                search_alg=_NextTrial(driver, guard, self.slots),
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
                if fit.is_alive() and not self.alive():
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


def _result(future: Any) -> Any:
    try:
        return ray.get(future)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _answer(future: Any) -> list[str]:
    try:
        return list(ray.get(future, timeout=ANSWER_S))
    except ray.exceptions.RayError as error:  # without the toolkit there it cannot even be asked
        return [str(error).strip().splitlines()[-1]]


@ray.remote(num_cpus=1, max_retries=2)  # type: ignore[untyped-decorator]
def _prepare(function: str, config: dict[str, Any], shared_dir: str, import_path: tuple[str, ...]) -> Prepared:
    sys.path[:0] = [folder for folder in import_path if folder not in sys.path]
    prepared = load_object(function)(config, Path(shared_dir))
    assert isinstance(prepared, Prepared)
    return prepared


@ray.remote(max_retries=1)  # type: ignore[untyped-decorator]
def _measure_packs(
    function: str, config: dict[str, Any], shared_dir: str, sizes: tuple[int, ...], import_path: tuple[str, ...]
) -> tuple[dict[int, PackCost], int | None]:
    """What packs cost here, and the bytes of memory of the GPU, where there is one."""
    sys.path[:0] = [folder for folder in import_path if folder not in sys.path]
    device = _device()
    costs = load_object(function)(config, Path(shared_dir), sizes, device)
    if device == "cpu":
        return costs, None
    return costs, int(sys.modules["torch"].cuda.get_device_properties(0).total_memory)


def _device() -> str:
    return "cuda" if ray.get_runtime_context().get_accelerator_ids().get("GPU") else "cpu"


def _trial(config: dict[str, Any]) -> None:
    """The function that Tune runs in a worker."""
    assignments = [Assignment.from_json(text) for text in config["assignments"]]
    line = _Line(assignments)
    run_trials(assignments, _device(), line.send)
    if line.ended:
        raise SystemExit(0)  # a return would report once more, and the worker would never be free again


class _Line:
    """A worker's line to the driver.

    Tune can end what it runs, which may be a pack, and has no word for one of its members: a file does instead, which
    the driver makes while the worker waits for its answer.
    """

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        self._ids = {assignment.trial_id for assignment in assignments}
        self._leave = {a.trial_id: Path(a.output_file).with_name(LEAVE) for a in assignments if len(assignments) > 1}
        for file in self._leave.values():
            file.unlink(missing_ok=True)
        self.ended = False

    def send(self, messages: Sequence[Message]) -> Collection[str]:
        if not self.ended:  # then Tune listens no more; another report would wait for ever
            try:
                tune.report({"messages": [message.to_json() for message in messages], "leave": self._files(messages)})
            except SystemExit:  # how Tune ends a trial's thread
                self.ended = True
        return self._ids if self.ended else {message.trial_id for message in messages if self._is_asked(message)}

    def _files(self, messages: Sequence[Message]) -> dict[str, str]:
        return {m.trial_id: str(self._leave[m.trial_id]) for m in messages if m.trial_id in self._leave}

    def _is_asked(self, message: Message) -> bool:
        file = self._leave.get(message.trial_id)
        if file is None or not file.exists():
            return False
        file.unlink()
        return True


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
