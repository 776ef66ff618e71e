"""The pool: each task once, whatever the callers; no thread left behind; nothing spent while idle."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion import pool
from tests.module import small_models
from tests.naps import busy_nap

SOURCES = Path(pool.__file__).parent
HERE = Path(__file__).parent
ROWS = 4000

COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="the pool is compiled on Linux, with a compiler"
)


def test_the_pool_was_compiled() -> None:
    assert pool.available(), "install the package again: pip install -e ."


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    """A module with kernels on two threads."""
    return fusion.compile(small_models.mlp(ROWS), threads=2)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)


@pytest.mark.parametrize("options", [["-O2"], ["-O1", "-g", "-fsanitize=thread"]], ids=["optimised", "ThreadSanitizer"])
def test_many_callers_with_nested_and_failing_jobs(options: list[str], tmp_path: Path) -> None:
    _run("stress.c", [*options, "-Dsched_getaffinity=many_cpus"], tmp_path)


@pytest.mark.skipif(not 2 <= len(os.sched_getaffinity(0)) <= 8, reason="of more CPUs none is barred")
def test_who_sleeps_is_woken_elsewhere(tmp_path: Path) -> None:
    _run("placed.c", ["-O2"], tmp_path)


def _run(source: str, options: list[str], folder: Path) -> None:
    """Compile the pool with a program, which has to say that all is right."""
    assert COMPILER is not None
    program = str(folder / "program")
    options = [*options, "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCES}"]
    command = [COMPILER, *options, "-o", program, str(SOURCES / "launch.c"), str(HERE / source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "tsan" in built.stderr:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "right\n", "")


def test_callers_that_end_leave_no_threads(module: fusion.CompiledModule, rows: np.ndarray) -> None:
    expected = module(rows)[0]
    before, wrong = _threads(), list[int]()

    def call() -> None:
        if not np.array_equal(module(rows)[0], expected):
            wrong.append(1)

    for _ in range(30):
        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not wrong
    deadline = time.monotonic() + 5
    while _threads() > before + 1 and time.monotonic() < deadline:  # some end after they were joined
        time.sleep(0.01)
    assert _threads() <= before + 1  # which will free idle arenas


def test_loaded_modules_share_the_workers(module: fusion.CompiledModule, rows: np.ndarray, tmp_path: Path) -> None:
    expected = module(rows)[0]
    module.save(tmp_path / "saved.fusion")
    before = pool.workers()
    for _ in range(3):
        np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion")(rows)[0], expected)
    assert pool.workers() == before >= 1


def test_an_idle_process_takes_no_time(module: fusion.CompiledModule, rows: np.ndarray) -> None:
    assert busy_nap(lambda: module(rows), 0.3, settle=0.01, enough=0.03) < 0.03  # workers spin for 50 us


def test_where_the_system_refuses_threads_a_caller_works_alone() -> None:
    code = """
        import resource

        import numpy as np

        import fusion
        from fusion import pool
        from tests.module import small_models

        module = fusion.compile(small_models.mlp(4000), threads=2)
        x = np.ones((4000, 8), np.float32)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 19), resource.RLIM_INFINITY))  # less than a stack
        for _ in range(3):
            module(x)
        assert pool.workers() == 0, pool.workers()
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
