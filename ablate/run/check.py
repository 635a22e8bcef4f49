"""`ablate check`: verifies the records of a study, mends them, and says what it found."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from ablate.errors import StudyError
from ablate.record.frames import Study
from ablate.record.mlflow_tracking import Tracker, TrackingError
from ablate.record.optuna_storage import Ledger
from ablate.run.claim import needs_lease
from ablate.run.reconcile import Finding, reconcile


def check_study(study: Study, say: Callable[[str], None] = lambda _text: None) -> list[Finding]:
    """Verify and mend a study's records. `say` is told what takes its time.

    Raises: StudyError where another process runs it, or a store does not answer.
    """
    with contextlib.ExitStack() as stack:
        locked = stack.enter_context(study.folder.locked())
        ledger = Ledger.find(study.spec.track.optuna, study.path, study.spec.study)
        if ledger is None:
            return [Finding(f"{study.spec.study} has no ledger yet; ablate run makes it", False)]
        stack.callback(ledger.close)
        if needs_lease(study.spec, study.folder, locked, say):
            stack.enter_context(ledger.leased(study.path, say, say, time.sleep))
        try:
            tracker = Tracker(study.spec.track.mlflow, study.path, study.spec.study)
            tracker.open_study({})
            return reconcile(study.folder, ledger, tracker)
        except TrackingError as error:
            raise StudyError(f"MLflow does not answer: {error}") from error
