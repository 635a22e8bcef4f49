"""The command, with the workload of packed_toy.py among the built-in ones.

python with_packed_toy.py ARGUMENT...
"""

import sys

from ablate.cli import app
from ablate.workloads import BUILT_IN

BUILT_IN["packed_toy"] = "packed_toy:WORKLOAD"

if __name__ == "__main__":
    sys.exit(app())
