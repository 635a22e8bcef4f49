"""Run a study without Ray while the clock of its process jumps to and fro by hours, at each look at it.

python jumping_clock.py STUDY_FILE
"""

import itertools
import sys
import time
from datetime import datetime

import optuna.storages._rdb.storage as optuna_storage

from tests.integration.kill_at import run

JUMPS_S = itertools.cycle([0, 7200, -86400, 30, 86400, -7200])
true_time = time.time


class JumpingDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(time.time(), tz)


if __name__ == "__main__":
    time.time = lambda: true_time() + next(JUMPS_S)
    optuna_storage.datetime = JumpingDatetime
    sys.exit(run(sys.argv[1]))
