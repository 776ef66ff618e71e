"""Damaged files: models, saved modules, texts of Relay and parameters, by bits, bytes and the fields they hold."""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import fusion
from fusion.errors import FusionError, InternalError
from fusion.module.archive import write_archive
from tests.frontends.relay import shared_models
from tests.frontends.relay.test_mutations import mutate
from tests.fuzz import graphs
from tests.fuzz.case import Case, Outcome
from tests.fuzz.engines import Ran, run_onnxruntime
from tests.fuzz.protobufs import edit
from tests.fuzz.verdicts import Stage, difference, is_excused

_TEXTS = ("constructs", "let_tuple", "mlp")
_BASES = 400
"""Models that are damaged: those of the first seeds of `graphs`."""
_DATA = "weights.bin"


def make_case(seed: int) -> Case:
    """Return a damaged file and what goes with it."""
    rng = np.random.default_rng([seed, 3])
    makers = (_onnx_bytes, _onnx_fields, _onnx_fields, _onnx_fields, _saved, _relay, _parameters)
    return makers[int(rng.integers(len(makers)))](seed, rng)


def _base(rng: np.random.Generator) -> Case:
    """Return one of the valid cases among the first."""
    while True:
        case = graphs.make_case(int(rng.integers(_BASES)))
        if not case.note:
            return case


