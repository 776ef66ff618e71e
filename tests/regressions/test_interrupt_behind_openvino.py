"""Ctrl-C behind models on OpenVINO: its plugin left the main thread with a stack for signals that was freed in another
thread, or out of order, and the process ended by SIGSEGV, without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os
import signal
import threading
import time

from onnx import TensorProto, helper

from backends.openvino.library import LIBRARY

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("input0", "y"))
graph = helper.make_graph([helper.make_node("Relu", ["input0"], ["y"])], "relu", [x], [y])
# A shell ignores interrupts of what it runs in the background, and Python leaves that as it is.
signal.signal(signal.SIGINT, signal.default_int_handler)
data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
held = [LIBRARY.open(data, 1)]
{drop}
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
"""
_ELSEWHERE = """
thread = threading.Thread(target=held.clear)
thread.start()
thread.join()
"""
_OUT_OF_ORDER = """
held.append(LIBRARY.open(data, 1))
del held[0]
del held[0]
"""


@pytest.mark.parametrize("drop", [_ELSEWHERE, _OUT_OF_ORDER], ids=["elsewhere", "out_of_order"])
def test_an_interrupt_is_one(drop: str) -> None:
    script = _SCRIPT.format(drop=drop)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
