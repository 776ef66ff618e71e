"""A shape that is new: who waits for its form, who answers meanwhile, and what becomes of a form that fails."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import fusion
from fusion import api
from fusion.errors import InputError, LimitError, ManyFormsWarning, ResourceError
from fusion.module.specialization import Specialization
from fusion.module.stand_in import StandIn
from tests.module import small_models
from tests.module.background_work import ended, sessions
from tests.module.small_models import mlp_numpy

pytestmark = pytest.mark.stand_in
compiled = functools.partial(fusion.compile, dynamic=False)
"""With a form for each shape."""


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


class Gate:
    """Lets `fusion.api` begin to compile once it is opened, or fail as told."""

    def __init__(self) -> None:
        self.opened, self.error, self.compiled = threading.Event(), None, list[Any]()
        self._compile: Callable[..., Specialization] = api.compile_form

    def __call__(self, model: Any, shapes: Any, ctx: Any) -> Specialization:
        assert self.opened.wait(20)
        self.compiled.append(dict(shapes))
        if self.error is not None:
            raise self.error
        return self._compile(model, shapes, ctx)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(api, "compile_form", made)
    yield made
    made.opened.set()
    ended()


def test_the_fallback_answers_while_the_form_is_made(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    before = sessions()
    for _ in range(3):
        np.testing.assert_allclose(module(rows(3))[0], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(module.run({"x": rows(3)})["y"], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)
    assert not module.specializations
    assert module.under_way == ["being compiled for x=[3, 8]"]
    assert sessions() == before + 1
    gate.opened.set()
    ended()
    assert [form.inputs[0].shape for form in module.specializations] == [(3, 8)]
    assert gate.compiled == [{"x": (3, 8)}]
    assert not module.under_way
    assert sessions() == before, "the session is freed when no form is being made"
    np.testing.assert_allclose(module(rows(3))[0], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)


def test_who_asks_to_wait_waits_for_the_form_that_is_being_made(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    module(rows(3))
    with ThreadPoolExecutor(2) as callers:
        waiting = callers.submit(module, rows(3), wait=True)
        by_name = callers.submit(module.run, {"x": rows(3)}, wait=True)
        time.sleep(0.05)
        assert not waiting.done()
        assert not by_name.done()
        gate.opened.set()
        np.testing.assert_array_equal(waiting.result(20)[0], by_name.result(20)["y"])
    assert gate.compiled == [{"x": (3, 8)}]


def test_forms_that_are_ready_run_while_another_model_is_compiled(gate: Gate) -> None:
    gate.opened.set()
    ready, new, other = (compiled(small_models.mlp("rows"), wait=True) for _ in range(3))
    ready(rows(2))
    gate.opened.clear()
    new(rows(2), wait=False)  # holds the lock of all compiling until the gate opens
    np.testing.assert_allclose(ready(rows(2))[0], mlp_numpy(rows(2)), rtol=1e-5, atol=1e-5)
    with ThreadPoolExecutor(1) as callers:
        queued = callers.submit(other, rows(3))
        time.sleep(0.05)
        assert not queued.done()
        gate.opened.set()
        np.testing.assert_allclose(queued.result(20)[0], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)


def test_a_module_that_waits_may_be_called_without(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"), wait=True)
    np.testing.assert_allclose(module(rows(2), wait=False)[0], mlp_numpy(rows(2)), rtol=1e-5, atol=1e-5)
    assert not module.specializations
    gate.opened.set()
    module(rows(2))
    assert len(module.specializations) == 1


def test_arrays_are_checked_as_by_a_form(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    wrong = (np.zeros((2, 9), np.float32), np.zeros((2, 8), np.float64), np.zeros(8, np.float32), "text")
    for array in wrong:
        with pytest.raises(InputError):
            module(array)
    assert not module.under_way


def unlike_its_declaration() -> onnx.ModelProto:
    """Return a model whose output has two axes and is declared with one."""
    proto = small_models.mlp("rows")
    del proto.graph.output[0].type.tensor_type.shape.dim[1]
    return proto


def indexed() -> onnx.ModelProto:
    """Return y = x[i], of which ONNX Runtime fails for an i that is out of range."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    inputs = [("x", small_models.FLOAT, ["n"]), ("i", small_models.INT64, ["m"])]
    return small_models.model(nodes, inputs, [("y", small_models.FLOAT, ["m"])])


