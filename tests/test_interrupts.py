"""An interrupt while a model is compiled ends that, wherever it comes: in a call by TVM, or beside LLVM."""

from __future__ import annotations

import subprocess
import sys

_IN_A_CALL_BY_TVM = """
import signal
import fusion, fusion.runtime
fusion.runtime.import_compiler()  # without PyTorch
from backends.cpu.kernels.shared.lowering import constant_matmul
from tests.module import small_models

pack = constant_matmul.pack_matmul

def interrupted(*arguments):
    signal.raise_signal(signal.SIGINT)
    return pack(*arguments)

constant_matmul.pack_matmul = interrupted
try:
    fusion.compile(small_models.mlp(), threads=1, cache=False)
except KeyboardInterrupt:
    print("ended", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""

_BESIDE_A_THREAD = """
import os, signal, time
from fusion.map_in_threads import map_in_threads

calls = []

def work(number):
    calls.append(number)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
    calls.remove(number)

try:
    map_in_threads(work, range(2))
except KeyboardInterrupt:
    print("ended", not calls)
"""


# A shell's background jobs, and what they start, ignore interrupts.
_HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def _printed(script: str) -> str:
    command = [sys.executable, "-c", _HEARD + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "internal error" not in done.stderr
    return done.stdout


def test_in_a_call_by_tvm() -> None:
    assert _printed(_IN_A_CALL_BY_TVM) == "ended True\n"


def test_beside_a_thread_that_compiles() -> None:
    """It is raised once the thread has ended: a process must not end while one is in LLVM."""
    assert _printed(_BESIDE_A_THREAD) == "ended True\n"
