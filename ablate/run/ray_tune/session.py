"""A Ray cluster for one study: its workers, what is asked of its nodes, and whether it lives."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as NodeAffinity

from ablate.errors import SpecError
from ablate.run.placement import require_resources, resources, workers_on
from ablate.run.ray_tune.rounds import Driver, run_round
from ablate.run.ray_tune.worker import measure_packs, prepare
from ablate.spec.addresses import concealed, filled_in
from ablate.spec.models import Run
from ablate.workloads.contract import PackCost, Prepared

#: Ray has so long to answer.
ANSWER_S = 60.0
#: The workers of a cluster are counted this often.
COUNT_EVERY_S = 3.0


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
        return prepare.remote(function, dict(config), str(shared_dir), import_path)

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
        measure = measure_packs.options(num_cpus=cpus, num_gpus=gpus, resources=wanted)
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
        return run_round(driver, folder, self._run, self.slots, self.alive)


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
