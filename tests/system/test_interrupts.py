"""An interrupt ends what is under way, wherever it comes: in a call by TVM, beside LLVM, or as a lock is taken."""

from __future__ import annotations

import subprocess
import sys

from tests.devices.forced import needs_two_cpus

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
from fusion.system.map_in_threads import map_in_threads

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

_AS_A_LOCK_IS_TAKEN = """
import itertools, signal, threading
import numpy as np
import fusion
fusion.compile  # before TVM, which alone imports PyTorch
from tests.devices.forced import divided
from tests.module import small_models

model, x = small_models.softmax_of_columns(), np.ones((3, 8), np.float32)
whole, parts = fusion.compile(model, threads=1), divided(model)
ways = lambda: [iter(lambda: parts(x), None), parts.stream(itertools.repeat(x)), whole.map(itertools.repeat(x), 2)]
enter, interrupted = threading.Condition.__enter__, 0
for number, way in itertools.product(range(0, 40, 3), range(3)):
    taken = itertools.count()

    def entered(condition):
        answer = enter(condition)
        if threading.get_ident() == threading.main_thread().ident and next(taken) == number:
            signal.raise_signal(signal.SIGINT)
        return answer

    threading.Condition.__enter__ = entered
    try:
        for _ in ways()[way]:
            pass
    except KeyboardInterrupt:
        interrupted += 1
    threading.Condition.__enter__ = enter
    assert all(np.array_equal(next(again)[0], whole(x)[0]) for again in ways())

def items(behind):
    yield x
    signal.raise_signal(signal.SIGINT)
    behind.append("not raised where it came")

behind = []
for stream in (parts.stream(items(behind)), whole.map(items(behind), 2)):
    try:
        list(stream)
    except KeyboardInterrupt:
        interrupted += 1
print("ended", interrupted, behind)
"""

_HELD_BACK = """
import os, threading
from fusion.system.interrupts import holding_interrupts, keeping_interrupts
from fusion.module.stream import stream

own = lambda *_: None

def items():
    yield 1
    signal.signal(signal.SIGINT, own)
    yield 2

assert list(stream(lambda item: item, items(), 1)) == [1, 2]
print("of its own:", signal.getsignal(signal.SIGINT) is own)

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with keeping_interrupts() as check:
        try:
            with holding_interrupts():
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass  # as TVM loses it
        check()
except KeyboardInterrupt:
    print("kept")

def fork():
    child = os.fork()
    if not child:
        with holding_interrupts():  # by the thread that is the main one here
            again = os.fork()
        if not again:
            os._exit(5)
        ended = os.waitpid(again, 0)[1] >> 8
        try:
            signal.raise_signal(signal.SIGINT)
            os._exit(1)
        except KeyboardInterrupt:
            os._exit(2 + ended)
    print("in a fork:", os.waitpid(child, 0)[1] >> 8, flush=True)

with holding_interrupts():
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()

released = threading.Event()
timers = [threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)) for seconds in (0.3, 0.8)]
for timer in timers:
    timer.start()
try:
    list(stream(lambda _: released.wait(60), iter([1]), 1))
except KeyboardInterrupt:
    print("ended", timers[1].finished.is_set() and not released.is_set())
released.set()
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


def test_what_is_held_back_comes_to_whom_it_would_have_come() -> None:
    """And a second one ends to wait for what runs."""
    assert _printed(_HELD_BACK) == "of its own: True\nkept\nin a fork: 7\nended True\n"


def test_beside_a_thread_that_compiles() -> None:
    """It is raised once the thread has ended: a process must not end while one is in LLVM."""
    assert _printed(_BESIDE_A_THREAD) == "ended True\n"


@needs_two_cpus
def test_as_a_lock_is_taken_that_threads_of_devices_or_of_map_take() -> None:
    """It stayed taken, and the next call waited for ever."""
    assert _printed(_AS_A_LOCK_IS_TAKEN) == "ended 44 []\n"