def damaged(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Return `data` with bits flipped, a part cut, doubled, moved or overwritten, and which of these it was."""
    made, size = bytearray(data), max(len(data), 1)
    at, length = int(rng.integers(size)), int(rng.choice([1, 2, 4, 16, 100, 5000]))
    way = str(rng.choice(["flip", "flip", "flip", "cut", "drop", "repeat", "fill", "move"]))
    if way == "flip":
        for place in rng.integers(0, size, int(rng.choice([1, 1, 2, 8]))):
            if made:
                made[place] ^= 1 << int(rng.integers(8))
    elif way == "cut":
        del made[at:]
    elif way == "drop":
        del made[at : at + length]
    elif way == "repeat":
        made[at:at] = made[at : at + length] * int(rng.choice([1, 2, 50]))
    elif way == "fill":
        made[at : at + length] = bytes([int(rng.choice([0, 255, 128, 127]))]) * min(length, len(made) - at)
    else:
        part = made[at : at + length]
        del made[at : at + length]
        place = int(rng.integers(len(made) + 1))
        made[place:place] = part
    return bytes(made), f"{way} at {at}"


def _onnx_bytes(seed: int, rng: np.random.Generator) -> Case:
    base = _base(rng)
    data, note = damaged(base.model, rng)
    return Case("files", seed, data, base.inputs, f"bytes: {note}")


def _onnx_fields(seed: int, rng: np.random.Generator) -> Case:
    """Edit one to three fields of a model, half of the time of one whose weights lie in a file beside it."""
    base = _base(rng)
    model, files = base.proto(), {}
    if rng.random() < 0.4:
        files = {_DATA: _as_external(model)}
    notes = [edit(model, rng) for _ in range(int(rng.choice([1, 1, 2, 3])))]
    return Case(
        "files", seed, model.SerializePartialToString(), base.inputs, "fields: " + "; ".join(notes), files=files
    )


def _as_external(model: onnx.ModelProto) -> bytes:
    """Move the raw data of all weights into one piece, which is returned; records say where."""
    data = bytearray()
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data"):
            record = {"location": _DATA, "offset": str(len(data)), "length": str(len(tensor.raw_data))}
            data += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in record.items():
                tensor.external_data.add(key=key, value=value)
    return bytes(data)


@lru_cache
def _good(number: int) -> tuple[bytes, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a saved module, its inputs and its outputs."""
    rng = np.random.default_rng([number, 4])
    x = onnx.helper.make_tensor_value_info("x", 1, [3, 8])
    y = onnx.helper.make_tensor_value_info("y", 1, None)
    weight = onnx.numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), "w")
    kind = ("Softmax", "Tanh", "NonZero")[number]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["m"]), onnx.helper.make_node(kind, ["m"], ["y"])]
    y.type.tensor_type.elem_type = 7 if kind == "NonZero" else 1
    graph = onnx.helper.make_graph(nodes, "saved", [x], [y], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"x": rng.standard_normal((3, 8)).astype(np.float32)}
    module = fusion.compile(model, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        module.save(Path(folder) / "good.fusion")
        return (Path(folder) / "good.fusion").read_bytes(), inputs, module.run(inputs)


def _saved(seed: int, rng: np.random.Generator) -> Case:
    """Damage a saved module: its bytes, or a value of its manifest, whose archive is then whole."""
    number = int(rng.integers(3))
    data, inputs, _ = _good(number)
    if rng.random() < 0.5:
        edges = data[:400] + data[-400:]
        made, note = damaged(data if rng.random() < 0.5 else edges, rng)
        whole = made if len(made) != len(edges) else made[:400] + data[400:-400] + made[400:]
        return Case("files", seed, whole, inputs, f"saved {number}: {note}", form="fusion")
    changed, note = _with_edited_manifest(data, rng)
    return Case("files", seed, changed, inputs, f"manifest {number}: {note}", form="fusion")


_ODD = (None, -1, 0, 1, 2**31, 2**63, 2**70, 1.5, "", "x", "float99", "/", [], {}, [[]], True, "\0", float("nan"))


def _with_edited_manifest(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    places = list(_places(manifest))
    holder, key = places[int(rng.integers(len(places)))]
    before = holder[key]
    holder[key] = _ODD[int(rng.integers(len(_ODD)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.fusion"
        write_archive(path, {**members, "manifest.json": json.dumps(manifest).encode()})
        return path.read_bytes(), f"{key}: {str(before)[:40]} -> {holder[key]!r}"


def _places(value: Any) -> Any:
    """Yield every holder and key in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _relay(seed: int, rng: np.random.Generator) -> Case:
    name = _TEXTS[int(rng.integers(len(_TEXTS)))]
    text = mutate(shared_models.text(name), random.Random(seed))
    return Case("files", seed, text.encode("utf-8", "surrogatepass"), {}, f"relay {name}", form="relay")


def _parameters(seed: int, rng: np.random.Generator) -> Case:
    whole = shared_models.path("mlp").with_suffix(".npz").read_bytes()
    data, note = damaged(whole, rng)
    return Case("files", seed, data, {}, f"parameters: {note}", form="npz")


def judge_file(case: Case, stage: Stage, alone: bool = False) -> Outcome:
    """Return the outcome of reading a file and running what is in it: an error of ours, or what is right.

    Args:
        alone: Whether ONNX Runtime, which the file ended, is left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{case.form}"
        path.write_bytes(case.model)
        for name, data in case.files.items():
            (Path(folder) / name).write_bytes(data)
        expected = Ran("no kernel")
        if case.form == "onnx" and not alone:
            stage("oracle")
            expected = run_onnxruntime(path, case.inputs)
        stage("fusion")
        ours = _attempt(_RUNNERS[case.form], path, case)
        stage("compare")
        verdict, detail = _judged(case, ours, expected)
    where = f"{case.form} file"
    fine = verdict in ("same", "both refuse", "no oracle")
    return Outcome("files", case.seed, verdict, detail, where, case.note, None if fine else case)


def _attempt(run: Callable[[Path, Case], Any], path: Path, case: Case) -> Ran:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Ran("ran", dict(run(path, case)))
    except InternalError as error:
        return Ran("internal", message=f"{error.code}: {error.what}: {error.why}")
    except FusionError as error:
        return Ran("refused", message=f"{error.code}: {error.what} ({error.why})")
    except MemoryError:
        raise
    except Exception as error:  # what is not a FusionError is what is looked for
        return Ran("untyped", message=f"{type(error).__name__}: {error}")


def _run_onnx(path: Path, case: Case) -> Any:
    return fusion.compile(path, threads=1, wait=True).run(case.inputs)


def _run_saved(path: Path, case: Case) -> Any:
    return fusion.load(path).run(case.inputs)


def _run_relay(path: Path, case: Case) -> Any:
    fusion.compile(path, threads=1)
    return {}


def _run_parameters(path: Path, case: Case) -> Any:
    fusion.compile(shared_models.path("mlp"), threads=1, params=path)
    return {}


_RUNNERS: dict[str, Callable[[Path, Case], Any]] = {
    "onnx": _run_onnx, "fusion": _run_saved, "relay": _run_relay, "npz": _run_parameters,
}  # fmt: skip


def _judged(case: Case, ours: Ran, expected: Ran) -> tuple[str, str]:
    if ours.status in ("untyped", "internal"):
        return ours.status, f"{ours.message} [expected: {expected.status} {expected.message[:100]}]"
    if ours.status == "refused":
        return "both refuse", ours.message
    if case.form == "fusion" and case.note.startswith("saved"):
        _, _, outputs = _good(int(case.note[6]))
        found = difference(ours.values, outputs)
        return ("differs", found) if found else ("same", "")
    if case.form != "onnx" or expected.status != "ran":
        return "no oracle", ""
    found = difference(ours.values, expected.values)
    model = onnx.load_model_from_string(case.model)
    if found and not case.files and is_excused(model, case.inputs, ours.values, expected.values):
        return "same", ""
    return ("differs", found) if found else ("same", "")
