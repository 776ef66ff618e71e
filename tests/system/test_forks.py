"""Locks in a forked process."""

from __future__ import annotations

import os
import threading

import pytest

from fusion.system.forks import Lock


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")  # of its other thread, of which this is
def test_a_child_finds_open_what_other_threads_hold() -> None:
    forgotten: list[str] = []
    mine, theirs = Lock(lambda: forgotten.append("mine")), Lock(lambda: forgotten.append("theirs"))
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with theirs:
            taken.set()
            over.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(10)
    with mine:
        child = os.fork()
        if not child:
            os._exit(7 if theirs.acquire(timeout=5) and forgotten == ["theirs"] and mine._is_owned() else 1)
    assert os.waitpid(child, 0)[1] >> 8 == 7
    assert not theirs.acquire(timeout=0.01)
    over.set()
    thread.join()
    assert not forgotten
