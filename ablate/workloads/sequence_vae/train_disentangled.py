"""Train sequence VAEs under configurations of the loss stack: the trial and pack functions of every data source."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ablate.workloads.contract import Metrics, PackMember, Trial
from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.reference import one_thread
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.training_member import TrainingMember
from ablate.workloads.sequence_vae.training_pack import train_together


def train(config: Mapping[str, Any], table: ReferenceTable, trial: Trial) -> dict[str, float]:
    """Train one trial to its end, from its last checkpoint where it has one: a pack of one.

    Returns: the metrics of the last step.
    Raises: TrialStopped as the trial asks; TrialDiverged once the objective or a held-out score is not finite.
    """
    endings: list[Metrics | Exception] = []
    train_pack([PackMember(config, trial, endings.append)], table)
    (ending,) = endings
    if isinstance(ending, Exception):
        raise ending
    return dict(ending)


def train_pack(members: Sequence[PackMember], table: ReferenceTable) -> None:
    """Train trials that have a pack key in common, each with the bits that it has alone, whatever becomes of others.

    Under one thread, since sums over several would depend on how many there are.
    """
    with one_thread():
        live = [member for member in (TrainingMember.begin(member, table) for member in members) if member.going]
        while live:
            live = _train_until_one_leaves(live)


def _train_until_one_leaves(members: Sequence[TrainingMember]) -> list[TrainingMember]:
    """Returns: those that have not left."""
    settings = [member.setup.settings.training for member in members]
    states = [member.state.optimiser for member in members]
    pack = ModelPack([member.state.model for member in members], settings, states)
    while all(member.going for member in members):
        _step(pack, members)
    return [member for member in members if member.going]


def _step(pack: ModelPack, members: Sequence[TrainingMember]) -> None:
    """Take one step of each, and let those report for which it is time."""
    started = time.perf_counter()
    steps = [member.state.progress.step for member in members]
    taken = train_together(pack, [member.setup for member in members], steps)
    seconds = (time.perf_counter() - started) / len(members)
    for place, member in enumerate(members):
        member.stepped(taken.objectives[place], taken.norms[place], seconds)
        if member.due:
            member.report(pack.batched, taken, place)
