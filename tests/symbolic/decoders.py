"""Small decoders with a cache, as transformers exports them, and a picture's patches behind a class token."""

from __future__ import annotations

import numpy as np
from onnx.helper import make_node as node

from tests.module.open_models import OpenModel
from tests.module.small_models import FLOAT, INT64, Value, model

WORDS, HEADS, SIZE = 50, 2, 16
WIDTH = HEADS * SIZE
PLACES = 1024
"""Rows and columns of the table of a decoder that has one, if nothing else is said."""


def decoder(total: str, *, by_table: bool = False, places: int = PLACES) -> OpenModel:
    """Return a layer of attention over a cache and the words behind it, which returns the larger cache too.

    Args:
        total: What it names the length of its mask.
        by_table: Whether which keys come before a word is a part of a table, or compared in the graph.
        places: Rows and columns of that table.
    """
    nodes = [
        node("Gather", ["words", "ids"], ["x"]),
        node("LayerNormalization", ["x", "scale", "shift"], ["even"], axis=-1),
        *(part for name in ("query", "key", "value") for part in _heads(name)),
        node("Concat", ["past_key", "key"], ["present_key"], axis=2),
        node("Concat", ["past_value", "value"], ["present_value"], axis=2),
        node("Transpose", ["present_key"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["query", "turned"], ["products"]),
        node("Mul", ["products", "root"], ["scores"]),
        node("Shape", ["ids"], ["length"], start=1, end=2),
        node("Shape", ["present_key"], ["all"], start=2, end=3),
        node("Shape", ["past_key"], ["behind"], start=2, end=3),
        *(_causal_of_table() if by_table else _causal_of_places()),
        node("Where", ["causal", "scores", "never"], ["ordered"]),
        node("Cast", ["mask"], ["kept"], to=FLOAT),
        node("Sub", ["one", "kept"], ["left_out"]),
        node("Mul", ["left_out", "never"], ["added"]),
        node("Unsqueeze", ["added", "axes"], ["added_to_all"]),
        node("Add", ["ordered", "added_to_all"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "present_value"], ["mixed"]),
        node("Transpose", ["mixed"], ["by_word"], perm=[0, 2, 1, 3]),
        node("Reshape", ["by_word", "joined_heads"], ["rows"]),
        node("MatMul", ["rows", "leave"], ["left"]),
        node("Add", ["left", "x"], ["sum"]),
        node("MatMul", ["sum", "turned_words"], ["logits"]),
    ]
    words = _normal(WORDS, WIDTH)
    held = {
        "words": words, "turned_words": words.T, "scale": _normal(WIDTH), "shift": _normal(WIDTH),
        "leave": _normal(WIDTH, WIDTH), "root": np.float32(SIZE**-0.5), "never": np.float32(-1e4), "one": np.float32(1),
        "axes": np.array([1, 2]), "heads": np.array([0, 0, HEADS, SIZE]), "joined_heads": np.array([0, 0, WIDTH]),
        **{f"{name}_weight": _normal(WIDTH, WIDTH + place) [:, :WIDTH]
           for place, name in enumerate(("query", "key", "value"))},
    }  # fmt: skip
    if by_table:
        held |= {"table": np.tril(np.ones((places, places), bool)), "zero": np.array([0]), "rows_of_it": np.array([0]),
                 "columns": np.array([1])}  # fmt: skip
    else:
        held |= {"first": np.int64(0), "step": np.int64(1), "to_rows": np.array([-1, 1]), "alone": np.array([0])}
    cache: list[int | str] = ["batch", HEADS, "past", SIZE]
    inputs: list[Value] = [
        ("ids", INT64, ["batch", "length"]), ("mask", INT64, ["batch", total]),
        ("past_key", FLOAT, cache), ("past_value", FLOAT, cache),
    ]  # fmt: skip
    outputs: list[Value] = [
        ("logits", FLOAT, ["batch", "length", WORDS]),
        *((name, FLOAT, ["batch", HEADS, "all", SIZE]) for name in ("present_key", "present_value")),
    ]
    return OpenModel(model(nodes, inputs, outputs, held))


def cut_to_both(places: int) -> OpenModel:
    """Return rows behind one another, and added to them as many of an input that has `places`."""
    nodes = [
        node("Concat", ["past_rows", "rows"], ["both"], axis=0),
        node("Shape", ["both"], ["all"], start=0, end=1),
        node("Slice", ["positions", "zero", "all"], ["used"]),
        node("Add", ["both", "used"], ["y"]),
    ]
    inputs: list[Value] = [
        ("past_rows", FLOAT, ["past", WIDTH]), ("rows", FLOAT, ["length", WIDTH]),
        ("positions", FLOAT, [places, WIDTH]),
    ]  # fmt: skip
    return OpenModel(model(nodes, inputs, [("y", FLOAT, ["all", WIDTH])], {"zero": np.array([0])}))


def patches() -> OpenModel:
    """Return attention to a class token and the patches of a picture of any size behind it, without positions."""
    nodes = [
        node("Conv", ["x", "kernel"], ["cut"], strides=[4, 4]),
        node("Shape", ["cut"], ["batch"], start=0, end=1),
        node("Concat", ["batch", "flat"], ["shape"], axis=0),
        node("Reshape", ["cut", "shape"], ["channels"]),
        node("Transpose", ["channels"], ["rows"], perm=[0, 2, 1]),
        node("Concat", ["batch", "one_token"], ["of_each"], axis=0),
        node("Expand", ["class", "of_each"], ["tokens"]),
        node("Concat", ["tokens", "rows"], ["all"], axis=1),
        node("LayerNormalization", ["all", "scale", "shift"], ["even"], axis=-1),
        *(part for name in ("query", "key", "value") for part in _heads(name)),
        node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["query", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "value"], ["mixed"]),
        node("Transpose", ["mixed"], ["by_row"], perm=[0, 2, 1, 3]),
        node("Reshape", ["by_row", "joined_heads"], ["y"]),
    ]
    held = {
        "kernel": _normal(WIDTH, 3, 4, 4), "flat": np.array([WIDTH, -1]), "one_token": np.array([1, WIDTH]),
        "class": _normal(1, 1, WIDTH), "scale": _normal(WIDTH), "shift": _normal(WIDTH),
        "heads": np.array([0, 0, HEADS, SIZE]), "joined_heads": np.array([0, 0, WIDTH]),
        **{f"{name}_weight": _normal(WIDTH, WIDTH) for name in ("query", "key", "value")},
    }  # fmt: skip
    inputs: list[Value] = [("x", FLOAT, ["batch", 3, "height", "width"])]
    return OpenModel(model(nodes, inputs, [("y", FLOAT, ["batch", "rows", WIDTH])], held))


def _heads(name: str) -> list[object]:
    return [
        node("MatMul", ["even", f"{name}_weight"], [f"{name}_rows"]),
        node("Reshape", [f"{name}_rows", "heads"], [f"{name}_heads"]),
        node("Transpose", [f"{name}_heads"], [name], perm=[0, 2, 1, 3]),
    ]


def _causal_of_table() -> list[object]:
    return [
        node("Slice", ["table", "behind", "all", "rows_of_it"], ["some_rows"]),
        node("Slice", ["some_rows", "zero", "all", "columns"], ["causal"]),
    ]


def _causal_of_places() -> list[object]:
    return [
        node("Squeeze", ["behind", "alone"], ["begin"]),
        node("Squeeze", ["all", "alone"], ["end"]),
        node("Range", ["begin", "end", "step"], ["of_words"]),
        node("Range", ["first", "end", "step"], ["of_keys"]),
        node("Reshape", ["of_words", "to_rows"], ["word_rows"]),
        node("LessOrEqual", ["of_keys", "word_rows"], ["causal"]),
    ]


def _normal(*shape: int) -> np.ndarray:
    return (np.random.default_rng(list(shape)).standard_normal(shape) / 3).astype(np.float32)
