"""Machines of a cluster, each a network namespace with an address of its own on one bridge. Needs root."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

RAY = Path(sys.executable).parent / "ray"


class Machines:
    """Number 0 is the head; the bridge is in its namespace, so that nothing is left in the host's."""

    def __init__(self, stack, count):
        self._stack = stack
        self._names = [f"ablate-{uuid.uuid4().hex[:6]}" for _ in range(count)]
        head = self._names[0]
        for name in self._names:
            ip("netns", "add", name)
            stack.callback(self._remove, name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", head, "link", "add", "bridge", "type", "bridge")
        ip("-n", head, "addr", "add", f"{self.address(0)}/24", "dev", "bridge")
        ip("-n", head, "link", "set", "bridge", "up")
        for number, name in enumerate(self._names[1:], start=1):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{number}", "netns", head)
            ip("-n", head, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def address(number):
        return f"10.77.0.{number + 1}"

    def start(self, number, *arguments, own_disk=None, **options):
        """Start a command on a machine, with a file system of its own at `own_disk`."""
        prefix = ["ip", "netns", "exec", self._names[number]]
        if own_disk is not None:
            prefix += ["sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', own_disk]
        process = self._stack.enter_context(subprocess.Popen([*prefix, *arguments], **options))
        self._stack.callback(process.kill)
        return process

    def start_ray(self, number, *arguments, **options):
        """Start Ray's processes on a machine: the head's on number 0."""
        where = ["--head", "--port=6379", "--include-dashboard=false"] if number == 0 else ["--address=10.77.0.1:6379"]
        command = [RAY, "start", *where, f"--node-ip-address={self.address(number)}", "--num-cpus=1", "--block"]
        command += ["--object-store-memory=100000000", "--disable-usage-stats", *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return self.start(number, *command, **quiet, **options)

    def switch_off(self, number):
        """End every process of a machine at once."""
        for pid in ip("netns", "pids", self._names[number]).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def unplug(self, number):
        """Cut a machine off; its processes go on."""
        ip("-n", self._names[number], "link", "set", "eth0", "down")

    def wait_for_nodes(self, count):
        """Wait until Ray counts so many nodes."""
        deadline = time.monotonic() + 240
        script = "import ray; ray.init(address='10.77.0.1:6379', logging_level='ERROR', log_to_driver=False)\n"
        script += "print(sum(node['Alive'] for node in ray.nodes()))"
        found = ""
        while found != str(count):
            assert time.monotonic() < deadline, f"{found or 'no'} nodes instead of {count}"
            with self.start(0, sys.executable, "-W", "ignore", "-c", script, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asked:  # fmt: skip
                found = asked.communicate()[0].strip()

    def _remove(self, name):
        self.switch_off(self._names.index(name))
        ip("netns", "del", name)


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def cannot():
    """Why there can be no machines here, or nothing."""
    name = f"ablate-{uuid.uuid4().hex[:6]}"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "bridge", "type", "bridge")
        finally:
            ip("netns", "del", name)
    except FileNotFoundError:
        return "there is no `ip` here"
    except subprocess.CalledProcessError as error:
        return f"network namespaces: {error.stderr.strip()}"
    return ""
