"""What a forked child answers, which is ended where it hangs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

DEADLINE_S = 30.0


def answer_of_child(call: Callable[[], Any]) -> Any:
    """Return what `call` returns in a child that is forked from this process."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(call()))
    process.start()
    process.join(DEADLINE_S)
    is_alive = process.is_alive()
    process.kill()
    process.join()
    assert not is_alive
    assert not queue.empty(), f"the child ended with code {process.exitcode}"
    return queue.get()
