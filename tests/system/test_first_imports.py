"""A fork waits for imports of the compiler; where these take too long, the process says so, and waits for nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import os, signal, sys, threading
import fusion
from fusion.system import first_imports

first_imports._MOST_S = 0.1
half, over = threading.Event(), threading.Event()

def waits(event, arguments):
    # No finder: Python's own lock is held then, for which a fork waits.
    if event == "import" and arguments[0] == "tvm.relax" and threading.current_thread() is not threading.main_thread():
        half.set()
        over.wait(30)

sys.addaudithook(waits)
thread = threading.Thread(target=lambda: fusion.compile)
thread.start()
half.wait(30)
child = os.fork()
if not child:
    signal.alarm(20)
    try:
        fusion.compile
    except fusion.FusionError as error:
        print(error, flush=True)
    os._exit(7)
assert os.waitpid(child, 0)[1] >> 8 == 7
over.set()
thread.join()
child = os.fork()
if not child:
    fusion.compile
    os._exit(7)
assert os.waitpid(child, 0)[1] >> 8 == 7
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_meanwhile_says_what_to_do() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "F503" in ran.stdout
    assert "was importing it" in ran.stdout
