"""Processes that compile the same and different models at once with one cache, some of which are killed at random.

Run as `python -m tests.cache.worker SEED [PROCESSES [KILLED]]`, 6 and 4 unless given, 20 and 40 for a long run. It ends
with 0 where every process that was let live computed what NumPy does.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

from fusion import compile as compile_model  # before the forks, all of it, and before TVM, which imports PyTorch
from tests.module.small_models import model

_WIDTH, _OUTPUTS = 1 << 14, 16
_MODELS, _ROUNDS = 3, 4
_SECONDS_EACH = 10.0


def _weights(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((4, _WIDTH)), rng.standard_normal((_WIDTH, _OUTPUTS))
    return first.astype(np.float32), second.astype(np.float32)


def _wide(seed: int) -> onnx.ModelProto:
    """Return an MLP of 1.3 MB of weights, so that writing an entry takes a while."""
    first, second = _weights(seed)
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "second"], ["y"]),
    ]
    signature = [("x", TensorProto.FLOAT, [1, 4])], [("y", TensorProto.FLOAT, [1, _OUTPUTS])]
    return model(nodes, *signature, {"first": first, "second": second})


def _compile_often(seed: int) -> None:
    rng = random.Random(seed)
    x = np.ones((1, 4), np.float32)
    for _ in range(_ROUNDS):
        chosen = rng.randrange(_MODELS)
        first, second = _weights(chosen)
        found = compile_model(_wide(chosen), threads=1)(x)[0]
        np.testing.assert_allclose(found, np.maximum(x @ first, 0) @ second, rtol=1e-3, atol=1e-2)


def _start(seed: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            _compile_often(seed)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return child


def main(seed: int, processes: int = 6, killed: int = 4) -> int:
    """Run `processes` at a time, of which `killed` are, and others take their places.

    Return 0 where all is well, 1 where a result was wrong, 2 where a process did not end.
    """
    rng = random.Random(seed)
    print("seed", seed)
    running = [_start(index) for index in range(processes)]
    for index in range(killed):
        time.sleep(rng.uniform(0.02, 0.5))
        victim = running.pop(rng.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        running.append(_start(processes + index))
    deadline = time.monotonic() + _SECONDS_EACH * processes
    while running and time.monotonic() < deadline:
        for child in list(running):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                running.remove(child)
                if status != 0:
                    return 1
        time.sleep(0.05)
    for child in running:
        os.kill(child, signal.SIGKILL)
    return 2 if running else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
