"""An exception of any pass, converter or of LLVM ended the compilation; now another form of the model runs, a note says
which, and the log has the traceback."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, te

import fusion
from backends.cpu.codegen import objects as codegen
from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Lower
from backends.tensorir import legalize
from backends.tensorir.legalize_calls import LegalizeCalls
from backends.tensorir.lower_anchors import LowerAnchors
from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion import pipeline
from fusion.errors import ExecutionError, InternalError, ResourceError
from fusion.facts import TellingPass
from fusion.frontends.onnx import convert, registry
from fusion.passes.concats import PlaceConcats
from fusion.passes.fold_constants import FoldConstants
from fusion.passes.guard_operands import GuardOperands
from fusion.passes.layout import AssignLayouts
from fusion.passes.rotate_halves import RotateHalves
from fusion.passes.split_conv3d import SplitConv3d
from fusion.passes.widen_convolutions import WidenConvolutions
from fusion.pipeline import PipelineMode
from fusion.rewrites import Rewrite
from partition.form_groups import FormGroups
from tests.regressions.relax_models import module

pytestmark = pytest.mark.internal_errors

specialize = import_module("fusion.module.specialize")
translate = import_module("fusion.frontends.onnx.translate")  # the package has a function of this name
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(8, 8)).astype("float32")
X = RNG.normal(size=(4, 8)).astype("float32")
PASSES = (AssignLayouts, FoldConstants, FormGroups, PlaceConcats, Rewrite, SplitConv3d, RotateHalves, WidenConvolutions)
NEEDED = (GuardOperands, LegalizeCalls, LowerAnchors, ScheduleKernels)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep what is reported on purpose from stderr."""
    with caplog.at_level(logging.WARNING, logger="fusion"):
        yield


def _expected(x: np.ndarray) -> np.ndarray:
    product = np.maximum(x @ WEIGHT, 0)
    return np.tanh(product) + product


def _onnx(batch: int | str = 4) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"], "the tanh"),
        helper.make_node("Add", ["c", "b"], ["y"]),
    ]
    return _model(nodes, batch)


def _model(nodes: list[onnx.NodeProto], batch: int | str = 4) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [batch, 8])], [value("y", TensorProto.FLOAT, [batch, 8])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _relax() -> tvm.IRModule:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        product = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(WEIGHT)))))
        return relax.op.add(builder.emit(relax.op.tanh(product)), product)

    return module(build, {"x": (X.shape, "float32")})


def _fails_on(monkeypatch: pytest.MonkeyPatch, kind: type, operator: str) -> None:
    """Let a pass raise where its module computes `operator`; "" for anywhere."""
    method = "run" if issubclass(kind, TellingPass) else "__call__"
    apply: Callable[[Any, tvm.IRModule], Any] = getattr(kind, method)

    def fail(self: Any, mod: tvm.IRModule) -> Any:
        if operator in str(mod):
            raise IndexError("list index out of range")
        return apply(self, mod)

    monkeypatch.setattr(kind, method, fail)


def _raise(*arguments: object, **named: object) -> NoReturn:
    raise IndexError("list index out of range")


def _check(model: Any, note: str, **options: Any) -> str:
    compiled = fusion.compile(model, threads=1, **options)
    np.testing.assert_allclose(compiled(X)[0], _expected(X), rtol=1e-4, atol=1e-4)
    report = compiled.explain()
    assert note in report
    assert ("please report it" in report) == bool(note)
    return report


