"""A module with open dimensions has one form for all their sizes, where its model allows: what users see of it."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

import fusion
from fusion import api
from fusion.errors import FusionError, InputError, OptionError
from fusion.module.open_program import OpenArena
from fusion.module.program import KernelProgram
from tests.module import small_models
from tests.module.open_models import POSITIONS, OpenModel, image, text, two_inputs
from tests.module.small_models import FLOAT, INT64, Value, mlp, mlp_numpy

ALL = "all sizes"
SIZES = (1, 2, 7, 131, 1000)
TEXT, IMAGE, TWO = text(), image(), two_inputs()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled: `ALL`, or the shapes of a form of their own."""
    found, compile_form, lower_for_all = list[Any](), api.compile_form, api.lower_for_all
    monkeypatch.setattr(api, "compile_form", lambda *given: (found.append(dict(given[1])), compile_form(*given))[1])
    monkeypatch.setattr(api, "lower_for_all", lambda *given: (found.append(ALL), lower_for_all(*given))[1])
    return found


@pytest.fixture(scope="module")
def texts() -> fusion.CompiledModule:
    return called(fusion.compile(TEXT.proto, wait=True), TEXT, batch=1, length=1)


@pytest.fixture(scope="module")
def images() -> fusion.CompiledModule:
    return called(fusion.compile(IMAGE.proto, threads=2, wait=True), IMAGE, batch=2)


@pytest.fixture(scope="module")
def sums() -> fusion.CompiledModule:
    return called(fusion.compile(TWO.proto, wait=True), TWO, rows=3)


def called(module: fusion.CompiledModule, model: OpenModel, **sizes: int) -> fusion.CompiledModule:
    module.run(model.arrays(**sizes))
    return module


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


def check(module: fusion.CompiledModule, model: OpenModel, **sizes: int) -> None:
    """Compare a run with ONNX Runtime's."""
    arrays = model.arrays(**sizes)
    found, expected = module.run(arrays), model.expected(arrays)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=f"{name} at {sizes}")


def test_one_compilation_is_for_all_shapes(made: list[Any]) -> None:
    module = fusion.compile(mlp("rows"), wait=True)
    assert not made, "it is made when it is first needed"
    for count in SIZES:
        np.testing.assert_allclose(module(rows(count))[0], mlp_numpy(rows(count)), rtol=1e-4, atol=1e-5)
    assert made == [ALL]
    (form,) = module.specializations
    assert form.inputs == module.inputs
    assert not module.under_way
    assert "x float32[rows, 8]" in module.explain()


@pytest.mark.parametrize("length", [1, 2, 7, 129, POSITIONS])
@pytest.mark.parametrize("batch", [1, 5])
def test_texts_of_all_lengths(batch: int, length: int, texts: fusion.CompiledModule, made: list[Any]) -> None:
    check(texts, TEXT, batch=batch, length=length)
    assert not made


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 64])
def test_images_of_all_batches(batch: int, images: fusion.CompiledModule, made: list[Any]) -> None:
    check(images, IMAGE, batch=batch)
    assert not made


def test_tensors_without_elements_are_of_a_size_as_others(sums: fusion.CompiledModule, made: list[Any]) -> None:
    check(sums, TWO, rows=0)
    check(sums, TWO, rows=5)
    check(sums, TWO, rows=0)
    assert not made


def test_sizes_out_of_bounds_are_as_ever(texts: fusion.CompiledModule, made: list[Any]) -> None:
    """No word of a text has a position behind the last one."""
    arrays = TEXT.arrays(batch=2, length=POSITIONS + 1)
    with pytest.raises(Exception, match=r"(?i)invalid dimensions|broadcast"):
        TEXT.expected(arrays)
    for _ in range(2):
        with pytest.raises(FusionError, match="broadcast"):
            texts.run(arrays)
    assert ALL not in made
    check(texts, TEXT, batch=2, length=POSITIONS)


def test_two_sizes_of_one_name_get_a_form_of_their_own(sums: fusion.CompiledModule, made: list[Any]) -> None:
    """As ONNX Runtime takes them, where the operators do."""
    arrays = {"a": TWO.arrays(rows=4)["a"], "b": TWO.arrays(rows=1)["b"]}
    np.testing.assert_allclose(sums.run(arrays)["y"], TWO.expected(arrays)["y"], rtol=1e-6)
    assert made == [{"a": (4, 8), "b": (1, 8)}]
    arrays["b"] = TWO.arrays(rows=3)["b"]
    with pytest.raises(Exception, match=r"broadcast|Incompatible"):
        TWO.expected(arrays)
    with pytest.raises(FusionError, match="'rows' is 4 in axis 0 of input 'a' and 3 in axis 0"):
        sums.run(arrays)


