"""Run a study without Ray in processes that are killed by SIGKILL at random times.

    python random_kills.py STUDY_FILE KILLS LONGEST_S SEED LOG

Each process lives for a time drawn evenly from 0 to LONGEST_S, every second one from when a line is added to LOG, which
trials write as they begin. Exits 1 where the study ends before all kills are made.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from tests.integration.kill_at import run


def wait(number, longest_s, rng, log, over):
    """Let the victim of that number live for its time, or until the study is over."""
    begun = lines(log)
    while number % 2 and lines(log) == begun and not over():
        time.sleep(0.02)
    time.sleep(rng.uniform(0, longest_s))


def lines(log):
    return log.read_bytes().count(b"\n") if log.exists() else 0


def main():
    file, kills, longest_s, seed, log = sys.argv[1:]
    rng = random.Random(int(seed))
    for number in range(int(kills)):
        child = os.fork()
        if child == 0:
            os._exit(run(file))
        wait(number, float(longest_s), rng, Path(log), lambda victim=child: has_ended(victim))
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            sys.exit(f"the study was over before kill {number + 1}")


def has_ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    main()
