"""What a workload is, and what a trial offers to the function that trains it. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

Metrics = Mapping[str, float]

#: Streams that an A/A replicate shares with its original; all others are re-keyed by `replicate`.
SHARED_BY_REPLICATES = frozenset({"initialisation", "evaluation", "importance_sampling"})


class TrialStopped(Exception):  # noqa: N818 - a request to leave, not a fault
    """Raised out of `Trial.report` when the trial is to end now; let it pass."""


class TrialDiverged(Exception):  # noqa: N818 - an outcome of the trial, not a fault
    """Raise it when the objective is no longer finite: the trial is recorded as FAIL `diverged`, a result."""


@dataclass(frozen=True)
class Row:
    """The metrics reported at one step; `time` in seconds since the epoch."""

    step: int
    time: float
    metrics: dict[str, float]


@dataclass
class Trial:
    """One training: an arm's configuration under one seed.

    Usable without any runner: `train(config, Trial(seed=0))` trains in the current process and
    keeps what was reported in `rows`.

    Attributes:
        seed: the seed block this trial belongs to.
        replicate: 0, or the number of an A/A replicate.
        device: `cpu` or `cuda`, what the runner assigned.
        checkpoint_dir: a folder of this trial that outlives its process. What is found there at the
            start is the trial's own last checkpoint: resume from it. None: nothing is kept.
        shared_dir: the study's folder of prepared data and reference tables, or None.
        evaluation: the study's `evaluation` section; `gradient_cosines` true where those are asked for.
        baseline: the baseline's configuration, for arms that are defined relative to it.
        on_report: called after each report; may raise TrialStopped.
        on_checkpoint: called once a checkpoint is complete on disk.
    """

    seed: int
    replicate: int = 0
    device: str = "cpu"
    checkpoint_dir: Path | None = None
    shared_dir: Path | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None
    on_report: Callable[[Row], None] | None = None
    on_checkpoint: Callable[[int], None] | None = None
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def stream_seed(self, stream: str) -> int:
        """A 63-bit seed for the stream of that name, the same in every arm with this seed."""
        replicate = 0 if stream in SHARED_BY_REPLICATES else self.replicate
        key = f"{self.seed}/{replicate}/{stream}".encode()
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1

    def rng(self, stream: str) -> np.random.Generator:
        """A generator for the stream of that name, at its start."""
        return np.random.default_rng(self.stream_seed(stream))

    def report(self, step: int, metrics: Metrics) -> None:
        """Report the metrics of one step.

        Raises: TrialStopped when the trial is to end; TypeError for a value that is no number; ValueError
            for a name that the records cannot hold.
        """
        row = Row(int(step), time.time(), {check_metric_name(name): _number(name, metrics[name]) for name in metrics})
        if self.on_report is None:
            self.rows.append(row)
        else:
            self.on_report(row)

    def checkpointed(self, step: int) -> None:
        """Say that the files in `checkpoint_dir` now hold the state after `step`."""
        if self.on_checkpoint is not None:
            self.on_checkpoint(step)

    def note(self, name: str, value: Any) -> None:
        """Keep a fact about this trial beside its metrics (a JSON value): the numbers used, a hash."""
        self.notes[name] = value

    def keep_text(self, name: str, text: str) -> None:
        """Keep a text as a file of that name among the trial's artifacts: samples, a table.

        Raises: ValueError for a name that is no plain file name.
        """
        if not re.fullmatch(r"\w[\w.-]{0,99}", name, re.ASCII):
            raise ValueError(f"a text named {name!r}; allowed: letters, digits, '_', '-' and '.', at most 100")
        self.texts[name] = text


def check_metric_name(name: str) -> str:
    """The name itself.

    Raises: ValueError where MLflow would refuse it.
    """
    if not re.fullmatch(r"[\w\-. :/]+", name) or posixpath.normpath(name) != name or name.startswith(("/", "..")):
        raise ValueError(
            f"metric name {name!r} cannot be recorded; allowed are letters, digits, '_', '-', '.', ' ', ':' and "
            "single '/' between parts"
        )
    return name


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"metric {name!r} is {value!r}; a number is needed") from None


TrainFunction = Callable[[Mapping[str, Any], Trial], Metrics]


@dataclass(frozen=True)
class PackMember:
    """One trial of a pack: of trials that a workload trains together, in one process.

    Attributes:
        config: its whole configuration.
        trial: as a trial function gets it. `report` may raise TrialStopped: this member is to leave then.
        end: called once when it leaves: with its final metrics, or with the exception that ended it. An exception
            that no single member is to blame for is raised by the pack function instead; its members are then
            trained again one by one.
        turn: a context in which the process works for this member alone: what it prints is this member's, and so is
            the time. All else is shared equally by the members that have not left.
    """

    config: Mapping[str, Any]
    trial: Trial
    end: Callable[[Metrics | Exception], None]
    turn: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


PackFunction = Callable[[Sequence[PackMember]], None]


@dataclass(frozen=True)
class PackCost:
    """What a pack of some size costs on the machine where it was measured.

    Attributes:
        step_s: seconds of one step of the whole pack.
        peak_bytes: most memory the process held, all told.
    """

    step_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Prepared:
    """Data and reference tables that stand ready in the study's shared folder.

    Attributes:
        key: hash of all that went in (data, reference settings, code of the generator).
        sha256: of the reference table's bytes.
        facts: numbers a reader of the report wants (reference NLL, Bayes NLL, scale c, ...).
        warnings: what the user should know of how it was made (a corrupt cache that was made again).
    """

    key: str
    sha256: str
    facts: dict[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArmScale:
    """What the reference table says of an arm before it trains.

    Attributes:
        beta_eff: KL weight relative to the mean effective token weight; nan where no term is on.
        mean_weight: mean effective token weight over the training set.
        shares: each term's share of `mean_weight`, by term name; sums to 1.
    """

    beta_eff: float
    mean_weight: float
    shares: dict[str, float]


@dataclass(frozen=True)
class Workload:
    """A named workload: what the planner and the runner need to know of it.

    Functions that need torch are named as `module:function` and imported in the process that calls them.

    Attributes:
        name: as written under `workload:`.
        train: `module:function` with the signature of TrainFunction.
        config_type: model of the configuration; its defaults are the workload's own. None: a free mapping.
        prepare: `module:function` (config, shared_dir) -> Prepared; makes what trials share, once. Idempotent.
        prepared_key: config -> key of the Prepared it needs, without making it.
        scales: `module:function` (configs, baseline, shared_dir) -> list[ArmScale | None]; None where
            the table is missing.
        geometry: `module:function` ({"config", "settings"}, shared_dir) -> Prepared; measures the inner products of
            the terms' weight matrices at these settings, on the table of that configuration. None: there are none.
        fingerprint: config -> hash of the data's content, a part of each trial's identity. It reads the
            section `data` alone.
        files: path of the configuration that names a file -> path that takes the SHA-256 of its content, for
            files of the user's. A plan fills both in; the name itself is no part of a trial's identity.
        check: looks at the beginning of those files; raises StudyError where it cannot be what the configuration says.
        later: path -> the value that means what was before the path existed: with it, it is no part of a
            trial's identity either.
        sources: packages and modules whose source files make up the code hash.
        pack: `module:function` (members) -> None, a PackFunction: trains trials together, each with the bits it has
            alone. None: trials are trained one by one.
        pack_key: config -> what configurations that can train together have in common; None: it trains alone.
        pack_costs: `module:function` (config, shared_dir, sizes, device) -> {size: PackCost}, measured in the calling
            process; a size that it cannot hold is left out.
        steps: config -> how many steps a trial has, by which a study too short to measure costs is told; None: not
            known.
        metrics: every metric it reports; None: not known before it runs.
        primary: metric that an `ablate init` file compares.
    """

    name: str
    train: str
    config_type: type[BaseModel] | None = None
    prepare: str | None = None
    prepared_key: Callable[[Mapping[str, Any]], str] | None = None
    scales: str | None = None
    geometry: str | None = None
    fingerprint: Callable[[Mapping[str, Any]], str] = lambda _config: ""
    files: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], None] = lambda _config: None
    later: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    pack: str | None = None
    pack_key: Callable[[Mapping[str, Any]], str | None] | None = None
    pack_costs: str | None = None
    steps: Callable[[Mapping[str, Any]], int] | None = None
    metrics: frozenset[str] | None = None
    primary: str = ""