@pytest.mark.parametrize("kind", [*PASSES, *NEEDED])
def test_a_pass_fails_on_one_node(kind: type, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    _fails_on(monkeypatch, kind, "tanh")
    report = _check(_onnx(), "Tanh 'the tanh': internal error, IndexError: list index out of range: please report it")
    assert "on ONNX Runtime: 1 node in 1 subgraph" in report
    assert caplog.records[-1].exc_info[0] is IndexError


@pytest.mark.parametrize("kind", PASSES)
def test_a_pass_always_fails(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_on(monkeypatch, kind, "")
    for model in (_onnx(), _relax()):
        report = _check(model, f"the pass {kind.name} failed and is left out: IndexError")  # type: ignore[attr-defined]
        assert "the whole model runs on ONNX Runtime" not in report


@pytest.mark.parametrize("kind", [GuardOperands, LegalizeCalls])
def test_what_all_forms_need_fails(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_on(monkeypatch, kind, "")
    _check(_onnx(), "compiling failed, and the whole model runs on ONNX Runtime: IndexError")
    with pytest.raises(InternalError, match="IndexError while compiling"):
        fusion.compile(_relax())
    monkeypatch.undo()
    _check(_relax(), "")


def test_operators_as_tvm_lowers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "operator_passes", lambda *arguments, **options: [_raise])
    monkeypatch.setattr(pipeline, "_NEEDED", pipeline._NEEDED | {str(_raise)})
    report = _check(_relax(), "compiling failed, and every operator runs as TVM lowers it: IndexError")
    assert "unscheduled" in report


def test_forms_of_operators_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(legalize.LEGALIZATIONS, "relax.tanh", _raise)
    raising = {"relax.matmul": Lower(_raise)}
    templates = [replace(t, lowerings=raising) if "relax.matmul" in t.lowerings else t for t in priority.TEMPLATES]
    monkeypatch.setattr(priority, "TEMPLATES", templates)
    for model in (_onnx(), _relax()):
        report = _check(model, "our form of relax.tanh failed, and TVM's is used: IndexError")
        assert "the lowering to matmul failed, and another form is used: IndexError" in report
        assert "on ONNX Runtime" not in report


@pytest.mark.parametrize("mode", [PipelineMode.SPARING, PipelineMode.PLAIN])
def test_other_forms_check_what_data_decides(mode: PipelineMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """They did without the checks, and ended the process."""
    shapes = {"data": [4, 3], "at": [2], "place": [2, 1], "rows": [2, 1], "top": [3], "by": [3]}
    kinds = {"data": TensorProto.FLOAT, "rows": TensorProto.FLOAT, "top": TensorProto.INT32, "by": TensorProto.INT32}
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Gather", ["data", "at"], ["taken"]),
        helper.make_node("ScatterElements", ["data", "place", "rows"], ["put"]),
        helper.make_node("Div", ["top", "by"], ["quotient"]),
    ]
    inputs = [value(name, kinds.get(name, TensorProto.INT64), shape) for name, shape in shapes.items()]
    outputs = [
        value("taken", TensorProto.FLOAT, [2, 3]), value("put", TensorProto.FLOAT, [4, 3]),
        value("quotient", TensorProto.INT32, [3]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    lower = pipeline.lower
    monkeypatch.setattr(pipeline, "lower", lambda imported, ctx, **_: lower(imported, ctx, mode=mode))
    compiled = fusion.compile(model, threads=1)
    lowest = np.iinfo("int32").min
    feeds = {
        "data": np.arange(12, dtype="float32").reshape(4, 3), "at": np.array([0, -1]), "place": np.array([[-1], [0]]),
        "rows": np.float32([[7], [8]]), "top": np.int32([lowest, -7, 5]), "by": np.int32([-1, 2, -3]),
    }  # fmt: skip
    taken, put, quotient = compiled.run(feeds).values()
    np.testing.assert_array_equal(taken, feeds["data"][[0, -1]])
    np.testing.assert_array_equal(put[:, 0], [8, 3, 6, 7])
    np.testing.assert_array_equal(quotient, [lowest, -3, -1])  # ONNX Runtime ends the process
    wrong = {"at": np.array([0, 1 << 40]), "place": np.array([[4], [0]]), "by": np.int32([1, 0, 1])}
    for name, values in wrong.items():
        with pytest.raises(ExecutionError):
            compiled.run({**feeds, name: values})


@pytest.mark.parametrize("place", ["expand_if", "fold", "convert_node"])
def test_the_importer_fails(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    work = getattr(translate, place)

    def fail(node: onnx.NodeProto, *arguments: Any) -> Any:
        if node.op_type == "Tanh":
            raise IndexError("list index out of range")
        return work(node, *arguments)

    monkeypatch.setattr(translate, place, fail)
    _check(_onnx(), "importing Tanh 'c' failed: IndexError: list index out of range; please report it")


def test_a_converter_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.converter_of("", "Tanh")
    monkeypatch.setitem(registry._CONVERTERS, ("", "Tanh"), _raise)
    monkeypatch.setattr(convert, "convert_with_tvm", _raise)
    report = fusion.compile(_onnx(), threads=1).explain()
    assert "Tanh 'the tanh': Tanh failed to convert: list index out of range" in report


def test_code_generation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = codegen.generate_module

    def fail(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        if any("tanh" in symbol.name_hint for symbol in mod.functions):
            raise tvm.error.InternalError("LLVM cannot select")
        return generate(mod, target)

    monkeypatch.setattr(codegen, "generate_module", fail)
    _check(_onnx(), "Tanh 'the tanh': internal error, InternalError: LLVM cannot select")


def test_a_symbol_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def form(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        def compute(x: te.Tensor) -> te.Tensor:
            return te.compute(
                x.shape, lambda *i: tvm.tirx.call_pure_extern("float32", "no_function_of_this_name", x(*i))
            )

        return builder.call_te(compute, call.args[0], primfunc_name_hint="tanh")

    monkeypatch.setitem(legalize.LEGALIZATIONS, "relax.tanh", form)
    _check(_onnx(), "compiling Tanh 'c' failed, and ONNX Runtime runs it")


def test_every_form_of_a_model_with_open_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_on(monkeypatch, AssignLayouts, "tanh")
    compiled = fusion.compile(_onnx("n"), threads=1, wait=True)
    for count in (4, 2):
        np.testing.assert_allclose(compiled(X[:count])[0], _expected(X[:count]), rtol=1e-4, atol=1e-4)
    assert compiled.explain().count("Tanh 'the tanh': internal error") == 2


def test_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node("Relu", ["a"], ["r" + name]), helper.make_node(name, ["r" + name], [name])], name, [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])],
        )
        for name in ("Tanh", "Sigmoid")
    ]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceMax", ["a"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
        helper.make_node("If", ["any"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["chosen", "b"], ["y"]),
    ]
    _fails_on(monkeypatch, RotateHalves, "tanh")
    _check(_model(nodes), "If 'chosen': internal error, IndexError")


def test_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(8, 8, bias=False)
    linear.weight.data = torch.from_numpy(WEIGHT.T.copy())
    model = torch.nn.Sequential(linear, torch.nn.ReLU())
    _fails_on(monkeypatch, AssignLayouts, "")
    compiled = fusion.compile((model, (torch.from_numpy(X),)), threads=1)
    np.testing.assert_allclose(compiled(X)[0], np.maximum(X @ WEIGHT, 0), rtol=1e-4, atol=1e-4)
    assert "the pass assign_layouts failed and is left out" in compiled.explain()


def test_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_on(monkeypatch, FormGroups, "")
    compiled = fusion.compile("def @main(%x: Tensor[(4, 8), float32]) { tanh(nn.relu(%x)) }", threads=1)
    np.testing.assert_allclose(compiled(X)[0], np.tanh(np.maximum(X, 0)), rtol=1e-4, atol=1e-5)
    assert "the pass form_groups failed and is left out" in compiled.explain()


def test_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_on(monkeypatch, AssignLayouts, "tanh")
    for model in (_onnx(), _relax()):
        with pytest.raises(InternalError, match="IndexError while compiling"):
            fusion.compile(model, strict=True)


@pytest.mark.parametrize(
    ("raised", "expected"), [(MemoryError(), ResourceError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_what_is_no_defect_is_not_hidden(
    raised: BaseException, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **named: object) -> NoReturn:
        raise raised

    for place in ((translate, "convert_node"), (FormGroups, "run"), (specialize, "build")):
        with monkeypatch.context() as patch:
            patch.setattr(*place, fail)
            with pytest.raises(expected):
                fusion.compile(_onnx(), threads=1)
    _check(_onnx(), "")


def test_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """TVM keeps builders and targets on stacks of its own, and says on stderr that one goes with open blocks."""
    for kind in (AssignLayouts, FormGroups, LegalizeCalls):
        with monkeypatch.context() as patch:
            _fails_on(patch, kind, "tanh")
            fusion.compile(_onnx(), threads=1)
    gc.collect()
    assert relax.BlockBuilder.current() is None
    assert tvm.target.Target.current(allow_none=True) is None
    assert capfd.readouterr().err == ""
    _check(_onnx(), "")
