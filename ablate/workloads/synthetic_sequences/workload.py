"""The functions that WORKLOAD names: prepare, train, scales, geometry."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.workloads.contract import ArmScale, Prepared, Trial
from ablate.workloads.sequence_vae import train_disentangled
from ablate.workloads.sequence_vae.data_table import write_sequences
from ablate.workloads.sequence_vae.objective import arm_scale
from ablate.workloads.sequence_vae.reference_table import is_prepared, open_table, prepare_table
from ablate.workloads.sequence_vae.term_geometry import prepare_gram
from ablate.workloads.sequence_vae.trial_setup import trial_settings
from ablate.workloads.synthetic_sequences.config import Config, prepared_key, sequences_key
from ablate.workloads.synthetic_sequences.generator import generate


def prepare(config: Mapping[str, Any], shared_dir: Path) -> Prepared:
    """Draw the sequences, train the reference and write the table of both, unless it is there and whole."""
    settings = Config.model_validate(dict(config))
    return prepare_table(
        prepared_key(config),
        sequences_key(config),
        lambda folder: write_sequences(folder, generate(settings.data)),
        settings.reference,
        shared_dir,
    )


def train(config: Mapping[str, Any], trial: Trial) -> dict[str, float]:
    """Train one trial over the table in its shared folder; without such a folder it makes a table of its own.

    Returns: the metrics of the last step.
    Raises: as train_disentangled.train; StudyError where the shared folder does not hold the table.
    """
    resolved = Config.model_validate(dict(config)).model_dump(mode="json")
    if trial.shared_dir is not None:
        table = open_table(prepared_key(resolved), trial.shared_dir)
        return train_disentangled.train(resolved, table, trial)
    with tempfile.TemporaryDirectory() as folder:
        key = prepare(resolved, Path(folder)).key
        return train_disentangled.train(resolved, open_table(key, Path(folder)), trial)


def scales(
    configs: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any], shared_dir: Path
) -> list[ArmScale | None]:
    """What the tables say of each arm before it trains; None where an arm's table is missing."""
    base = trial_settings(baseline)
    tables = {}
    found: list[ArmScale | None] = []
    for config in configs:
        key = prepared_key(config)
        if key not in tables:
            tables[key] = open_table(key, shared_dir) if is_prepared(key, shared_dir) else None
        table = tables[key]
        found.append(None if table is None else arm_scale(trial_settings(config), table, base))
    return found


def geometry(request: Mapping[str, Any], shared_dir: Path) -> Prepared:
    """Measure what `ablate terms` reads on the table of `request["config"]`, at `request["settings"]`."""
    return prepare_gram(prepared_key(request["config"]), request["settings"], shared_dir)
