"""Who waits for an answer gives a process as long as others keep it from its CPUs, and no longer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest

from tuning.patience import Patience


def waits_always() -> dict[str, float]:
    return {"thread": time.monotonic()}


@pytest.mark.parametrize(
    ("waited", "after_s", "comes"),
    [(waits_always, 0.3, True), (waits_always, 60.0, False), (dict, 60.0, False)],  # beyond what a busy machine delays
)
def test_time_without_a_cpu_is_not_its_own(
    waited: Callable[[], dict[str, float]], after_s: float, comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patience, "_waited", lambda _: waited())
    lines = queue.SimpleQueue[str]()
    answering = threading.Timer(after_s, lines.put, ["answer"])
    answering.start()
    try:
        assert Patience(0).wait(lines, 0.15) == "answer"
        assert comes
    except queue.Empty:
        assert not comes
    finally:
        answering.cancel()
