"""The cuDNN that tests run convolutions on: `fake_cudnn.cc`, on the memory and the streams of the fake driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.backends.cuda.fake.fake_library import compiled

_SOURCE = Path(__file__).with_name("fake_cudnn.cc")


def fake_cudnn() -> Path:
    """Return the library, under the name that it has in its package."""
    return compiled(_SOURCE, "libcudnn.so.9")


class FakeCudnn:
    """The fake library of this process: what it is to refuse, and what it was asked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(fake_cudnn()))
        self._library.fake_cudnn_log.restype = ctypes.c_char_p
        self._library.fake_cudnn_reset()

    @property
    def convolutions(self) -> list[str]:
        """A line for each convolution that was asked for."""
        return str(self._library.fake_cudnn_log().decode()).splitlines()

    @property
    def descriptors(self) -> int:
        """How many there are, whoever made them."""
        return int(self._library.fake_cudnn_alive())

    def fail(self, name: str, status: int) -> None:
        """Have the next call of a function return a status."""
        self._library.fake_cudnn_fail(name.encode(), status)

    def propose(self, number: int) -> None:
        """Have so many of six engines ranked for each graph, of which the last alone suits; -1: no fallback, too."""
        self._library.fake_cudnn_propose(number)
