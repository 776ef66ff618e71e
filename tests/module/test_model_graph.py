"""What is recorded of a model while it is compiled is true: counted by hand here, or read off the plan of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from fusion import context
from fusion.errors import OptionError, ShapeError
from fusion.model_graph import FOLDED, INFERRED, MAPPED, ModelGraph
from fusion.module.graph_file import read_graph, write_graph
from tests.module import small_models
from tests.module.small_models import FLOAT

NODE = helper.make_node


def graph_of(module: fusion.CompiledModule) -> ModelGraph:
    return module.specializations[0].graph()


@pytest.fixture(scope="module")
def mlp() -> fusion.CompiledModule:
    return fusion.compile(small_models.two_layers())


def mixed() -> fusion.CompiledModule:
    """softmax(relu(pad(x) * w) split in two, put together the other way round): kernels of every kind."""
    weight = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32)
    nodes = [
        NODE("Pad", ["x", "widths"], ["padded"]),
        NODE("Conv", ["padded", "weight"], ["convolved"]),
        NODE("Relu", ["convolved"], ["positive"]),
        NODE("Split", ["positive"], ["left", "right"], axis=1, num_outputs=2),
        NODE("Concat", ["right", "left"], ["swapped"], axis=1),
        NODE("Softmax", ["swapped"], ["y"], axis=-1),
    ]
    values = {"weight": weight, "widths": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)}
    proto = small_models.model(nodes, [("x", FLOAT, [1, 2, 8, 8])], [("y", FLOAT, [1, 4, 8, 8])], values)
    proto.opset_import[0].version = 18
    return fusion.compile(proto)


@pytest.fixture(scope="module")
def mixed_graph() -> ModelGraph:
    return graph_of(mixed())


def test_operators_become_parts_of_kernels(mlp: fusion.CompiledModule) -> None:
    graph = graph_of(mlp)
    found = [(operator.op, operator.value, operator.calls, operator.how) for operator in graph.operators]
    assert found == [
        ("input", "float32[3,8]", (0,), MAPPED),
        ("matmul", "float32[3,32]", (1,), MAPPED),
        ("nn.relu", "float32[3,32]", (1,), MAPPED),
        ("matmul", "float32[3,4]", (2,), MAPPED),
    ]
    assert [operator.reads[0].source for operator in graph.operators[1:]] == [0, 1, 2]
    assert [operator.reads[0].bytes for operator in graph.operators[1:]] == [3 * 8 * 4, 3 * 32 * 4, 3 * 32 * 4]


def test_calls_are_those_of_the_plan(mlp: fusion.CompiledModule) -> None:
    graph, code = graph_of(mlp), mlp.specializations[0].code
    assert code is not None
    assert [call.op for call in graph.calls if call.kind == "kernel"] == [call.kernel for call in code.plan.calls]
    panel = context.resolve().compiler.machine.vector_lanes  # its 4 columns are padded to a vector, 16 with AVX-512
    assert [call.weights for call in graph.calls] == [0, 8 * 32 * 4, 32 * panel * 4]
    assert [call.reads[0].source for call in graph.calls[1:]] == [0, 1]


def test_a_value_inside_a_kernel_is_neither_written_nor_read(mlp: fusion.CompiledModule) -> None:
    # The matmul's 3x32 result, which the relu reads.
    assert [call.saved for call in graph_of(mlp).calls] == [0, 2 * 3 * 32 * 4, 0]


def test_what_goes_through_memory_has_a_reason(mlp: fusion.CompiledModule) -> None:
    (edge,) = graph_of(mlp).kept
    assert (edge.producer, edge.source, edge.target, edge.bytes) == ("relu", 1, 2, 3 * 32 * 4)
    assert "needed outside" in edge.reason
    assert f"relu -> {edge.consumer}: {edge.reason}" in mlp.explain()


def test_every_edge_between_kernels_has_a_reason(mixed_graph: ModelGraph) -> None:
    calls = mixed_graph.calls
    edges = {
        (read.source, target)
        for target, call in enumerate(calls)
        for read in call.reads
        if call.kind == calls[read.source].kind == "kernel"
    }
    assert edges
    assert {(edge.source, edge.target) for edge in mixed_graph.kept} == edges
    assert all(edge.reason for edge in mixed_graph.kept)


def test_what_a_rewrite_replaced_is_inferred(mixed_graph: ModelGraph) -> None:
    """The padding went into the convolution behind it."""
    by_op = {operator.op: operator for operator in mixed_graph.operators}
    assert (by_op["nn.pad"].how, by_op["nn.conv2d"].how) == (INFERRED, MAPPED)
    assert by_op["nn.pad"].calls == by_op["nn.conv2d"].calls == by_op["nn.relu"].calls


def test_what_depends_on_no_input_is_folded() -> None:
    nodes = [NODE("Transpose", ["w"], ["t"], perm=[1, 0]), NODE("MatMul", ["x", "t"], ["y"])]
    weight = np.ones((4, 8), np.float32)
    graph = graph_of(
        fusion.compile(small_models.model(nodes, [("x", FLOAT, [3, 8])], [("y", FLOAT, [3, 4])], {"w": weight}))
    )
    folded = [operator for operator in graph.operators if operator.how == FOLDED]
    assert [(operator.op, operator.calls) for operator in folded] in ([], [("permute_dims", ())])
    assert all(operator.calls for operator in graph.operators if operator.how != FOLDED)


def test_operators_of_branches_become_parts_of_their_kernels() -> None:
    def branch(op: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(f"{op}_result", FLOAT, [4, 8])
        return helper.make_graph([NODE(op, ["h"], [f"{op}_result"])], op, [], [result])

    nodes = [
        NODE("Softmax", ["x"], ["h"]),
        NODE("ReduceSum", ["x"], ["sum"], keepdims=0),
        NODE("Greater", ["sum", "zero"], ["c"]),
        NODE("If", ["c"], ["r"], then_branch=branch("Tanh"), else_branch=branch("Sigmoid")),
        NODE("Softmax", ["r"], ["y"]),
    ]
    sizes = [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])]
    graph = graph_of(fusion.compile(small_models.model(nodes, *sizes, {"zero": np.zeros((), np.float32)})))
    by_op = {operator.op: operator for operator in graph.operators}
    (choice,) = (position for position, call in enumerate(graph.calls) if call.kind == "if")
    for op in ("tanh", "sigmoid"):
        (call,) = by_op[op].calls
        assert op in graph.calls[call].op
        assert call in {read.source for read in graph.calls[choice].reads}
    assert by_op["if"].calls == (choice,)


def test_kernels_have_estimates_loops_and_sizes(mlp: fusion.CompiledModule, mixed_graph: ModelGraph) -> None:
    form = mlp.specializations[0]
    first, second = (form.kernels[call.op] for call in form.graph().calls[1:])
    assert (first.written, second.written) == (3 * 32 * 4, 3 * 4 * 4)
    assert first.read == 3 * 8 * 4 + 8 * 32 * 4
    assert all(info.estimate_us > 0 for info in form.kernels.values())
    assert first.ops[0] == "matmul"
    assert set(mixed_graph.loops) == {call.op for call in mixed_graph.calls if call.kind == "kernel"}
    assert all(len(lines) > 1 for lines in mixed_graph.loops.values())
    product = form.graph().loops[first.name]
    assert any(line.strip() == "for k in 8" for line in product)
    assert product[0].split()[0] in ("parallel", "for")


def test_a_gather_reads_its_rows_and_not_its_table() -> None:
    table = np.zeros((1000, 16), np.float32)
    node = [NODE("Gather", ["table", "x"], ["y"])]
    inputs, outputs = [("x", small_models.INT64, [3])], [("y", FLOAT, [3, 16])]
    module = fusion.compile(small_models.model(node, inputs, outputs, {"table": table}))
    kernels = module.specializations[0].kernels
    assert kernels.keys() == {"check_index", "take"}
    assert kernels["take"].written == 3 * 16 * 4
    assert kernels["take"].read < 1000


def test_the_graph_is_saved(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    mlp.save(tmp_path / "m.fusion")
    loaded = fusion.load(tmp_path / "m.fusion")
    assert graph_of(loaded) == graph_of(mlp)
    loaded.explain_html(tmp_path / "loaded.html")
    mlp.explain_html(tmp_path / "compiled.html")
    assert (tmp_path / "loaded.html").read_text() == (tmp_path / "compiled.html").read_text()


@pytest.mark.parametrize("data", [b"", b"graph", write_graph(ModelGraph())[:-9]])
def test_other_bytes_are_no_graph(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"graph|Expecting|Unterminated"):
        read_graph(data)


def test_the_page_shows_measured_times(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    mlp.explain_html(tmp_path / "estimated.html", title="small")
    mlp.explain_html(tmp_path / "measured.html", profile=mlp.profile())
    estimated, measured = ((tmp_path / f"{name}.html").read_text() for name in ("estimated", "measured"))
    assert "<strong id=\"title\">small</strong>" in estimated
    assert '"total_us":null' in estimated
    assert '"roofline":0.' in measured


def test_a_page_that_cannot_be_written_is_an_error(mlp: fusion.CompiledModule, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot write"):
        mlp.explain_html(tmp_path / "missing" / "page.html")


def test_a_page_of_no_form_is_an_error(tmp_path: Path) -> None:
    """It was empty, and its script failed."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    relu = small_models.model(nodes, [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 3])], {})
    module = fusion.compile(relu, wait=True, dynamic=False)
    with pytest.raises(ShapeError, match="shape of input 'x' is not known"):
        module.explain_html(tmp_path / "page.html")
    module.run({"x": np.ones((2, 3), np.float32)})
    module.explain_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
