"""What Ray runs in a worker: a process's trials, a workload's `prepare` and `pack_costs`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune

from ablate.run.assignment import LEAVE, Assignment, Message
from ablate.run.packed_worker import run_trials
from ablate.workloads import load_object
from ablate.workloads.contract import PackCost, Prepared


@ray.remote(num_cpus=1, max_retries=2)  # type: ignore[untyped-decorator]
def prepare(function: str, config: dict[str, Any], shared_dir: str, import_path: tuple[str, ...]) -> Prepared:
    """A workload's `prepare`, here."""
    sys.path[:0] = [folder for folder in import_path if folder not in sys.path]
    prepared = load_object(function)(config, Path(shared_dir))
    assert isinstance(prepared, Prepared)
    return prepared


@ray.remote(max_retries=1)  # type: ignore[untyped-decorator]
def measure_packs(
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


def train(config: dict[str, Any]) -> None:
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
        """Hand messages to the driver. Returns: the trials that are to end."""
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
