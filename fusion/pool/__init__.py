"""One pool of worker threads for the whole process, through which kernels launch in place of TVM's pools.

TVM keeps a pool for each thread that runs kernels. Its workers stay when that thread ends, are missing in a child after
a fork, and yield their time slice while they wait: beside two busy processes on two CPUs BERT-tiny took 76 ms, alone
0.73. Here a caller does itself what no worker has begun: see `launch.c`, which is compiled where the package is
installed, on Linux with a C compiler. Without it TVM's pools serve.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from pathlib import Path

from fusion import runtime  # noqa: F401 - loads the library of tvm_ffi

_LAUNCH = "__TVMBackendParallelLaunch"
"""The variable of each library of kernels that holds the function by which they launch."""


def _load() -> ctypes.CDLL | None:
    """Return the compiled pool, which passes on errors by tvm_ffi's functions, as those keep them by thread."""
    compiled = sorted(Path(__file__).parent.glob("_pool*.so"))
    if not compiled:
        return None
    pool, process = ctypes.CDLL(str(compiled[0])), ctypes.CDLL(None)
    pool.pool_pass_errors(process.TVMFFIErrorMoveFromRaised, process.TVMFFIErrorSetRaised, process.TVMFFIObjectDecRef)
    return pool


_pool = _load()
_of_thread = threading.local()


def connect(library: Path) -> bool:
    """Let the kernels of `library`, which is loaded, launch in this pool; returns False where TVM's has to serve."""
    if _pool is None:
        return False
    with contextlib.suppress(ValueError):  # no kernel of it launches
        launch = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), _LAUNCH)
        launch.value = ctypes.cast(_pool.pool_launch, ctypes.c_void_p).value
    return True


def use(threads: int) -> None:
    """Let the kernels of connected libraries that the calling thread runs take up to so many threads, it among them."""
    if getattr(_of_thread, "threads", 0) != threads:
        assert _pool is not None
        _pool.pool_use(threads)
        _of_thread.threads = threads


def start(threads: int) -> None:
    """Start the workers of a launch on so many threads: they may run where the calling thread may, whoever launches."""
    if _pool is not None:
        _pool.pool_launch(_NOTHING, None, threads)


_NOTHING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)


def workers() -> int:
    """Return how many worker threads there are."""
    return 0 if _pool is None else int(_pool.pool_workers())


def available() -> bool:
    """Return whether the pool was compiled."""
    return _pool is not None
