"""The control groups of this process, in which a container or a service gets its share of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
ReadText = Callable[[Path], str]
"""Returns what a file of the system says, without white space around it; "" where it is not there."""


def read_text(path: Path) -> str:
    """Return what a file of the system says, without white space around it; "" where it is not there."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def own_groups(controller: str, read: ReadText = read_text) -> Iterator[Path]:
    """Yield the folders, of which some may not be there, of the groups of `controller` ("cpu", "memory") that this
    process is in, from its own outwards, in both versions of control groups; `read` reads files of the system."""
    for line in read(_MEMBERSHIP).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        roots = [_GROUPS] if not controllers else [_GROUPS / controllers, _GROUPS / controller]
        if controllers and controller not in controllers.split(","):
            continue
        for root in roots:
            # A container may see its own group as the root: the path then names what is not there.
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                yield root / group
