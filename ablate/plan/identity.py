"""The identity of a trial: a hash of all that its numbers depend on, and of nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.spec.paths import canonical

IDENTITY_VERSION = 1
"""Raised when the same content would get another id."""

LENGTH = 12


def trial_id(
    *,
    workload: str,
    fingerprint: str,
    config: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    seed: int,
    replicate: int = 0,
    baseline: Mapping[str, Any] | None = None,
) -> str:
    """First 12 hex digits of the SHA-256 of a canonical JSON of these values and of the identity's version.

    Args:
        workload: as written in the study file.
        fingerprint: hash of the data's content.
        config: the arm's whole configuration, the `reference` section included.
        evaluation: the study's `evaluation` section: it changes what is measured.
        baseline: the baseline's configuration, for an arm that is defined relative to it; else None.
    """
    (found,) = trial_ids(
        workload=workload,
        fingerprint=fingerprint,
        config=canonical(config),
        evaluation=canonical(evaluation),
        seeds=[seed],
        replicate=replicate,
        baseline=canonical(baseline),
    )
    return found


def trial_ids(
    *,
    workload: str,
    fingerprint: str,
    config: str,
    evaluation: str,
    seeds: Iterable[int],
    replicate: int,
    baseline: str,
) -> list[str]:
    """As trial_id, for many seeds; mappings are given as canonical JSON.

    The keys stand in order, so that all before the seed is hashed once an arm.
    """
    head = hashlib.sha256(
        f'{{"baseline":{baseline},"configuration":{config},"data":{canonical(fingerprint)},"evaluation":{evaluation},'
        f'"identity":{IDENTITY_VERSION},"replicate":{replicate},"seed":'.encode()
    )
    tail = f',"workload":{canonical(workload)}}}'
    ids = []
    for seed in seeds:
        whole = head.copy()
        whole.update(f"{seed}{tail}".encode())
        ids.append(whole.hexdigest()[:LENGTH])
    return ids
