"""How a trial ended, kept in its own folder as well: `outcome.json`. An emptied store is filled from these.

The file holds what the ledger has of the attempt, as JSON, and is written before the ledger calls it finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ablate.record.run_folder import write_atomically

NAME = "outcome.json"


@dataclass(frozen=True)
class KeptOutcome:
    """A finished attempt at a trial.

    Attributes:
        attributes: all that the ledger noted with it, its outcome among them.
    """

    attempt: int
    started: datetime | None
    ended: datetime
    attributes: Mapping[str, Any]

    @property
    def state(self) -> str:
        """`COMPLETE | PRUNED | FAIL`."""
        return str(self.attributes["outcome"]["state"])


def keep_outcome(
    trial_folder: Path, trial_id: str, attempt: int, started: datetime | None, attributes: Mapping[str, Any]
) -> None:
    """Write down how an attempt ended, now."""
    kept = {
        "trial_id": trial_id,
        "attempt": attempt,
        "started": started.isoformat() if started else None,
        "ended": datetime.now().isoformat(),  # local time without a zone, as Optuna stores it
        "attributes": dict(attributes),
    }
    write_atomically(trial_folder / NAME, json.dumps(kept))


def kept_outcome(trial_folder: Path, trial_id: str) -> KeptOutcome | None:
    """How the last attempt in a folder ended; None where it has not, or where the file is none of this trial's."""
    try:
        kept = json.loads((trial_folder / NAME).read_text(encoding="utf-8"))
        if kept["trial_id"] != trial_id or kept["attributes"]["trial_id"] != trial_id:
            return None
        started = datetime.fromisoformat(kept["started"]) if kept["started"] else None
        found = KeptOutcome(
            int(kept["attempt"]), started, datetime.fromisoformat(kept["ended"]), dict(kept["attributes"])
        )
        return found if found.state in ("COMPLETE", "PRUNED", "FAIL") else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
