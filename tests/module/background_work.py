"""What compiles in the background, and what stands in for it: waited for and counted."""

from __future__ import annotations

import gc
import threading

from backends.onnxruntime import fallback


def ended() -> None:
    """Wait until nothing is compiled in the background."""
    for thread in threading.enumerate():
        if thread.name == "fusion-compile":
            thread.join(20)
            assert not thread.is_alive()


def sessions() -> int:
    """Return how many models ONNX Runtime holds."""
    gc.collect()
    return len(fallback._subgraphs)
