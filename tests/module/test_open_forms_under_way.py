"""The form for all sizes while it is made, and when that fails: who waits, who answers, and what is tried again."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion import api
from fusion.declined import Declined
from fusion.errors import InputError, LimitError, ModelChangedError, ResourceError
from fusion.module import background, hot_shapes, specializations
from fusion.module.compare_forms import FormTimes
from fusion.module.program import Program
from fusion.module.specialization import Specialization
from fusion.symbolic.open_dims import CallAtFault
from fusion.symbolic.open_model import OpenModel
from fusion.system.abandon import Abandoned, checkpoint
from tests.module.background_work import ended, sessions
from tests.module.open_models import two_inputs

TWO = two_inputs()
STAND_IN = pytest.mark.stand_in


class Gate:
    """Lets `fusion.api` begin to lower for all sizes once it is opened, or fail as told."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()
        self.errors, self.made, self.each = list[BaseException](), 0, list[Any]()
        self._lower: Callable[..., OpenModel] = api.lower_for_all
        self._compile = api.compile_form

    def lower(self, *arguments: Any) -> OpenModel:
        self.begun.set()
        assert self.opened.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        self.made += 1
        return self._lower(*arguments)

    def compile(self, model: Any, shapes: Any, ctx: Any) -> Any:
        self.each.append(shapes["a"][0])
        return self._compile(model, shapes, ctx)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(api, "lower_for_all", made.lower)
    monkeypatch.setattr(api, "compile_form", made.compile)
    yield made
    made.errors.clear()
    made.opened.set()
    ended()


def check(module: fusion.CompiledModule, rows: int, **options: bool) -> None:
    arrays = TWO.arrays(rows=rows)
    expected = np.maximum(arrays["a"] + arrays["b"], 0)
    np.testing.assert_allclose(module(*arrays.values(), **options)[0], expected, rtol=1e-6)


@STAND_IN
def test_onnx_runtime_answers_for_all_shapes_while_it_is_made(gate: Gate) -> None:
    module, before = fusion.compile(TWO.proto), sessions()
    assert module.under_way == ["a form for all sizes is made with the first call"]
    assert str(module.placement) == "no form is made yet; a form for all sizes is made with the first call"
    for rows in (3, 5, 3):
        check(module, rows)
    assert module.under_way == ["being compiled for all sizes"]
    told = "being compiled for all sizes; ONNX Runtime answers calls meanwhile"
    assert str(module.placement) == f"no form is made yet; {told}"
    assert not module.specializations
    assert sessions() == before + 1
    gate.opened.set()
    ended()
    assert sessions() == before, "it is closed"
    check(module, 7)
    assert sessions() == before
    assert (gate.made, gate.each, len(module.specializations), module.under_way) == (1, [], 1, [])


@STAND_IN
def test_who_asks_to_wait_waits(gate: Gate) -> None:
    module = fusion.compile(TWO.proto)
    check(module, 3)
    with ThreadPoolExecutor(2) as callers:
        waiting = [callers.submit(check, module, rows, wait=True) for rows in (3, 4)]
        time.sleep(0.05)
        assert not any(each.done() for each in waiting)
        gate.opened.set()
        for each in waiting:
            each.result(20)
    assert (gate.made, gate.each) == (1, [])


@STAND_IN
def test_what_needs_it_waits_for_it(gate: Gate, tmp_path: Path) -> None:
    module = fusion.compile(TWO.proto)
    check(module, 3)
    threading.Timer(0.1, gate.opened.set).start()
    module.save(tmp_path / "m.fusion")
    check(fusion.load(tmp_path / "m.fusion"), 12)
    assert gate.made == 1


@STAND_IN
def test_without_one_the_shapes_that_were_answered_are_saved(gate: Gate, tmp_path: Path) -> None:
    gate.errors.append(Declined("it is no such model"))
    module = fusion.compile(TWO.proto)
    for rows in (3, 5, 3):
        check(module, rows)
    assert not module.specializations
    gate.opened.set()
    module.save(tmp_path / "m.fusion")
    loaded = fusion.load(tmp_path / "m.fusion")
    for rows in (3, 5):
        check(loaded, rows)
    module.finish()
    assert (gate.made, gate.each) == (0, [3, 5])