WRONG = {
    "rank": np.zeros(8, np.float32),
    "dtype": np.zeros((2, 8), np.float64),
    "shape": np.zeros((2, 9), np.float32),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arrays_are_refused(what: str, sums: fusion.CompiledModule, made: list[Any]) -> None:
    new = fusion.compile(TWO.proto, wait=True)
    for module in (sums, new):
        with pytest.raises(InputError, match=f"input 'a' has the wrong {what}"):
            module(WRONG[what], np.zeros((2, 8), np.float32))
    with pytest.raises(InputError, match="is not an array"):
        new("text", np.zeros((2, 8), np.float32))
    assert not made


COPIES: dict[str, Callable[[fusion.CompiledModule, Path], fusion.CompiledModule]] = {
    "loaded": lambda module, path: (module.save(path), fusion.load(path))[1],
    "loaded and saved": lambda module, path: (COPIES["loaded"](module, path).save(path), fusion.load(path))[1],
    "pickled": lambda module, _: pickle.loads(pickle.dumps(module)),
    "copied": lambda module, _: copy.deepcopy(module),
}


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_runs_shapes_that_it_has_never_seen(
    kind: str, texts: fusion.CompiledModule, made: list[Any], tmp_path: Path
) -> None:
    other = COPIES[kind](texts, tmp_path / "m.fusion")
    for length in (3, 50, POSITIONS):
        check(other, TEXT, batch=3, length=length)
    assert not made
    with pytest.raises(FusionError, match="broadcast" if kind == "copied" else "no compiled form"):
        other.run(TEXT.arrays(batch=1, length=POSITIONS + 1))


def test_a_loaded_module_needs_no_compiler(texts: fusion.CompiledModule, tmp_path: Path) -> None:
    texts.save(tmp_path / "m.fusion")
    arrays = TEXT.arrays(batch=2, length=77)
    np.savez(tmp_path / "arrays.npz", **arrays)
    code = """
        import sys, numpy, fusion
        module = fusion.load(sys.argv[1] + "/m.fusion")
        numpy.save(sys.argv[1] + "/y.npy", module.run(dict(numpy.load(sys.argv[1] + "/arrays.npz")))["y"])
        assert "tvm" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), texts.run(arrays)["y"])


def test_a_module_that_was_not_called_can_be_saved(made: list[Any], tmp_path: Path) -> None:
    fusion.compile(TWO.proto).save(tmp_path / "m.fusion")
    assert made == [ALL]
    check(fusion.load(tmp_path / "m.fusion"), TWO, rows=9)


def test_the_next_process_takes_it_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    check(fusion.compile(TWO.proto, wait=True), TWO, rows=3)
    code = """
        import fusion
        fusion.compile  # before TVM, which alone imports PyTorch
        from fusion import api
        from tests.module.open_models import two_inputs
        api.lower_for_all = api.compile_form = None
        model = two_inputs()
        arrays = model.arrays(rows=8)
        y = fusion.compile(model.proto, wait=True).run(arrays)["y"]
        assert (y == (arrays["a"] + arrays["b"]).clip(0)).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_the_cache_holds_that_for_one_shape_apart(
    made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    for _ in range(2):
        for dynamic in (True, False):
            check(fusion.compile(TWO.proto, wait=True, dynamic=dynamic), TWO, rows=3)
    assert made == [ALL, {"a": (3, 8), "b": (3, 8)}]


def test_threads_call_at_different_shapes(texts: fusion.CompiledModule, made: list[Any]) -> None:
    lengths = [1, 200, 3, 64, 511, 7, 128, 33] * 6
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda length: check(texts, TEXT, batch=1 + length % 3, length=length), lengths))
    assert not made


def test_threads_that_call_first_make_it_once(made: list[Any]) -> None:
    module = fusion.compile(TWO.proto, wait=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda count: check(module, TWO, rows=count), range(1, 9)))
    assert made == [ALL]


def arena_of(module: fusion.CompiledModule) -> OpenArena:
    program = module.specializations[0].program
    assert isinstance(program, KernelProgram)
    memory = program.arenas.take()
    program.arenas.give(memory)
    assert isinstance(memory, OpenArena)
    return memory


