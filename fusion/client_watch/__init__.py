"""Servers of TVM RPC that outlive their clients.

TVM's server ends for good when a client ends in the middle of a call: killed, out of memory, or cut off. What is sent
to it here, see `watch.c`, ends the session's process well then, so that the server takes the next client at once, also
where it still computed; a client whose machine does not answer for 30 s is given up. The code is compiled where the
package is installed, on Linux with a C compiler; without it servers are as TVM has them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def watch_code() -> bytes:
    """Return the library whose function `fusion_watch` begins that in a session's process; none where there is none."""
    for compiled in Path(__file__).parent.glob("_watch*.so"):
        return compiled.read_bytes()
    return b""