@STAND_IN
def test_tensors_without_elements_wait_meanwhile(gate: Gate) -> None:
    module = fusion.compile(TWO.proto)
    check(module, 3)
    threading.Timer(0.1, gate.opened.set).start()
    check(module, 0)
    assert (gate.made, gate.each) == (1, [])


def test_a_module_that_is_gone_is_not_compiled(gate: Gate) -> None:
    kept, dropped = (fusion.compile(TWO.proto, wait=True) for _ in range(2))
    for module in (kept, dropped):
        assert module._forms._opened.begin(((3, 8), (3, 8)))
    assert gate.begun.wait(20)
    del module, dropped
    gc.collect()
    gate.opened.set()
    ended()
    assert gate.made == 1
    check(kept, 2)


VERDICTS = {
    "declined": (Declined("it is no such model"), "it is no such model"),
    "an error": (LimitError("too large"), "too large"),
    "a defect": (ValueError("of ours"), "compiling for all sizes failed: ValueError: of ours; please report it"),
}


@pytest.mark.internal_errors
@pytest.mark.parametrize("kind", VERDICTS)
def test_what_cannot_be_made_is_not_tried_again(kind: str, gate: Gate) -> None:
    error, told = VERDICTS[kind]
    gate.errors.append(error)
    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True)
    for rows in (3, 4, 3):
        check(module, rows)
    check(copy.deepcopy(module), 3)
    assert (gate.made, gate.each) == (0, [3, 4])
    assert f"no form for all sizes: {told}" in module.explain()


PASSING = {
    "memory": MemoryError(),
    "resources": ResourceError("there is not enough memory to compile the model"),
    "a file": ModelChangedError("the model is not the one any more that was compiled"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_what_passes_is_no_verdict_on_the_model(kind: str, gate: Gate) -> None:
    gate.errors.append(PASSING[kind])
    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True)
    check(module, 3)
    assert (gate.made, gate.each) == (0, [3])
    check(module, 4)
    check(module, 5)
    assert (gate.made, gate.each) == (1, [3])


@pytest.mark.parametrize("others", ["without a call", "a call at fault"])
def test_who_waits_for_one_of_another_first_call_makes_it_for_its_own(others: str, gate: Gate) -> None:
    at_fault = others == "a call at fault"
    gate.errors.append(CallAtFault("no such rows") if at_fault else Declined("it takes no such rows"))
    module = fusion.compile(TWO.proto, wait=True)
    with ThreadPoolExecutor(2) as callers:
        other = callers.submit(check, module, 3) if at_fault else callers.submit(module.finish)
        assert gate.begun.wait(20)
        mine = callers.submit(check, module, 4)
        time.sleep(0.05)
        gate.opened.set()
        other.result(20)
        mine.result(20)
    assert (gate.made, gate.each) == (1, [3] if at_fault else [])
    assert [form.opened is not None for form in module.specializations if form.opened is not None] == [True]


def test_an_interrupt_leaves_the_module_usable(gate: Gate) -> None:
    gate.errors.append(KeyboardInterrupt())
    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True)
    with pytest.raises(KeyboardInterrupt):
        check(module, 3)
    check(module, 3)
    assert (gate.made, gate.each) == (1, [])


def test_an_interrupt_is_only_that_of_the_thread_that_compiles(gate: Gate) -> None:
    gate.errors.append(KeyboardInterrupt())
    module = fusion.compile(TWO.proto, wait=True)
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(check, module, 3)
        assert gate.begun.wait(20)
        second = callers.submit(check, module, 4)
        time.sleep(0.05)
        assert not second.done()
        gate.opened.set()
        second.result(20)
        with pytest.raises(KeyboardInterrupt):
            first.result(20)
    assert (gate.made, gate.each) == (1, [])


