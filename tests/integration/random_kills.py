"""Run a study without Ray in processes that are killed by SIGKILL at random times.

    python random_kills.py STUDY_FILE KILLS LONGEST_S SEED

Each process lives for a time drawn evenly from 0 to LONGEST_S. Exits 1 where the study ends before all kills are made.
"""

import os
import random
import signal
import sys
import time

from tests.integration.kill_at import run


def killed(file, after_s):
    """Run the study in a fork that is killed. Returns: whether it was still running then."""
    child = os.fork()
    if child == 0:
        os._exit(run(file))
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main():
    file, kills, longest_s, seed = sys.argv[1:]
    rng = random.Random(int(seed))
    for number in range(int(kills)):
        if not killed(file, rng.uniform(0, float(longest_s))):
            sys.exit(f"the study was over before kill {number + 1}")


if __name__ == "__main__":
    main()