@pytest.mark.parametrize(
    ("model", "arrays"),
    [
        (indexed(), [np.zeros(3, np.float32), np.array([7], np.int64)]),
        (unlike_its_declaration(), [rows(2)]),
        (small_models.mlp("rows"), [np.zeros((0, 8), np.float32)]),
    ],
    ids=["an error of ONNX Runtime", "another shape than declared", "no elements"],
)
def test_what_a_form_may_refuse_waits_for_the_form(model: onnx.ModelProto, arrays: list[np.ndarray]) -> None:
    def outcome(wait: bool) -> Any:
        module = compiled(model, wait=wait)
        try:
            return module(*arrays)[0].tolist()
        except fusion.FusionError as error:
            return type(error), error.what

    assert outcome(False) == outcome(True)
    ended()


_EINSUM = """<ir_version: 8, opset_import: ["": 18]> graph (float[b,l,d] x, float[b,m,d] w) => (float[b,l,m] y)
    { y = Einsum <equation = "bld,bmd->blm"> (x, w) }"""
_SEQUENCE = """<ir_version: 8, opset_import: ["": 18]> graph (seq(float[l,d]) x, float[n] w)
    => (float[l,l] y, float[n] z) { i = Constant <value = int64 {0}> ()  a = SequenceAt (x, i)  z = Relu (w)
      y = Einsum <equation = "ld,md->lm"> (a, a) }"""


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        (_EINSUM, [np.zeros((1, 0, 4), np.float32), np.ones((1, 2, 4), np.float32)]),
        (_EINSUM, [np.zeros((1, 2, 0), np.float32), np.ones((1, 2, 0), np.float32)]),
        (_SEQUENCE, [[np.ones((2, 3), np.float32), np.zeros((2, 0), np.float32)], np.ones(2, np.float32)]),
        (_SEQUENCE, [[], np.ones(2, np.float32)]),
    ],
    ids=["no rows", "nothing to sum", "in a sequence", "an empty sequence"],
)
def test_nothing_stands_in_for_inputs_without_elements(
    text: str, arrays: list[Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime ends the process on some of them: Einsum where a size is 0."""
    asked = list[StandIn]()
    monkeypatch.setattr(StandIn, "open", lambda stand_in: asked.append(stand_in))
    module = compiled(onnx.parser.parse_model(text))
    gate.error = LimitError("refused")
    gate.opened.set()
    with pytest.raises(LimitError, match="refused"):
        module(*arrays)
    assert not asked


def test_models_that_onnx_runtime_cannot_run_whole_wait() -> None:
    """Operators of ONNX Runtime's own are not trusted; `strict` leaves nothing to it."""
    proto = small_models.mlp("rows")
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "Gelu", "com.microsoft"
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    module = compiled(proto)
    module(rows(2))
    assert len(module.specializations) == 1
    strict = compiled(small_models.mlp("rows"), strict=True)
    strict(rows(2))
    assert len(strict.specializations) == 1


def test_an_error_while_compiling_is_raised_by_the_next_call(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    gate.error = LimitError("too large")
    gate.opened.set()
    module(rows(3))
    ended()
    for _ in range(2):
        with pytest.raises(LimitError, match="too large"):
            module(rows(3))
    assert "could not be compiled for x=[3, 8]: too large" in module.explain()
    assert len(gate.compiled) == 1
    gate.error = None
    module(rows(3), wait=True)
    assert not module.under_way


def test_an_error_of_the_background_holds_no_frames(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    gate.error = LimitError("too large", why="of a frame that holds much")
    gate.opened.set()
    module(rows(3))
    ended()
    raised = []
    for _ in range(3):
        with pytest.raises(LimitError, match="holds much") as caught:
            module(rows(3))
        raised.append(caught.value)
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in raised}) == 1, "each raise adds to it"
    (kept,) = module._forms._failed.values()
    assert kept.__traceback__ is None


def test_an_interrupt_is_only_that_of_the_thread_that_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, interrupted, compile_form = threading.Event(), threading.Event(), api.compile_form

    def interrupt_first(*arguments: Any) -> Specialization:
        if begun.is_set():
            return compile_form(*arguments)
        begun.set()
        assert interrupted.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "compile_form", interrupt_first)
    module = compiled(small_models.mlp("rows"), wait=True)
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(module, rows(3))
        assert begun.wait(20)
        second = callers.submit(module, rows(3))
        time.sleep(0.05)
        assert not second.done()
        interrupted.set()
        np.testing.assert_allclose(second.result(20)[0], mlp_numpy(rows(3)), rtol=1e-5, atol=1e-5)
        with pytest.raises(KeyboardInterrupt):
            first.result(20)


def test_a_lack_of_memory_is_no_verdict_on_the_shape(gate: Gate) -> None:
    module = compiled(small_models.mlp("rows"))
    gate.error = ResourceError("no memory")
    gate.opened.set()
    module(rows(3))
    ended()
    gate.error = None
    module(rows(3))
    ended()
    assert len(module.specializations) == 1


def test_modules_that_are_gone_are_not_compiled(gate: Gate) -> None:
    kept, dropped = (compiled(small_models.mlp("rows")) for _ in range(2))
    kept(rows(1))
    dropped(rows(2))
    del dropped
    gc.collect()
    gate.opened.set()
    ended()
    assert gate.compiled == [{"x": (1, 8)}]


def test_the_fourth_form_brings_one_warning() -> None:
    module = compiled(small_models.mlp("rows"), wait=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in (1, 2, 3, 2, 1, 4, 5, 6):
            module(rows(count))
    assert [warning.category for warning in caught] == [ManyFormsWarning]
    text = str(caught[0].message)
    assert "number 4, x=[4, 8] (before: x=[1, 8]; x=[2, 8]; x=[3, 8])" in text
    assert "shapes=" in text
    assert caught[0].filename == __file__


@pytest.mark.parametrize("wait", [True, False])
def test_shapes_that_are_refused_bring_no_warning(gate: Gate, wait: bool) -> None:
    module = compiled(small_models.mlp("rows"))
    gate.opened.set()
    module(rows(1), wait=wait)
    ended()
    gate.error = LimitError("too large")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (2, 3, 4, 5):
            with contextlib.suppress(LimitError):
                module(rows(count), wait=wait)
            ended()


def test_a_warning_that_is_an_error_leaves_the_module_usable() -> None:
    module = compiled(small_models.mlp("rows"), wait=True)
    for count in (1, 2, 3):
        module(rows(count))
    with pytest.raises(ManyFormsWarning):
        module(rows(4))
    np.testing.assert_allclose(module(rows(4))[0], mlp_numpy(rows(4)), rtol=1e-5, atol=1e-5)


SLOW = """
    import os, sys, threading, time
    import numpy as np
    import fusion
    from tests.module import small_models

    deep = small_models.mlp("rows")
    node = deep.graph.node[1]
    for number in range(60):  # a second and more of compiling
        deep.graph.node.add().CopyFrom(node)
    for number, copy in enumerate(list(deep.graph.node)[3:]):
        copy.op_type = ("Softmax", "Sigmoid", "Tanh")[number % 3]
        copy.input[0], copy.output[0] = f"v{number}" if number else "a", f"v{number + 1}"
    deep.graph.node[2].input[0] = "v60"
    module = fusion.compile(deep, dynamic=False)
    started = time.monotonic()
    module(np.ones((64, 8), np.float32))
    assert not module.specializations
"""


def in_process(code: str, *, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW) + textwrap.dedent(code)],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_a_process_ends_in_the_middle_of_compiling(delay: float) -> None:
    done = in_process(f"time.sleep({delay}); print('end')", seconds=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_interrupt_ends_a_process_that_waits_for_the_background() -> None:
    code = (
        "import os, signal, threading, time\n"
        "from fusion.module import background\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it\n"
        "background.submit(lambda: time.sleep(15))\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "print('end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=14, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_compiles_though_another_thread_of_its_parent_was_compiling() -> None:
    done = in_process(
        """
        time.sleep(0.3)
        child = os.fork()
        if not child:
            x = np.ones((2, 8), np.float32)
            small = fusion.compile(small_models.mlp("rows"), wait=True)
            assert small(x, wait=False)[0].shape == (2, 4)
            assert np.allclose(small(x)[0], small_models.mlp_numpy(x), 1e-4, 1e-4)
            assert module(np.ones((64, 8), np.float32))[0].shape == (64, 4)
            os._exit(7)  # as multiprocessing does: exit() waits in onnxruntime for threads that are not there
        print(os.waitpid(child, 0)[1] >> 8)
        """,
        seconds=60,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
