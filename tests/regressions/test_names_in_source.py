"""Names of a model are data: whatever they are, `fusion.convert` writes a file that does nothing but define the module.

An output called `y\"\"\"` and some lines of Python ran when the file was imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm_ffi.structural import structural_equal

import fusion
from tests.source_files import run_source

pytestmark = pytest.mark.unoptimised

RUN = "import sys; sys.pwned = True"
HOSTILE = (
    f'y"""\n{RUN}\n"""',
    f"y'''\n{RUN}\n'''",
    f'y\\"""\n{RUN}\n',
    f"# from os import path\n# from sys import path\n{RUN}",
    f"y\r{RUN}\r",
    f"y\u2028{RUN}\x85{RUN}\x0c{RUN}",
    f"x: int):\n        pass\n{RUN}\ndef load(",
    "{weights}{0.__class__}%s",
    "\\",
    "\\N{BULLET}\\x",
    "\x1b]0;title\x07",
    "class",
    "../../etc/passwd",
    "",
)


@pytest.fixture(autouse=True)
def _nothing_runs() -> Iterator[None]:
    yield
    assert not hasattr(sys, "pwned")


def _model(name: str) -> onnx.ModelProto:
    """Return a model that has `name` wherever a model has names and texts of its own."""
    x, w, h, y = (f"{name}{part}" for part in "xwhy")
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), w)
    weight.doc_string = name
    nodes = [
        helper.make_node("MatMul", [x, w], [h], name=name, doc_string=name),
        helper.make_node("Relu", [h], [y], name=name),
    ]
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [2, 4], doc_string=name)]
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, [2, 3], doc_string=name)]
    graph = helper.make_graph(nodes, name or "graph", inputs, outputs, [weight], doc_string=name)
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=name, doc_string=name)
    helper.set_model_props(proto, {name: name})
    return proto


def _check_source(path: Path) -> ast.Module:
    """Return what is in the file: a docstring, imports, a class of functions, `load`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring, *rest = tree.body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    imports = [part for part in rest if isinstance(part, ast.ImportFrom)]
    assert {part.module for part in imports} <= {"pathlib", "safetensors.numpy", "tvm", "tvm.script"}
    module, *load = rest[len(imports) :]
    assert isinstance(module, ast.ClassDef)
    assert all(isinstance(part, ast.FunctionDef) for part in (*module.body, *load))
    assert [part.name for part in load if isinstance(part, ast.FunctionDef)] in ([], ["load"])
    return tree


def _imported(path: Path) -> tvm.IRModule:
    """Return the module in the file, as an import of it makes that."""
    source = run_source(path)
    return source.load() if hasattr(source, "load") else source.Module


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """What is written of a model whose names say nothing."""
    path = tmp_path_factory.mktemp("plain") / "converted.py"
    fusion.convert(_model("n"), path)
    return _imported(path)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_an_onnx_model(name: str, plain: tvm.IRModule, tmp_path: Path) -> None:
    path = tmp_path / "converted.py"
    fusion.convert(_model(name), path)
    _check_source(path)
    assert structural_equal(_imported(path), plain)


@pytest.mark.parametrize("name", [text for text in HOSTILE if text not in ("", "class")], ids=range(len(HOSTILE) - 2))
def test_names_of_a_relax_module(name: str, tmp_path: Path) -> None:
    """Variables and strings among the operands."""
    kind = relax.TensorType((2, 3), "float32")
    builder = relax.BlockBuilder()
    inner, x = relax.Var(name, kind), relax.Var(name, kind)
    with builder.function("inner", [inner], private=True):
        builder.emit_func_output(builder.emit(relax.op.exp(inner), name_hint=name))
    of_inner = builder.get().get_global_var("inner")
    text = tvm.ir.StringImm(name.encode("ascii", "replace").decode())
    with builder.function("main", [x]):
        called = builder.emit(relax.Call(of_inner, [x]), name_hint=name)
        foreign = relax.op.call_pure_packed("f", called, text, ty_args=kind)
        builder.emit_func_output(builder.emit(foreign, name_hint=name))
    path = tmp_path / "converted.py"
    fusion.convert(builder.get(), path)
    _check_source(path)
    assert len(_imported(path).functions) == 2


@pytest.mark.parametrize("name", ["lambda", "None", "R", "T", "I", "cls", "Module", "tvm", "load"])
def test_a_value_called_as_what_the_source_is_made_of(name: str, tmp_path: Path) -> None:
    proto = _model("n")
    for node in proto.graph.node:
        node.input[:] = [name if text == "nh" else text for text in node.input]
        node.output[:] = [name if text == "nh" else text for text in node.output]
    path = tmp_path / "converted.py"
    fusion.convert(proto, path)
    _check_source(path)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(fusion.compile(_imported(path))(x)[0], fusion.compile(proto)(x)[0])


@pytest.mark.parametrize("name", [text for text in HOSTILE if text], ids=range(len(HOSTILE) - 1))
def test_a_function_without_a_name_of_python_is_refused(name: str, tmp_path: Path) -> None:
    """TVM's printer writes such a name as it is."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    main = builder.get()["main"]
    mod = tvm.IRModule({"main": main, tvm.ir.GlobalVar(name): main.without_attr("global_symbol")})
    with pytest.raises(fusion.errors.UnsupportedOperatorError):
        fusion.convert(mod, tmp_path / "converted.py")
    assert not (tmp_path / "converted.py").exists()


def test_an_attribute_that_is_no_name_is_refused(tmp_path: Path) -> None:
    """TVM puts such strings into metadata, which no source can carry."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    mod = builder.get()
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("key", HOSTILE[0]))
    with pytest.raises(fusion.errors.UnsupportedOperatorError):
        fusion.convert(mod, tmp_path / "converted.py")
    assert not (tmp_path / "converted.py").exists()


def test_names_in_the_page_and_in_a_saved_file(tmp_path: Path) -> None:
    """The page holds no element that a name brings; a saved file's members have names of fusion's own."""
    name = f'"><script>alert(1)</script></script><!--\n{RUN}\\'
    module = fusion.compile(_model(name))
    module.explain_html(tmp_path / "page.html", title=name)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert page.count("<script") == page.count("</script>")
    module.save(tmp_path / "saved.fusion")
    loaded = fusion.load(tmp_path / "saved.fusion")
    assert loaded.inputs[0].name == f"{name}x"
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(loaded(x)[0], module(x)[0])
