"""`effort="fast"` takes the points that a model of this machine expects to be faster, and none without one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import fusion
from fusion import context
from fusion.measuring import kernels_of
from fusion.module.code_key import decided_by
from fusion.pipeline import lower_graph
from tuning.cost_model import MeasuredSpace
from tuning.known import Knowledge, environment_of
from tuning.machine_model import MachineModel
from tuning.model_store import ModelStore
from tuning.workloads import draw_workloads

CTX = context.resolve("llvm", threads=1)
ROWS, DEPTH, COLUMNS = 33, 40, 96


def product() -> tvm.IRModule:
    builder, weight = relax.BlockBuilder(), np.random.default_rng(0).standard_normal((DEPTH, COLUMNS), np.float32)
    x = relax.Var("x", relax.TensorType((ROWS, DEPTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.nn.relu(op.matmul(x, relax.const(weight))))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a database beside which is a model by which narrow tiles take a third of the time."""
    spaces, knowledge = list[MeasuredSpace](), Knowledge.of(None, CTX.compiler)
    for workload in draw_workloads(3, 40):
        if workload.name.startswith("matmul") and len(spaces) < 8:
            for kernel in knowledge.kernels(kernels_of(lower_graph(workload.module(), CTX).mod)).values():
                space = kernel.choices.space
                points = [space.default, *(point for point in space if point != space.default)][:60]
                narrow = [point.axes()["tile.vectors"] == 1 for point in points]
                measured = [(point, 1e-3 if its else 3e-3) for point, its in zip(points, narrow, strict=True)]
                spaces.append(MeasuredSpace.of(kernel, measured))
    path = tmp_path_factory.mktemp("database") / "my.sqlite"
    model = MachineModel.fit({"matmul": spaces}, environment_of(CTX.compiler), 1000.0)
    assert ModelStore.beside(path).write(model)
    return path


def compiled(database: Any, **options: Any) -> fusion.CompiledModule:
    return fusion.compile(product(), threads=1, cache=False, database=database, **options)


def code(module: fusion.CompiledModule, path: Path) -> str:
    module.save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tile(module: fusion.CompiledModule) -> str:
    return next(line for line in module.explain().splitlines() if "matmul" in line and "v" in line)


def test_the_model_says_which_point_and_the_same_each_time(database: Path, tmp_path: Path) -> None:
    ranked, plain = compiled(database), compiled(False)
    assert "a model of this machine was asked about 1 kernel, and chose for 1" in ranked.explain()
    assert "a model of this machine" not in plain.explain()
    assert code(ranked, tmp_path / "a.fusion") == code(compiled(database), tmp_path / "b.fusion")
    assert code(plain, tmp_path / "c.fusion") != code(ranked, tmp_path / "a.fusion")
    x = np.random.default_rng(1).standard_normal((ROWS, DEPTH), np.float32)
    np.testing.assert_allclose(ranked(x)[0], plain(x)[0], rtol=1e-4, atol=1e-5)


def test_without_a_model_it_is_what_the_tables_say(database: Path, tmp_path: Path) -> None:
    assert context.resolve("llvm", threads=1, database=tmp_path / "none.sqlite").model is None
    assert context.resolve("llvm", threads=2, database=database).model is None, "it is of another number of threads"
    assert context.resolve("llvm -mcpu=haswell", threads=1, database=database).model is None
    plain = code(compiled(False), tmp_path / "a.fusion")
    assert code(compiled(tmp_path / "none.sqlite"), tmp_path / "b.fusion") == plain


def test_forms_that_it_chose_have_keys_of_their_own(database: Path) -> None:
    learned = decided_by(context.resolve("llvm", threads=1, database=database))["learned"]
    assert (decided_by(CTX)["learned"], len(learned)) == ("", 64)
