"""Which file systems are shared over a network: sqlite's shared memory and flock cannot be trusted there."""

from __future__ import annotations

import re
from pathlib import Path

NETWORK = frozenset({
    "afs", "beegfs", "ceph", "cifs", "fuse.cephfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs",
    "wekafs",
})  # fmt: skip
"""Types that Linux gives file systems which other machines may have mounted as well."""

MOUNTS = Path("/proc/self/mounts")


def network_kind(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that holds a path, where it is one of a network; None elsewhere or where unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    where = path.resolve()
    found: tuple[int, str] = (-1, "")
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1]))
        if where.is_relative_to(point):
            found = max(found, (len(point.parts), fields[2]), key=lambda item: item[0])
    return found[1] if found[1] in NETWORK else None
