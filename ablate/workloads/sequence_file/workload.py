"""The functions that WORKLOAD names: prepare, train, train_pack, costs of packs, scales, geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.workloads.contract import ArmScale, PackCost, PackMember, Prepared, Trial
from ablate.workloads.sequence_file.config import Config, prepared_key, sequences_key
from ablate.workloads.sequence_file.table import write_table
from ablate.workloads.sequence_vae.over_tables import arm_scales, train_members, train_trial
from ablate.workloads.sequence_vae.pack_costs import pack_costs
from ablate.workloads.sequence_vae.reference_table import open_table, prepare_table
from ablate.workloads.sequence_vae.term_geometry import prepare_gram


def prepare(config: Mapping[str, Any], shared_dir: Path) -> Prepared:
    """Read the file, train the reference and write the tables of both, unless they are there and whole."""
    settings = Config.model_validate(dict(config))
    return prepare_table(
        prepared_key(config),
        sequences_key(config),
        lambda folder: write_table(folder, settings.data),
        settings.reference,
        shared_dir,
    )


def train(config: Mapping[str, Any], trial: Trial) -> dict[str, float]:
    """As over_tables.train_trial."""
    return train_trial(Config.model_validate(dict(config)).model_dump(mode="json"), trial, prepare, prepared_key)


def train_pack(members: Sequence[PackMember]) -> None:
    """As over_tables.train_members."""
    train_members(members, prepared_key)


def costs(config: Mapping[str, Any], shared_dir: Path, sizes: Sequence[int], device: str) -> dict[int, PackCost]:
    """As pack_costs."""
    return pack_costs(config, open_table(prepared_key(config), shared_dir), sizes, device)


def scales(
    configs: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any], shared_dir: Path
) -> list[ArmScale | None]:
    """As over_tables.arm_scales."""
    return arm_scales(configs, baseline, shared_dir, prepared_key)


def geometry(request: Mapping[str, Any], shared_dir: Path) -> Prepared:
    """Measure what `ablate terms` reads on the table of `request["config"]`, at `request["settings"]`."""
    return prepare_gram(prepared_key(request["config"]), request["settings"], shared_dir)
