"""Forms that are being made in the background: `save`, copies and reports wait for them, and nothing waits for ever."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion import api
from fusion.errors import LimitError
from fusion.module import background
from tests.module import small_models
from tests.module.small_models import mlp_numpy

pytestmark = pytest.mark.stand_in
compiled = functools.partial(fusion.compile, dynamic=False)
"""With a form for each shape."""
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What lets the background compile."""
    go_on, compile_form = threading.Event(), api.compile_form

    def held(*arguments: Any) -> Any:
        assert go_on.wait(20)
        return compile_form(*arguments)

    monkeypatch.setattr(api, "compile_form", held)
    yield go_on
    go_on.set()


def saved(module: fusion.CompiledModule, path: Path) -> fusion.CompiledModule:
    module.save(path)
    return fusion.load(path)


def explained(module: fusion.CompiledModule, path: Path) -> None:
    assert "forms so far: 1" in module.explain()


def drawn(module: fusion.CompiledModule, path: Path) -> None:
    module.explain_html(path)
    assert "x float32 3x8" in path.read_text()


def profiled(module: fusion.CompiledModule, path: Path) -> None:
    assert module.profile(seconds=0.01).kernels


USES: tuple[Callable[[fusion.CompiledModule, Path], fusion.CompiledModule | None], ...] = (
    saved, lambda module, _: pickle.loads(pickle.dumps(module)), lambda module, _: copy.deepcopy(module),
    explained, drawn, profiled,
)  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=["save", "pickle", "copy", "explain", "explain_html", "profile"])
def test_what_needs_forms_waits_for_them(
    use: Callable[[fusion.CompiledModule, Path], fusion.CompiledModule | None], hold: threading.Event, tmp_path: Path
) -> None:
    module = compiled(small_models.mlp("rows"))
    module(X)
    assert not module.specializations
    timer = threading.Timer(0.1, hold.set)
    timer.start()
    other = use(module, tmp_path / "out")
    timer.join()
    assert len(module.specializations) == 1
    if other is not None:
        assert len(other.specializations) == 1
        np.testing.assert_array_equal(other(X)[0], module(X)[0])


def test_a_form_that_cannot_be_made_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, compile_form = compiled(small_models.mlp("rows")), api.compile_form
    module(X, wait=True)

    def refused(*_: Any) -> Any:
        raise LimitError("too large")

    monkeypatch.setattr(api, "compile_form", refused)
    module(X[:2])
    assert "could not be compiled for x=[2, 8]: too large" in module.explain()
    assert len(saved(module, tmp_path / "one").specializations) == 1
    monkeypatch.setattr(api, "compile_form", compile_form)
    with pytest.raises(LimitError, match="too large"):
        module(X[:2])


@pytest.mark.parametrize("queued", [False, True], ids=["before it is queued", "after"])
def test_an_interrupt_of_a_call_leaves_nothing_to_wait_for(
    queued: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit = background.submit

    def interrupted(job: background.Job) -> bool:
        if queued:
            submit(job)
        raise KeyboardInterrupt

    module = compiled(small_models.mlp("rows"))
    with monkeypatch.context() as patch:
        patch.setattr(background, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module(X)
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-5)
    assert len(saved(module, tmp_path / "m").specializations) == 1


def test_an_interrupt_before_the_thread_starts_keeps_no_other_job_from_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    module = compiled(small_models.mlp("rows"))
    module(X[:1], wait=True)
    for thread in threading.enumerate():
        if thread.name == "fusion-compile":
            thread.join(20)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module(X)
    module(X[:2])
    assert {form.inputs[0].shape for form in saved(module, tmp_path / "m").specializations} >= {(1, 8), (2, 8)}


SLOW = """
    import atexit, os, sys, threading, time
    import numpy as np
    import fusion
    fusion.compile  # before TVM, which alone imports PyTorch
    from fusion import api
    from tests.module import small_models

    compile_form, begun = api.compile_form, threading.Event()

    def slowly(*arguments):
        begun.set()
        time.sleep(0.5)
        return compile_form(*arguments)

    api.compile_form = slowly
    x = np.ones((2, 8), np.float32)
    module = fusion.compile(small_models.mlp("rows"), dynamic=False)
    module(x)
    module(x[:1])
    assert begun.wait(20)
"""


def in_process(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW) + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("which", ["a thread", "at exit"])
def test_who_outlives_the_main_thread_makes_the_forms(which: str, tmp_path: Path) -> None:
    """The background ends with the main thread; a thread that waits for it goes on without."""
    path = tmp_path / "m.fusion"
    done = in_process(
        {
            "a thread": "threading.Thread(target=lambda: module.save(sys.argv[1])).start()",
            "at exit": "atexit.register(lambda: (module(x), module(x[:1]), module.save(sys.argv[1])))",
        }[which],
        path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {form.inputs[0].shape for form in fusion.load(path).specializations} == {(1, 8), (2, 8)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_waits_for_nothing_of_its_parent(tmp_path: Path) -> None:
    done = in_process(
        """
        child = os.fork()
        if not child:
            assert "forms so far: 0" in module.explain()
            module(x, wait=True)
            module.save(sys.argv[1])
            os._exit(7)
        print(os.waitpid(child, 0)[1] >> 8)
        """,
        tmp_path / "m.fusion",
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert len(fusion.load(tmp_path / "m.fusion").specializations) == 1


STOPPED = """
import time
from fusion.module import background
background._SLICES = 12

def job():
    while not background.abandoned():
        time.sleep(0.01)
    print("ending", flush=True)
    for _ in range(8):  # no checkpoint for a while of its own
        time.sleep(0.05)
    print("ended", flush=True)

background.submit(job)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals of POSIX")
def test_the_end_of_a_process_that_is_stopped_meanwhile_waits_on() -> None:
    """As a container that is paused: a thread in native code would crash the interpreter's end."""
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # longer than the wait
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "ended\n"
    assert process.returncode == 0
