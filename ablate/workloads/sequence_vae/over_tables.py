"""What every data source does once its tables can be made: train a trial over them, say the scale of arms."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.errors import StudyError
from ablate.workloads.contract import ArmScale, PackMember, Prepared, Trial
from ablate.workloads.sequence_vae import train_disentangled
from ablate.workloads.sequence_vae.objective import arm_scale
from ablate.workloads.sequence_vae.reference_table import is_prepared, open_table
from ablate.workloads.sequence_vae.trial_setup import trial_settings

Prepare = Callable[[Mapping[str, Any], Path], Prepared]
PreparedKey = Callable[[Mapping[str, Any]], str]


def train_trial(config: Mapping[str, Any], trial: Trial, prepare: Prepare, key: PreparedKey) -> dict[str, float]:
    """Train one trial over the table in its shared folder; without such a folder it makes a table of its own.

    Args:
        config: whole, the workload's defaults filled in.
    Returns: the metrics of the last step.
    Raises: as train_disentangled.train; StudyError where the shared folder does not hold the table.
    """
    if trial.shared_dir is not None:
        return train_disentangled.train(config, open_table(key(config), trial.shared_dir), trial)
    with tempfile.TemporaryDirectory() as folder:
        made = prepare(config, Path(folder)).key
        return train_disentangled.train(config, open_table(made, Path(folder)), trial)


def train_members(members: Sequence[PackMember], key: PreparedKey) -> None:
    """Train trials with a pack key in common over the one table in their shared folder.

    Raises: StudyError where the folder does not hold the table.
    """
    first = members[0]
    if first.trial.shared_dir is None:
        raise StudyError("trials are trained together over the table of a study; these have no shared folder")
    train_disentangled.train_pack(members, open_table(key(first.config), first.trial.shared_dir))


def arm_scales(
    configs: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any], shared_dir: Path, key: PreparedKey
) -> list[ArmScale | None]:
    """What the tables say of each arm before it trains; None where an arm's table is missing."""
    base = trial_settings(baseline)
    tables = {}
    found: list[ArmScale | None] = []
    for config in configs:
        made = key(config)
        if made not in tables:
            tables[made] = open_table(made, shared_dir) if is_prepared(made, shared_dir) else None
        table = tables[made]
        found.append(None if table is None else arm_scale(trial_settings(config), table, base))
    return found
