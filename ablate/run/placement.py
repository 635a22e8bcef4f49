"""Where workers fit: what each asks for against what the nodes of a cluster have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.errors import SpecError
from ablate.spec.models import Run


def resources(run: Run) -> dict[str, float]:
    """What each worker is to have, by name as in the study file."""
    extra = {name: float(value) for name, value in (run.resources.model_extra or {}).items()}
    return {"cpu": float(run.resources.cpu), "gpu": float(run.resources.gpu)} | extra


def _room(host: Mapping[str, Any], name: str) -> float:
    """How much of a resource a node has."""
    return float(host["Resources"].get({"cpu": "CPU", "gpu": "GPU"}.get(name, name), 0.0))


def workers_on(host: Mapping[str, Any], run: Run) -> int:
    """How many workers a node has room for."""
    fits = [int(_room(host, name) / wanted + 1e-9) for name, wanted in resources(run).items() if wanted > 0]
    return min(fits)


def require_resources(run: Run, hosts: Sequence[Mapping[str, Any]]) -> None:
    """See that some node has room for a worker.

    Raises: SpecError naming what is too much.
    """
    for name, wanted in resources(run).items():
        have = max((_room(host, name) for host in hosts), default=0.0)
        if wanted > have:
            cluster = "the cluster has" if len(hosts) == 1 else "no node of the cluster has more than"
            where = "this machine has" if run.address is None else cluster
            raise SpecError(
                f"run.resources.{name}: {wanted:g} asked for each worker; {where} {have:g}; "
                f"lower it in the study file or with --set run.resources.{name}={have:g}"
            )
        if wanted > 1 and wanted != int(wanted) and name == "gpu":
            raise SpecError(f"run.resources.gpu: {wanted:g} asked for; Ray takes fractions below 1 or whole GPUs")
    if not any(workers_on(host, run) for host in hosts):
        asked = ", ".join(f"{name}: {wanted:g}" for name, wanted in resources(run).items())
        raise SpecError(f"run.resources: {asked} asked for each worker; no node of the cluster has all of it")
