"""What a worker is told to run, and what it tells the driver: plain values that pass as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.record.history import decode_metrics, decode_row, encode_metrics, encode_row
from ablate.workloads.contract import Row

#: Where a worker keeps what it reports, beside its output, until the trial has ended.
KEPT_REPORTS = "reports.jsonl"
#: What a driver leaves there for a trial of a pack that is to end.
LEAVE = "leave"


@dataclass(frozen=True)
class Assignment:
    """One trial for a worker.

    Attributes:
        train: `module:function` of the workload.
        pack: the same for trials that one process trains together; "": there is none.
        import_path: folders put in front of the import path.
        last_step: the last step on record, of a trial that goes on; 0 for a new one.
        last_row: the metrics on record at that step.
        flush_on: metric whose report is sent at once; others wait for it.
        timeout_s: after which the process is ended, or None.
    """

    trial_id: str
    attempt: int
    train: str
    config: Mapping[str, Any]
    baseline: Mapping[str, Any] | None
    evaluation: Mapping[str, Any]
    seed: int
    replicate: int
    checkpoint_dir: str
    shared_dir: str
    output_file: str
    pack: str = ""
    import_path: tuple[str, ...] = ()
    last_step: int = 0
    last_row: Mapping[str, float] = field(default_factory=dict)
    flush_on: str = ""
    timeout_s: float | None = None

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(dataclasses.asdict(self) | {"last_row": encode_metrics(self.last_row)})

    @staticmethod
    def from_json(text: str) -> Assignment:
        """The inverse of to_json."""
        values = json.loads(text)
        values["import_path"] = tuple(values["import_path"])
        values["last_row"] = decode_metrics(values["last_row"])
        return Assignment(**values)


@dataclass(frozen=True)
class Ending:
    """How the trial function came back.

    `reason`: "" where it returned; else `exception`, `diverged`, `missing_metric`, or `timeout` in a pack.
    """

    reason: str = ""
    error: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """What a worker sends: at each evaluation, checkpoint and end.

    `apart`: why the trial's pack was given up, through no known fault of the trial; it is to be trained alone. "": it
    goes on.
    """

    trial_id: str
    attempt: int
    rows: tuple[Row, ...] = ()
    log: str = ""
    log_bytes: int = 0
    checkpoint_step: int | None = None
    ending: Ending | None = None
    apart: str = ""

    def to_json(self) -> str:
        """As JSON text."""
        values: dict[str, Any] = {
            "trial_id": self.trial_id,
            "attempt": self.attempt,
            "rows": [encode_row(row) for row in self.rows],
            "log": self.log,
            "log_bytes": self.log_bytes,
            "checkpoint_step": self.checkpoint_step,
            "apart": self.apart,
        }
        if self.ending is not None:
            ending = dataclasses.asdict(self.ending)
            values["ending"] = ending | {"metrics": encode_metrics(self.ending.metrics)}
        return json.dumps(values)

    @staticmethod
    def from_json(text: str) -> Message:
        """The inverse of to_json."""
        values = json.loads(text)
        ending = values.get("ending")
        if ending is not None:
            ending = Ending(**(ending | {"metrics": decode_metrics(ending["metrics"])}))
        return Message(
            trial_id=values["trial_id"],
            attempt=values["attempt"],
            rows=tuple(map(decode_row, values["rows"])),
            log=values["log"],
            log_bytes=values["log_bytes"],
            checkpoint_step=values["checkpoint_step"],
            ending=ending,
            apart=values["apart"],
        )
