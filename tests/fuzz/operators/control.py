"""Loops, sequences and strings."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.draw import WORDS, Draw, Operand
from tests.fuzz.operators.rows import row


def _info(name: str, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, None)


@row("Loop")
def _loop(d: Draw) -> None:
    shape = d.shape(0, 2)
    if d.chance(0.9):
        d.given(0, np.array(d.number(0, 4)))
    if d.chance(0.9) or 0 not in d.inputs:
        d.given(1, np.array(d.chance(0.9)))
    d.inputs[2] = Operand(d.array("float32", shape))
    keep = (
        helper.make_node("Identity", ["go"], ["go_on"])
        if d.chance(0.7)
        else helper.make_node("Less", ["at", "at"], ["go_on"])
    )
    nodes = [keep, helper.make_node("Add", ["state", "state"], ["next"]), helper.make_node("Neg", ["state"], ["seen"])]
    collected = d.number(0, 1)
    results = [_info("go_on", TensorProto.BOOL), _info("next"), *[_info("seen")] * collected]
    counters = [
        helper.make_tensor_value_info("at", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
    ]
    inputs = [*counters, helper.make_tensor_value_info("state", TensorProto.FLOAT, shape)]
    d.attributes["body"] = helper.make_graph(nodes, "body", inputs, results)
    d.outputs = 1 + collected


@row("Scan")
def _scan(d: Draw) -> None:
    length, width = d.size(1, 5), d.size(1, 5)
    nodes = [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Mul", ["next", "row"], ["seen"])]
    body = helper.make_graph(nodes, "body", [_info("state"), _info("row")], [_info("next"), _info("seen")])
    old = d.schema.since_version < 9
    values = [d.array("float32", (width,)), d.array("float32", (length, width))]
    if old:
        d.inputs[0] = Operand(None, kind="")
        values = [value[None] for value in values]
    for position, value in enumerate(values, int(old)):
        d.inputs[position] = Operand(value)
    d.attributes["body"] = body
    d.set("num_scan_inputs", 1, always=True)
    d.set("directions" if old else "scan_input_directions", [d.number(0, 1)])
    d.outputs = 2


def _arrays(d: Draw) -> list[np.ndarray]:
    dtype = str(d.pick(("float32", "int64", "float64")))
    rank = d.number(0, 2)
    return [d.array(dtype, d.shape(rank, rank)) for _ in range(d.number(1, 4))]


@row("SequenceAt", "SequenceErase", "SequenceLength", "SequenceInsert")
def _sequence(d: Draw) -> None:
    arrays = _arrays(d)
    d.inputs[0] = Operand(arrays, kind="sequence")
    place = np.array(d.number(-len(arrays), len(arrays) - 1), np.int64)
    name = d.schema.name
    if name == "SequenceInsert":
        d.inputs[1] = Operand(arrays[0])
        if d.chance(0.6):
            d.inputs[2] = Operand(place)
    elif name == "SequenceAt" or (name == "SequenceErase" and d.chance(0.6)):
        d.inputs[1] = Operand(place)


@row("SequenceConstruct")
def _construct(d: Draw) -> None:
    for position, array in enumerate(_arrays(d)):
        d.inputs[position] = Operand(array)


@row("SequenceEmpty")
def _empty(d: Draw) -> None:
    d.set("dtype", d.pick((1, 7, 11)))


@row("ConcatFromSequence")
def _concat_sequence(d: Draw) -> None:
    shape = d.shape(1, 3)
    d.inputs[0] = Operand([d.array("float32", shape) for _ in range(d.number(1, 3))], kind="sequence")
    d.set("axis", d.axis(len(shape)), always=True)
    d.set("new_axis", d.number(0, 1))


@row("SplitToSequence")
def _split_sequence(d: Draw) -> None:
    shape = d.main(1, 3, 1)
    axis = d.axis(len(shape))
    if d.chance(0.6):
        d.given(1, np.array(d.number(1, shape[axis])) if d.chance(0.5) else np.array([1] * shape[axis]))
    d.set("axis", axis, always=True)
    d.set("keepdims", d.number(0, 1))


@row("SequenceMap")
def _map(d: Draw) -> None:
    d.inputs[0] = Operand([d.array("float32", d.shape(1, 2)) for _ in range(d.number(1, 3))], kind="sequence")
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "body", [_info("x")], [_info("y")])
    d.attributes["body"] = body


@row("RegexFullMatch")
def _regex(d: Draw) -> None:
    d.main(0, 3)
    d.set("pattern", d.pick((r"a+", r"[A-z ]*", r"(a|b)+", r"")), always=True)


@row("StringConcat")
def _string_concat(d: Draw) -> None:
    shape = d.main(0, 3)
    d.input(1, d.broadcast(shape))


@row("StringSplit")
def _string_split(d: Draw) -> None:
    d.main(0, 2)
    d.set("delimiter", d.pick((" ", "", ",", "b")))
    d.set("maxsplit", d.number(0, 3))
    d.outputs = 2


@row("StringNormalizer")
def _string_normalize(d: Draw) -> None:
    words = np.array([d.pick(WORDS[1:]) for _ in range(d.size(1, 5))], object)
    d.given(0, words if d.chance(0.5) else words[None])
    d.set("case_change_action", d.pick(("LOWER", "UPPER", "NONE")))
    d.set("is_case_sensitive", d.number(0, 1))
    d.set("stopwords", ["a"])
    d.set("locale", "C", always=True)


@row("TfIdfVectorizer")
def _tf_idf(d: Draw) -> None:
    d.given(0, d.rng.integers(0, 4, (d.size(1, 9),) if d.chance(0.5) else (2, d.size(1, 9))))
    if d.dtype() == "string":
        d.given(0, np.array(["a", "b", "a"], object))
        d.attributes["pool_strings"] = ["a", "b", "a", "b"]
    else:
        d.attributes["pool_int64s"] = [0, 1, 2, 3]
    d.attributes.update(
        mode=d.pick(("TF", "IDF", "TFIDF")), min_gram_length=1, max_gram_length=d.number(1, 2),
        max_skip_count=d.number(0, 1), ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
    )  # fmt: skip
    d.set("weights", [0.5, 1.0, 2.0])
