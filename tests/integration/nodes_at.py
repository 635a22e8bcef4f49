"""A Ray cluster of processes on this machine, whose nodes come and go as standard input says.

    python nodes_at.py CPUS_OF_THE_HEAD CPUS_OF_A_NODE

Prints the address. Lines it takes, each answered by "done": `add` a node, `remove` the newest (as a machine that is
switched off), `kill-raylet` of the newest.
"""

import os
import sys

from ray.cluster_utils import Cluster


def main():
    head_cpus, node_cpus = map(float, sys.argv[1:])
    options = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints on standard output
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": head_cpus, **options})
    print(cluster.address, file=answers, flush=True)
    nodes = []
    for line in sys.stdin:
        match line.strip():
            case "add":
                nodes.append(cluster.add_node(num_cpus=node_cpus, **options))
                cluster.wait_for_nodes()
            case "remove":
                cluster.remove_node(nodes.pop(), allow_graceful=False)
            case "kill-raylet":
                nodes[-1].kill_raylet()
        print("done", file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
