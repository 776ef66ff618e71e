"""Products of matrices, attention, recurrent layers and transforms of signals."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.operators.rows import row


@row("MatMul", "MatMulInteger", "QLinearMatMul")
def _matmul(d: Draw) -> None:
    rows, depth, columns = d.size(), d.size(), d.size()
    batch = d.shape(0, 2, 1)
    left = (*d.broadcast(batch), rows, depth) if d.chance(0.85) else (depth,)
    right = (*d.broadcast(batch), depth, columns) if d.chance(0.85) else (depth,)
    second = 3 if d.schema.name == "QLinearMatMul" else 1
    d.input(0, left)
    d.input(second, right)
    if d.schema.name == "MatMulInteger":
        d.optional(2, (), "unit")
        d.optional(3, (), "unit")
    elif second == 3:
        for position in (1, 4, 6):
            d.input(position, (), "positive")
        for position in (2, 5, 7):
            d.input(position, (), "unit")


@row("Gemm")
def _gemm(d: Draw) -> None:
    rows, depth, columns = d.size(), d.size(), d.size()
    turn_a, turn_b = d.number(0, 1), d.number(0, 1)
    d.input(0, (depth, rows) if turn_a else (rows, depth))
    d.input(1, (columns, depth) if turn_b else (depth, columns))
    if d.schema.since_version < 11:
        d.input(2, (rows, columns) if d.schema.since_version < 7 else d.broadcast((rows, columns)))
    else:
        d.optional(2, d.broadcast((rows, columns)))
    d.set("transA", turn_a, always=True)
    d.set("transB", turn_b, always=True)
    d.set_floats("alpha", "beta")


_EQUATIONS = (
    ("ij,jk->ik", "ij", "jk"), ("bij,bjk->bik", "bij", "bjk"), ("ij->ji", "ij"), ("ii->i", "ii"), ("ij->", "ij"),
    ("i,j->ij", "i", "j"), ("bhqd,bhkd->bhqk", "bhqd", "bhkd"), ("...ij,...jk->...ik", "bij", "bjk"),
    ("ij,ij", "ij", "ij"), ("ij,jk,kl->il", "ij", "jk", "kl"), ("i,i->", "i", "i"), ("iij->j", "iij"),
    ("ab , bc -> ac", "ab", "bc"),
)  # fmt: skip


@row("Einsum")
def _einsum(d: Draw) -> None:
    equation, *terms = d.pick(_EQUATIONS)
    sizes = {letter: d.size(1, 9) for term in terms for letter in term}
    for position, term in enumerate(terms):
        d.input(position, tuple(sizes[letter] for letter in term))
    d.set("equation", equation, always=True)


@row("Attention")
def _attention(d: Draw) -> None:
    batch, heads, queries, keys, width = (
        d.number(1, 2),
        d.pick((1, 2, 4)),
        d.size(1, 9),
        d.size(1, 9),
        d.pick((1, 4, 8)),
    )
    shared = d.pick((1, heads))
    past = d.number(1, 4) if d.chance(0.3) else 0
    if d.chance(0.6):
        d.input(0, (batch, heads, queries, width))
        d.input(1, (batch, shared, keys, width))
        d.input(2, (batch, shared, keys, width))
    else:
        d.input(0, (batch, queries, heads * width))
        d.input(1, (batch, keys, shared * width))
        d.input(2, (batch, keys, shared * width))
        d.set("q_num_heads", heads, always=True)
        d.set("kv_num_heads", shared, always=True)
    d.optional(3, (queries, keys + past), share=0.5)
    if past:
        d.input(4, (batch, shared, past, width))
        d.input(5, (batch, shared, past, width))
    d.set("is_causal", d.number(0, 1))
    d.set("scale", 0.5)
    d.set("softcap", float(d.pick((0.0, 2.0))))
    d.outputs = 3 if past else 1


@row("LinearAttention")
def _linear_attention(d: Draw) -> None:
    batch, heads, length, width = 1, 2, d.number(1, 5), 4
    for position in range(3):
        d.input(position, (batch, length, heads * width))
    d.set("q_num_heads", heads, always=True)
    d.set("kv_num_heads", heads, always=True)
    d.set("update_rule", "linear")
    d.outputs = 2


@row("RotaryEmbedding")
def _rotary(d: Draw) -> None:
    batch, heads, length, half = d.number(1, 2), d.number(1, 3), d.size(1, 5), d.number(1, 4)
    d.input(0, (batch, heads, length, 2 * half))
    if d.chance(0.5):
        most = length + d.number(0, 3)
        d.input(1, (most, half))
        d.input(2, (most, half))
        d.given(3, d.rng.integers(0, most, (batch, length)))
    else:
        d.input(1, (batch, length, half))
        d.input(2, (batch, length, half))
    d.set("interleaved", d.number(0, 1))


@row("RNN", "GRU", "LSTM")
def _recurrent(d: Draw) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.schema.name]
    length, batch, width, hidden = d.size(1, 5), d.number(1, 3), d.size(1, 9), d.size(1, 9)
    direction = d.pick(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    d.input(0, (length, batch, width))
    d.input(1, (ways, gates * hidden, width))
    d.input(2, (ways, gates * hidden, hidden))
    d.optional(3, (ways, 2 * gates * hidden))
    if d.chance(0.3):
        d.given(4, d.rng.integers(1, length + 1, batch))
    d.optional(5, (ways, batch, hidden), share=0.4)
    if d.schema.name == "LSTM":
        d.optional(6, (ways, batch, hidden), share=0.4)
        d.optional(7, (ways, 3 * hidden), share=0.3)
    d.set("hidden_size", hidden, always=True)
    d.set("direction", direction, always=True)
    d.set("linear_before_reset", d.number(0, 1))
    if d.chance(0.2):
        d.set("clip", 0.5, always=True)
    d.outputs = d.number(1, d.schema.max_output)


@row("DFT")
def _dft(d: Draw) -> None:
    length = d.size(1, 17)
    d.input(0, (d.number(1, 2), length, d.size(1, 5), d.number(1, 2)))
    axis = d.pick((1, -3)) if d.schema.since_version >= 20 else 1
    if d.chance(0.3):
        d.given(1, np.array(d.size(1, 17)))
    d.set("axis", axis, always=True)
    inverse = d.number(0, 1)
    d.set("inverse", inverse)
    if not inverse and d.inputs[0].value.shape[-1] == 1:
        d.set("onesided", d.number(0, 1))


@row("STFT")
def _stft(d: Draw) -> None:
    frame = d.pick((4, 8, 5))
    d.input(0, (1, frame + d.number(0, 20), 1))
    d.given(1, np.array(d.number(1, 4)))
    windowed = d.chance(0.6)
    if windowed:
        d.input(2, (frame,))
    if not windowed or d.chance(0.3):
        d.given(3, np.array(frame))
    d.set("onesided", d.number(0, 1))


@row("MelWeightMatrix")
def _mel(d: Draw) -> None:
    for position, value in enumerate((d.number(1, 8), d.pick((16, 64)), 8000, d.pick((0, 20)), d.pick((2000, 4000)))):
        d.given(position, np.array(value))
    d.set("output_datatype", d.pick((1, 11)))