@STAND_IN
@pytest.mark.parametrize("queued", [False, True], ids=["before it is queued", "after"])
def test_an_interrupt_of_a_call_leaves_nothing_to_wait_for(
    queued: bool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = background.submit
    gate.opened.set()

    def interrupted(job: background.Job) -> bool:
        if queued:
            submit(job)
        raise KeyboardInterrupt

    module = fusion.compile(TWO.proto)
    with monkeypatch.context() as patch:
        patch.setattr(background, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            check(module, 3)
    check(module, 3)
    check(module, 3, wait=True)
    assert (gate.made, gate.each) == (1, [])


SLOW = """
    import atexit, os, sys, threading, time
    import numpy as np
    import fusion
    fusion.compile  # before TVM, which alone imports PyTorch
    from fusion import api
    from tests.module.open_models import two_inputs

    lower_for_all, begun = api.lower_for_all, threading.Event()

    def slowly(*arguments):
        begun.set()
        time.sleep(0.5)
        return lower_for_all(*arguments)

    api.lower_for_all = slowly
    x = np.ones((3, 8), np.float32)
    module = fusion.compile(two_inputs().proto)
    module(x, x)
    assert begun.wait(20)
    assert not module.specializations
"""


def in_process(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW) + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_process_that_ends_abandons_it_and_who_outlives_it_makes_it(tmp_path: Path) -> None:
    done = in_process("threading.Thread(target=lambda: module.save(sys.argv[1])).start()", tmp_path / "m.fusion")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    check(fusion.load(tmp_path / "m.fusion"), 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_makes_what_its_parent_was_making() -> None:
    done = in_process(
        """
        child = os.fork()
        if not child:
            assert (module(x, x, wait=True)[0] == 2).all()
            assert (module(x[:2], x[:2])[0] == 2).all()
            assert len(module.specializations) == 1
            os._exit(7)
        print(os.waitpid(child, 0)[1] >> 8)
        assert (module(x, x, wait=True)[0] == 2).all()
        """
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.fixture
def compared_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_shapes, "OFTEN", 3)


@pytest.fixture
def often(compared_often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms of their own are used, which on a busy host may be slower than the one for all sizes."""
    monkeypatch.setattr(specializations, "compare_forms", lambda own, opened: None)


@pytest.mark.usefixtures("often")
def test_shapes_that_come_often_get_a_form_of_their_own(gate: Gate) -> None:
    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True, hot_shapes=2)
    for rows in (4, 5, 4, 6, 4, 4, 5, 5, 6, 6, 6, 6):
        check(module, rows)
        if rows == 4:
            ended()
    ended()
    assert gate.each == [4, 5], "two of them, each once, in the order in which they came often"
    assert {form.inputs[0].shape for form in module.specializations} == {(None, 8), (4, 8), (5, 8)}
    for rows in (4, 5, 6, 7):
        check(module, rows)
    assert gate.made == 1


class Waiting:
    """Runs what a form of its own does, and waits with it."""

    def __init__(self, program: Program) -> None:
        self.program, self.calls = program, 0

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        self.calls += 1
        time.sleep(0.02)
        return self.program.run(arrays)


@pytest.mark.usefixtures("compared_often")
@pytest.mark.parametrize("refuses", [False, True])
def test_a_form_of_its_own_that_is_slower_is_not_used(
    refuses: bool, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its inputs are refused it is not compared, and used."""
    made = list[Waiting]()

    def compiled(model: Any, shapes: Any, ctx: Any) -> Specialization:
        form = gate.compile(model, shapes, ctx)
        made.append(Waiting(form.program))
        return replace(form, program=made[0])

    def refused(*_: Any) -> Any:
        raise InputError("not these")

    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True)
    monkeypatch.setattr(api, "compile_form", compiled)
    if refuses:
        monkeypatch.setattr(Waiting, "run", refused)
    for _ in range(4):
        check(module, 4)
    ended()
    assert len(module.specializations) == 1 + refuses
    assert [(4, 8)] * refuses == [form.inputs[0].shape for form in module.specializations if form.opened is None]
    if refuses:
        return
    own = "a form of its own for a=[4, 8], b=[4, 8] takes "
    told = [line for line in module.under_way if own in line]
    assert [line.endswith("it is not used") for line in told] == [True], module.under_way
    assert float(told[0].split(own)[1].split()[0]) >= 20, "milliseconds; on a busy machine a nap takes longer"
    assert told[0] in module.explain()
    calls = made[0].calls
    monkeypatch.setattr(hot_shapes, "_COUNTED", 1)  # so that it comes often once more
    for rows in (5, 4, 4, 4, 4):
        check(module, rows)
        ended()
    assert (gate.each.count(4), made[0].calls) == (1, calls), "it is made once, and answers no call"


@pytest.mark.usefixtures("often")
def test_a_faster_form_that_gave_way_to_others_is_made_again(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(own: Specialization, opened: Specialization) -> FormTimes | None:
        return FormTimes(1.0, 2.0) if own.inputs[0].extents[0] == 4 else None

    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True, hot_shapes=4)
    monkeypatch.setattr(specializations, "MAX_SPECIALIZATIONS", 1)
    monkeypatch.setattr(specializations, "compare_forms", compared)
    monkeypatch.setattr(hot_shapes, "_COUNTED", 1)  # so that 4 comes often once more
    for rows in (4, 5, 4):
        for _ in range(4):
            check(module, rows)
        ended()
    assert gate.each == [4, 5, 4]


class Slow:
    """Compiles for one shape each, and passes checkpoints until it is abandoned or told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.abandoned = threading.Event(), threading.Event(), 0
        self._compile = api.compile_form

    def __call__(self, model: Any, shapes: Any, ctx: Any) -> Any:
        self.begun.set()
        check = checkpoint()
        try:
            while not self.go_on.wait(0.01):
                check()
        except Abandoned:
            self.abandoned += 1
            raise
        return self._compile(model, shapes, ctx)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(api, "compile_form", made)
    yield made
    made.go_on.set()
    ended()


def hot_one(slow: Slow) -> fusion.CompiledModule:
    """Return a module that is being compiled for a shape of its own."""
    module = fusion.compile(TWO.proto, wait=True)
    for _ in range(4):
        check(module, 4)
    assert slow.begun.wait(20)
    return module


@pytest.mark.usefixtures("often")
def test_a_form_that_nobody_waits_for_gives_way_to_another_model(slow: Slow) -> None:
    module, other = hot_one(slow), fusion.compile(TWO.proto, wait=True)
    check(other, 3)
    assert slow.abandoned == 1
    slow.go_on.set()
    ended()
    assert {form.inputs[0].shape for form in module.specializations} == {(None, 8), (4, 8)}, "it is made later"


@pytest.mark.usefixtures("often")
def test_who_waits_for_a_form_that_gives_way_makes_it(slow: Slow, tmp_path: Path) -> None:
    module = hot_one(slow)
    threading.Timer(0.2, slow.go_on.set).start()
    module.save(tmp_path / "m.fusion")
    assert slow.abandoned == 1
    assert len(fusion.load(tmp_path / "m.fusion").specializations) == 2


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("kind", ["none", "loaded"])
def test_no_shape_gets_a_form_of_its_own_where_that_is_not_wanted(kind: str, gate: Gate, tmp_path: Path) -> None:
    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True, hot_shapes=0 if kind == "none" else 4)
    if kind == "loaded":
        module.save(tmp_path / "m.fusion")
        module = fusion.load(tmp_path / "m.fusion")
    for _ in range(5):
        check(module, 4)
    ended()
    assert gate.each == []


@pytest.mark.usefixtures("often")
def test_a_form_of_its_own_that_fails_changes_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise LimitError("too large")

    gate.opened.set()
    module = fusion.compile(TWO.proto, wait=True)
    monkeypatch.setattr(api, "compile_form", refused)
    for _ in range(7):
        check(module, 4)
        ended()
    assert "could not be compiled for a=[4, 8], b=[4, 8]: too large" in module.explain()
