"""Run a study, without Ray, as another machine would: another host's name, another namespace of process ids.

    python as_machine.py HOST STUDY_FILE [EXPIRY_S]

It begins once a file `go` is there, since what is imported takes its time. A claim that is watched for a minute
elsewhere is watched for EXPIRY_S seconds here, with a heart that beats as much faster.
"""

import sys
import time
from pathlib import Path

from ablate.record import lease
from tests.integration.kill_at import run


def main():
    host, file, *expiry = sys.argv[1:]
    lease.socket.gethostname = lambda: host
    lease.this_machine = lambda: host
    if expiry:
        scale = float(expiry[0]) / lease.EXPIRY_S
        for name in ("BEAT_S", "EXPIRY_S", "FENCE_S", "RETRY_S"):
            setattr(lease, name, getattr(lease, name) * scale)
    while not Path("go").exists():
        time.sleep(0.02)
    try:
        return run(file)
    except lease.StudyError as error:
        print(f"ablate: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
