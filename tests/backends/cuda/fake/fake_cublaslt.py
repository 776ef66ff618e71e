"""The cuBLASLt that tests run products on: `fake_cublaslt.cc`, on the memory and the streams of the fake driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.backends.cuda.fake.fake_library import compiled

_SOURCE = Path(__file__).with_name("fake_cublaslt.cc")


def fake_cublaslt() -> Path:
    """Return the library, under the name that it has in its package."""
    return compiled(_SOURCE, "libcublasLt.so.12")


class FakeCublasLt:
    """The fake library of this process: what it is to refuse, and what it was asked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(fake_cublaslt()))
        self._library.fake_cublaslt_log.restype = ctypes.c_char_p
        self._library.fake_cublaslt_reset()

    @property
    def products(self) -> list[str]:
        """A line for each product that was asked for."""
        return str(self._library.fake_cublaslt_log().decode()).splitlines()

    def fail(self, name: str, status: int) -> None:
        """Have the next call of a function return a status."""
        self._library.fake_cublaslt_fail(name.encode(), status)

    def propose(self, number: int) -> None:
        """Have so many algorithms for each product."""
        self._library.fake_cublaslt_propose(number)
