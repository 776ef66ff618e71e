"""The cuBLASLt that tests run products on: `fake_cublaslt.cc`, on the memory and the streams of the fake driver."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path

from tests.backends.cuda.emulator.emulate import COMPILER
from tests.backends.cuda.fake.fake_cuda import fake_library

_SOURCE = Path(__file__).with_name("fake_cublaslt.cc")


@functools.cache
def fake_cublaslt() -> Path:
    """Return the library, under the name that it has in its package."""
    assert COMPILER is not None
    driver = fake_library()
    made = driver.with_name("libcublasLt.so.12")
    command = [
        COMPILER, "-std=c++20", "-O1", "-shared", "-fPIC", str(_SOURCE), str(driver), f"-Wl,-rpath,{driver.parent}",
        "-o", str(made),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


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
