"""Loads OpenVINO so that a thread which is interrupted later keeps its own stack for signals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino


def load_core() -> openvino.Core:
    """Return a Core whose CPU plugin was loaded in a thread that has ended.

    The plugin (2026.4) gives the thread that loads it another stack for signals, and frees that with the last that uses
    the plugin, in whichever thread; it puts the former stack back only where it finds its own. Where the main thread
    was left with a stack that was gone, Ctrl-C ended the process by SIGSEGV: Python's handlers ask for that stack.
    """
    import openvino

    def load() -> openvino.Core:
        core = openvino.Core()
        core.get_versions("CPU")
        return core

    with ThreadPoolExecutor(1, "fusion loads OpenVINO") as thread:
        return thread.submit(load).result()