def test_memory_grows_with_the_largest_and_is_shared(made: list[Any]) -> None:
    model = mlp("rows")
    model.graph.node[1].CopyFrom(node("Softmax", ["h"], ["a"], axis=1))
    module = fusion.compile(model, wait=True)
    x = [rows(count) for count in (300, 2, 299, 4000)]
    expected = [module(array)[0] for array in x[:1]]
    arena = arena_of(module)
    memory = arena._memory
    expected += [module(array)[0] for array in x[1:3]]
    assert arena_of(module) is arena
    assert arena._memory is memory, "smaller shapes lie in it"
    expected.append(module(x[3])[0])
    assert arena._memory is not memory
    assert len(arena._memory) > len(memory) >= 300 * 32 * 4
    for array, wanted in zip(x, expected, strict=True):
        np.testing.assert_array_equal(module(array)[0], wanted)
    assert made == [ALL]


def test_many_shapes_leave_the_tensors_of_some(sums: fusion.CompiledModule) -> None:
    for count in range(1, 200):
        check(sums, TWO, rows=count)
    check(sums, TWO, rows=1)
    assert len(arena_of(sums)._frames) < 100


def test_constants_of_many_sizes_do_not_fill_the_memory() -> None:
    """A mask has the square of a length."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Concat", ["length", "length"], ["square"], axis=0),
        node("Slice", ["table", "zeros", "square"], ["mask"]),
        node("Add", ["x", "mask"], ["y"]),
    ]
    values: list[Value] = [("x", FLOAT, ["batch", "length", "length"])]
    weights = {"table": np.tri(1024, dtype=np.float32), "zeros": np.zeros(2, np.int64)}
    model = OpenModel(small_models.model(nodes, values, [("y", FLOAT, ["batch", "length", "length"])], weights))
    module = fusion.compile(model.proto, wait=True)
    for length in (700, 699, 698, 697):
        check(module, model, batch=1, length=length)
    assert len(arena_of(module)._frames) <= 2, "each mask has 2 MB"
    for length in (3, 4, 5, 6):
        check(module, model, batch=1, length=length)
    assert len(arena_of(module)._frames) >= 4


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_pictures_that_go_on_beyond_their_edges(mode: str, made: list[Any], tmp_path: Path) -> None:
    """Indices of the pads are made at each size, in a loaded module too."""
    nodes = [
        node("Pad", ["x", "pads"], ["wide"], mode=mode),
        node("Conv", ["wide", "kernel"], ["half"], strides=[2, 2]),
        node("Resize", ["half", "", "scales"], ["large"], mode="nearest"),
        node("Pad", ["large", "pads"], ["wider"], mode=mode),
        node("Conv", ["wider", "other"], ["y"]),
    ]
    values: list[Value] = [("x", FLOAT, ["batch", 3, "height", "width"])]
    rng = np.random.default_rng(0)
    weights = {
        "pads": np.array([0, 0, 2, 2, 0, 0, 2, 2]), "scales": np.array([1, 1, 2, 2], np.float32),
        "kernel": rng.standard_normal((16, 3, 5, 5), np.float32),
        "other": rng.standard_normal((4, 16, 5, 5), np.float32),
    }  # fmt: skip
    model = OpenModel(small_models.model(nodes, values, [("y", FLOAT, [None] * 4)], weights))
    module = fusion.compile(model.proto, wait=True)
    sizes = [(1, 32, 40), (2, 9, 64), (1, 50, 33), (3, 8, 8)]
    module.run(model.arrays(batch=1, height=32, width=40))
    module.save(tmp_path / "m.fusion")
    for each, (batch, height, width) in itertools.product((module, fusion.load(tmp_path / "m.fusion")), sizes):
        arrays = model.arrays(batch=batch, height=height, width=width)
        np.testing.assert_allclose(each.run(arrays)["y"], model.expected(arrays)["y"], rtol=1e-3, atol=1e-3)
    assert made == [ALL]


def test_pictures_are_made_as_large_as_others(made: list[Any]) -> None:
    """As heads that say of each pixel what it is do, beside a mean of all pixels, and twice as large by cubic."""
    nodes = [
        node("Conv", ["x", "kernel"], ["half"], strides=[2, 2]),
        node("Shape", ["half"], ["inner"]),
        node("Shape", ["half"], ["outer"], end=2),
        node("Shape", ["x"], ["whole"], start=2),
        node("GlobalAveragePool", ["half"], ["mean"]),
        node("Resize", ["mean", "", "", "inner"], ["everywhere"], mode="linear"),
        node("Add", ["half", "everywhere"], ["sum"]),
        node("Concat", ["outer", "whole"], ["sizes"], axis=0),
        node("Resize", ["sum", "", "", "sizes"], ["large"], mode="linear"),
        node("Resize", ["large", "", "scales"], ["y"], mode="cubic"),
    ]
    rng = np.random.default_rng(0)
    weights = {"scales": np.array([1, 1, 2, 2], np.float32), "kernel": rng.standard_normal((4, 3, 3, 3), np.float32)}
    values: list[Value] = [("x", FLOAT, ["batch", 3, "height", "width"])]
    model = OpenModel(small_models.model(nodes, values, [("y", FLOAT, [None] * 4)], weights))
    module = fusion.compile(model.proto, wait=True)
    for batch, height, width in ((2, 20, 41), (1, 8, 9), (1, 64, 11)):
        arrays = model.arrays(batch=batch, height=height, width=width)
        np.testing.assert_allclose(module.run(arrays)["y"], model.expected(arrays)["y"], rtol=1e-4, atol=1e-4)
    assert made == [ALL]


def test_what_is_made_of_sizes_and_is_no_part_of_a_table_is_computed(made: list[Any]) -> None:
    """As detectors have the places of a picture behind one another, which are other rows at each width."""
    nodes = [
        node("Shape", ["x"], ["rows"], start=1, end=2),
        node("Shape", ["x"], ["columns"], start=2, end=3),
        node("Squeeze", ["rows"], ["height"]),
        node("Squeeze", ["columns"], ["width"]),
        node("Range", ["zero", "height", "one"], ["down"]),
        node("Range", ["zero", "width", "one"], ["across"]),
        node("Unsqueeze", ["down", "last"], ["column"]),
        node("Mul", ["column", "across"], ["products"]),
        node("Reshape", ["products", "flat"], ["behind"]),
        node("Cast", ["behind"], ["places"], to=FLOAT),
        node("Reshape", ["x", "kept"], ["pixels"]),
        node("Add", ["pixels", "places"], ["y"]),
    ]
    weights = {
        "zero": np.array(0), "one": np.array(1), "last": np.array([1]), "flat": np.array([-1]),
        "kept": np.array([0, -1]),
    }  # fmt: skip
    values: list[Value] = [("x", FLOAT, ["batch", "height", "width"])]
    model = OpenModel(small_models.model(nodes, values, [("y", FLOAT, [None] * 2)], weights))
    module = fusion.compile(model.proto, wait=True)
    for batch, height, width in ((2, 7, 5), (1, 1, 1), (3, 30, 200)):
        arrays = model.arrays(batch=batch, height=height, width=width)
        np.testing.assert_allclose(module.run(arrays)["y"], model.expected(arrays)["y"], rtol=1e-6, atol=1e-6)
    assert made == [ALL, ALL], "first as constants"


def test_results_are_the_callers_own(sums: fusion.CompiledModule) -> None:
    arrays = TWO.arrays(rows=6)
    first = sums.run(arrays)["y"]
    kept = first.copy()
    check(sums, TWO, rows=7)
    sums.run({name: array + 1 for name, array in arrays.items()})
    np.testing.assert_array_equal(first, kept)


def test_one_form_for_each_shape_may_be_asked_for(made: list[Any]) -> None:
    module = fusion.compile(TWO.proto, wait=True, dynamic=False)
    for count in (2, 3, 2):
        check(module, TWO, rows=count)
    assert made == [{"a": (count, 8), "b": (count, 8)} for count in (2, 3)]
    assert "all sizes" not in module.explain()
    with pytest.raises(OptionError, match="dynamic"):
        fusion.compile(TWO.proto, dynamic="no")  # type: ignore[arg-type]


def fixed_batch() -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    values = [("x", FLOAT, ["rows", 8])], [("y", FLOAT, [4, 6])]
    return small_models.model(nodes, *values, {"shape": np.array([4, 6])})


def determinants() -> onnx.ModelProto:
    nodes = [node("Det", ["x"], ["y"])]
    return small_models.model(nodes, [("x", FLOAT, ["rows", 8, 8])], [("y", FLOAT, ["rows"])])


def strings() -> onnx.ModelProto:
    nodes = [node("Gather", ["x", "at"], ["y"])]
    values = [("x", onnx.TensorProto.STRING, ["rows"])], [("y", onnx.TensorProto.STRING, [2])]
    return small_models.model(nodes, *values, {"at": np.array([1, 0])})


WITHOUT: dict[str, tuple[onnx.ModelProto, tuple[np.ndarray, ...], str]] = {
    "a fixed batch": (fixed_batch(), (rows(3),), "the shapes of Reshape contradict each other"),
    "determinants": (determinants(), (rows(24).reshape(3, 8, 8),), "ONNX Runtime runs a part of it"),
    "strings": (strings(), (np.array(["a", "b"], object),), "ONNX Runtime runs a part of it|no tensor"),
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_model_without_one_says_why_and_has_a_form_for_each_shape(kind: str, made: list[Any]) -> None:
    proto, arrays, reason = WITHOUT[kind]
    module = fusion.compile(proto, wait=True)
    for _ in range(2):
        (expected,) = OpenModel(proto).expected(
            {value.name: array for value, array in zip(proto.graph.input, arrays, strict=True)}
        ).values()
        found = module(*arrays)[0]
        assert found.shape == expected.shape
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected)
    assert made == [ALL, {spec.name: array.shape for spec, array in zip(module.inputs, arrays, strict=True)}]
    (told,) = module.under_way
    assert re.search(f"no form for all sizes: .*({reason})", told)
    assert told in module.explain()
    assert copy.deepcopy(module)(*arrays)[0].shape == expected.shape
    assert made.count(ALL) == 1, "a copy knows that there is none"


@pytest.mark.parametrize("kind", ["a fixed batch", "determinants"])
def test_the_next_process_takes_the_reason_from_the_cache(
    kind: str, made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    proto, arrays, reason = WITHOUT[kind]
    for _ in range(2):
        module = fusion.compile(proto, wait=True)
        module(*arrays)
        assert re.search(reason, module.under_way[0])
    assert made.count(ALL) == 1
    (entry,) = (tmp_path / "compiled").glob("*.reason")
    entry.write_text(entry.read_text().replace("text", "next"))
    fusion.compile(proto, wait=True)(*arrays)
    assert made.count(ALL) == 2, "it is damaged"


def test_as_many_as_the_run_finds(made: list[Any]) -> None:
    """The extents of a result may depend on the data."""
    nodes = [node("Relu", ["x"], ["kept"]), node("NonZero", ["kept"], ["y"])]
    model = OpenModel(small_models.model(nodes, [("x", FLOAT, ["rows", 8])], [("y", INT64, [2, "count"])]))
    module = fusion.compile(model.proto, wait=True)
    for count in SIZES:
        check(module, model, rows=count)
    assert made == [ALL]


def joined() -> OpenModel:
    """Return relu of x[batch, first, 8] and z[batch, second, 8] after each other."""
    nodes = [node("Concat", ["x", "z"], ["both"], axis=1), node("Relu", ["both"], ["y"])]
    inputs: list[Value] = [("x", FLOAT, ["batch", "first", 8]), ("z", FLOAT, ["batch", "second", 8])]
    return OpenModel(small_models.model(nodes, inputs, [("y", FLOAT, ["batch", "sum", 8])]))


def whole_parts(divisor: int) -> OpenModel:
    """Return relu of x[batch, first, 8] as far as `divisor` divides it."""
    nodes = [
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Mod", ["length", "divisor"], ["rest"]),
        node("Sub", ["length", "rest"], ["end"]),
        node("Slice", ["x", "zero", "end", "one"], ["part"]),
        node("Relu", ["part"], ["y"]),
    ]
    weights = {"divisor": np.array([divisor]), "zero": np.array([0]), "one": np.array([1])}
    values: list[Value] = [("x", FLOAT, ["batch", "first", 8])]
    return OpenModel(small_models.model(nodes, values, [("y", FLOAT, ["batch", "part", 8])], weights))


def pairs() -> OpenModel:
    """Return relu(x[first, 1, 8] + z[1, second, 8])."""
    nodes = [
        node("Unsqueeze", ["x", "one"], ["rows"]), node("Unsqueeze", ["z", "zero"], ["columns"]),
        node("Add", ["rows", "columns"], ["sum"]), node("Relu", ["sum"], ["y"]),
    ]  # fmt: skip
    weights = {"one": np.array([1]), "zero": np.array([0])}
    inputs: list[Value] = [("x", FLOAT, ["first", 8]), ("z", FLOAT, ["second", 8])]
    return OpenModel(small_models.model(nodes, inputs, [("y", FLOAT, ["first", "second", 8])], weights))


@pytest.mark.parametrize(
    ("model", "opens"),
    [(joined(), True), (whole_parts(2), False), (whole_parts(3), False), (pairs(), True)],
    ids=["a sum", "halves", "thirds", "a product"],
)
def test_sizes_of_two_names_and_rests_are_told_apart(model: OpenModel, opens: bool, made: list[Any]) -> None:
    """What is no product of sizes was taken for one of them, of equal sizes and of those of which 2 or 3 leave 1.

    A sum is a size of its own.
    """
    module = fusion.compile(model.proto, wait=True)
    for first, second in ((5, 9), (6, 1), (1, 6)):
        check(module, model, batch=2, first=first, second=second)
    assert made.count(ALL) == 1
    assert opens == (made == [ALL])


def with_constant(*nodes: onnx.NodeProto, **weights: np.ndarray) -> OpenModel:
    """Return x[batch, 4, 512] + the result c[batch, 4, 512] of `nodes`, which may read `batch` and the `shape` of x."""
    first = [
        node("Shape", ["x"], ["shape"]), node("Shape", ["x"], ["one"], end=1),
        node("Squeeze", ["one"], ["batch"]),
    ]  # fmt: skip
    inputs: list[Value] = [("x", FLOAT, ["batch", 4, 512])]
    every = [*first, *nodes, node("Add", ["x", "c"], ["y"])]
    return OpenModel(small_models.model(every, inputs, [("y", FLOAT, ["batch", 4, 512])], weights))


def counted(*nodes: onnx.NodeProto) -> OpenModel:
    """Return x[batch, 4, 512] + what `nodes` make of the number of each image."""
    return with_constant(
        node("Range", ["zero", "batch", "step"], ["number"]),
        *nodes,
        node("Cast", ["made"], ["float"], to=FLOAT),
        node("Unsqueeze", ["float", "axes"], ["c"]),
        zero=np.array(0), step=np.array(1), four=np.array(4), axes=np.array([1, 2]),
    )  # fmt: skip


ROWS = np.random.default_rng(0).standard_normal((1, 4, 512)).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "largest"),
    [
        (with_constant(node("Expand", ["row", "shape"], ["c"]), row=ROWS), 65536),
        (
            with_constant(
                node("Expand", ["rows", "shape"], ["all"]),
                node("Reshape", ["all", "flat"], ["even"]),
                node("Add", ["even", "shift"], ["shifted"]),
                node("Reshape", ["shifted", "shape"], ["c"]),
                rows=ROWS, flat=np.array([-1, 512]), shift=ROWS[0, :1],
            ),
            65536,
        ),
        (counted(node("Mul", ["number", "four"], ["made"])), 65536),
        (counted(node("Div", ["number", "four"], ["made"])), 3),
    ],
    ids=["copies", "periods", "counts", "quarters"],
)  # fmt: skip
def test_constants_of_the_batch_go_on_as_they_begin(model: OpenModel, largest: int, made: list[Any]) -> None:
    """Those of the largest batch are more than imports compute; and what is 0 for the first three images need not be 0
    for the fifth."""
    module = fusion.compile(model.proto, wait=True)
    for batch in (1, 3, 9, 32):
        check(module, model, batch=batch)
    assert made == [ALL, *({"x": (batch, 4, 512)} for batch in (9, 32) if batch > largest)]
    assert f"batch 0 to {largest}" in module.explain()


def test_results_of_many_sizes_leave_no_memory(made: list[Any]) -> None:
    """TVM's pool of outputs kept the memory of each size that it had ever seen, and so did copies of inputs."""
    model = two_inputs(width=4096)
    module = fusion.compile(model.proto, wait=True)
    arrays = model.arrays(rows=200)
    module.run(arrays)
    before = resident_bytes()
    for count in range(200, 100, -1):
        a, b = arrays["a"][:count], np.asfortranarray(arrays["b"][:count])
        np.testing.assert_array_equal(module(a, b)[0], np.maximum(a + b, 0))
    assert resident_bytes() - before < 64 << 20, "all results together have 245 MB"
    assert made == [ALL]


def resident_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
