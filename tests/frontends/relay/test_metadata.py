"""Entries of the metadata section: tensors of every dtype, objects of every form, and damaged sections."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fusion.errors import RelayTextError
from fusion.frontends.relay.metadata import Metadata, MetadataError
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.syntax import Constant, OperatorCall, TensorType

CODES = {"i": 0, "u": 1, "f": 2, "b": 1, "V": 4}


def encode(array: np.ndarray) -> bytes:
    """Return `array` as TVM saves it."""
    bits = 1 if array.dtype == bool else array.dtype.itemsize * 8
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, CODES[array.dtype.kind], bits, 1)
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    return head + shape + struct.pack("<q", array.nbytes) + array.tobytes()


def section(nodes: Sequence[Mapping[str, Any]], kind: str = "Thing", arrays: Sequence[bytes] = ()) -> str:
    """Return a section in which `meta[kind][0]` is node 3, the first of `nodes`."""
    root = [{"type_key": ""}, {"type_key": "Map", "keys": [kind], "data": [2]}, {"type_key": "Array", "data": [3]}]
    encoded = [base64.b64encode(array).decode() for array in arrays]
    data = {"root": 1, "nodes": [*root, *nodes], "b64ndarrays": encoded}
    return json.dumps(data, indent=1)


def constant(data: bytes) -> np.ndarray:
    entry = Metadata(section([{"type_key": "relay.Constant", "attrs": {"data": "0"}}], arrays=[data])).entry("Thing", 0)
    assert isinstance(entry, np.ndarray)
    return entry


def entry(*nodes: Mapping[str, Any]) -> Any:
    return Metadata(section(nodes)).entry("Thing", 0)


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
              "bool", "bfloat16"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_tensors(dtype: str, shape: tuple[int, ...]) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    found = constant(encode(array))
    assert found.dtype == kind
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_tensor_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(MetadataError, match="array 0"):
        constant(encode(np.arange(3, dtype=np.float32))[:cut])


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [(0, 1, "begin with"), (24, 99, "99 axes"), (28, 3, "dtype"), (29, 4, "dtype"), (30, 4, "dtype"),
     (32, 255, "bytes"), (40, 255, "bytes")],
)  # fmt: skip
def test_a_damaged_tensor_says_what_is_wrong(at: int, value: int, why: str) -> None:
    data = bytearray(encode(np.arange(3, dtype=np.float32)))
    data[at] = value
    with pytest.raises(MetadataError, match=why):
        constant(bytes(data))


def test_simple_objects() -> None:
    assert entry({"type_key": "IntImm", "attrs": {"dtype": "int64", "value": "-7"}}) == -7
    assert entry({"type_key": "IntImm", "attrs": {"dtype": "bool", "value": "1"}}) is True
    assert entry({"type_key": "FloatImm", "attrs": {"dtype": "float32", "value": "1.5"}}) == 1.5
    assert entry({"type_key": "runtime.String", "repr_str": "NHWC"}) == "NHWC"
    assert entry({"type_key": "runtime.String"}) == ""
    long = base64.b64encode(struct.pack("<Q", 3) + b"a\nb").decode()
    assert entry({"type_key": "runtime.String", "repr_b64": long}) == "a\nb"
    assert entry({"type_key": "runtime.BoxBool", "repr_str": "true"}) is True
    assert entry({"type_key": "runtime.BoxInt", "repr_str": "12"}) == 12
    assert entry({"type_key": "runtime.BoxFloat", "repr_str": "0.5"}) == 0.5
    assert entry({"type_key": "GlobalVar", "attrs": {"name_hint": "f", "span": "0"}}) == "f"
    assert entry({"type_key": "tir.Any", "attrs": {"dtype": "int32"}}) is None


def test_containers() -> None:
    five = {"type_key": "IntImm", "attrs": {"dtype": "int32", "value": "5"}}
    name = {"type_key": "runtime.String", "repr_str": "k"}
    assert entry({"type_key": "Array", "data": [4, 0, 4]}, five) == (5, None, 5)
    assert entry({"type_key": "Array"}) == ()
    assert entry({"type_key": "Map", "keys": ["a", "b"], "data": [4, 0]}, five) == {"a": 5, "b": None}
    assert entry({"type_key": "Map", "data": [4, 5]}, name, five) == {"k": 5}


def test_attributes_of_operators() -> None:
    attributes = {
        "type_key": "relay.attrs.Conv2DAttrs",
        "attrs": {"channels": "4", "groups": "4", "padding": "5", "data_layout": "NCHW", "kernel_layout": "6",
                  "out_dtype": "", "dilation": "0", "epsilon": "1e-05"},
    }  # fmt: skip
    eight = {"type_key": "IntImm", "attrs": {"dtype": "int32", "value": "8"}}
    layout = {"type_key": "runtime.String", "repr_str": "OIHW"}
    assert entry(attributes, eight, {"type_key": "Array", "data": [4, 4]}, layout) == {
        "channels": 8, "groups": 4, "padding": (8, 8), "data_layout": "NCHW", "kernel_layout": "OIHW", "out_dtype": "",
        "dilation": None, "epsilon": 1e-05,
    }  # fmt: skip
    one = {"type_key": "Array", "data": [5]}
    nodes = (one, {"type_key": "IntImm", "attrs": {"dtype": "int32", "value": "2"}})
    reduced = {"type_key": "relay.attrs.ReduceAttrs", "attrs": {"axis": "4", "keepdims": "1"}}
    assert entry(reduced, *nodes) == {"axis": (2,), "keepdims": 1}
    assert entry({"type_key": "relay.attrs.SoftmaxAttrs", "attrs": {"axis": "4"}}, *nodes) == {"axis": 4}


def test_references_in_a_text() -> None:
    data = json.loads(section([{"type_key": "relay.Constant", "attrs": {"data": "0"}}], "relay.Constant",
                              [encode(np.arange(2, dtype=np.float32))]))  # fmt: skip
    data["nodes"][1] |= {"keys": ["relay.Constant", "relay.attrs.ReduceAttrs", "Map", "tir.Any"], "data": [2, 4, 6, 8]}
    data["nodes"] += [
        {"type_key": "Array", "data": [5]},
        {"type_key": "relay.attrs.ReduceAttrs", "attrs": {"axis": "0", "keepdims": "1"}},
        {"type_key": "Array", "data": [7]},
        {"type_key": "Map", "keys": ["a"], "data": [3]},
        {"type_key": "Array", "data": [0]},
    ]
    text = """def @main(%x: Tensor[(meta[tir.Any][0], 2), float32], option=meta[Map][0]) {
      sum(add(%x, meta[relay.Constant][0]), meta[relay.attrs.ReduceAttrs][0])
    }
    #[metadata]
    """
    main = parse(text + json.dumps(data)).functions["main"]
    assert main.parameters[0].type == TensorType((None, 2), "float32")
    assert main.attributes == {"option": {"a": (0.0, 1.0)}}
    call = main.body.result
    assert isinstance(call, OperatorCall)
    assert call.attributes == {"axis": None, "keepdims": 1}
    (added,) = call.arguments
    assert isinstance(added, OperatorCall)
    assert isinstance(added.arguments[1], Constant)


def test_attributes_may_be_constants() -> None:
    bounds = [encode(np.array(bound, np.float32)) for bound in (0, 4)]
    constants = [{"type_key": "relay.Constant", "attrs": {"data": str(index)}} for index in range(2)]
    data = json.loads(section([constants[0]], "relay.Constant", bounds))
    data["nodes"][1] |= {"keys": ["relay.Constant", "relay.Call"], "data": [2, 5]}
    data["nodes"][2]["data"] = [3, 4]
    call = {"type_key": "relay.Call", "attrs": {"args": "2", "attrs": "0", "op": "1", "span": "0"}}
    data["nodes"] += [constants[1], {"type_key": "Array", "data": [6]}, call]
    text = """def @main() {
      arange(0f, 4f, 1f, start=meta[relay.Constant][0], stop=meta[relay.Constant][1], step=meta[relay.Call][0])
    }
    #[metadata]
    """
    result = parse(text + json.dumps(data)).functions["main"].body.result
    assert isinstance(result, OperatorCall)
    assert (result.attributes["start"], result.attributes["stop"]) == (0.0, 4.0)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([{"type_key": "Array", "data": [3]}], "contains itself"),
        ([{"type_key": "Array", "data": [99]}], "no node 99"),
        ([{"type_key": "Array", "data": ["x"]}], "no node x"),
        ([{"type_key": "Array", "data": 3}], "node 3 of the metadata section is damaged"),
        ([{"type_key": "Map", "keys": ["a"], "data": [0, 0]}], "node 3 of the metadata section is damaged"),
        ([{"type_key": "IntImm", "attrs": {"value": "x"}}], "node 3 of the metadata section is damaged"),
        ([{"type_key": "IntImm"}], "node 3 of the metadata section is damaged"),
        ([{"type_key": "relay.Constant", "attrs": {"data": "7"}}], "no array 7"),
        ([{"type_key": "Array", "data": [index + 4]} for index in range(100)], "nested too deep"),
    ],
)
def test_a_damaged_section_says_what_is_wrong(nodes: Sequence[Mapping[str, Any]], why: str) -> None:
    with pytest.raises(MetadataError, match=why):
        entry(*nodes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no metadata section"), (section([], "Other"), "has no Thing; it has Other"), (section([]), "no node 3"),
        ('{"root": 1}', "no node 1"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(text: str, why: str) -> None:
    with pytest.raises(MetadataError, match=why):
        Metadata(text).entry("Thing", 0)


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 100_000, '{"nodes": 3}', '{"nodes": [3]}', '{"root": ' + "9" * 5000 + "}"]
)
def test_a_section_that_is_no_json_of_this_kind(text: str) -> None:
    with pytest.raises(MetadataError):
        Metadata(text)


def test_an_error_in_the_section_says_where() -> None:
    with pytest.raises(RelayTextError) as caught:
        parse('def @main(%x: float32) { %x }\n#[metadata]\n{\n  "root": oops\n}')
    assert caught.value.where.startswith("line 4, column 11\n")
