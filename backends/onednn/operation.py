"""What oneDNN is to compute, as data that a saved module holds: primitives, one after the other, and what follows each
of them elementwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from safetensors import numpy as safetensors

SRC, SRC_1, DST, WEIGHTS, BIAS, SCALE, SHIFT, SCRATCHPAD = 1, 2, 17, 33, 41, 51, 52, 80
"""`DNNL_ARG_*`: which argument of a primitive."""
CONSTANT = -1
"""The source of an operand that no value is."""
PLAIN, FREE, GIVEN = "plain", "free", "given"
"""In which order in memory a tensor lies: in that of its axes; as the primitive chooses; as its maker left it."""
_SEQUENCE = "sequence"

Constants = Mapping[tuple[int, int], np.ndarray]
"""By the position of an operation, and which argument of it each is."""


@dataclass(frozen=True)
class PrimitiveOperand:
    """An argument of a primitive.

    Attributes:
        argument: Which.
        shape: As the primitive sees it.
        source: The number of a value, or `CONSTANT`.
        order: `PLAIN`, `FREE` or `GIVEN`; of another operand than `SRC` that is as large, the last is the order of
            `SRC`.
    """

    argument: int
    shape: tuple[int, ...]
    source: int
    order: str = PLAIN


@dataclass(frozen=True)
class PostOp:
    """An elementwise operator behind a primitive.

    Attributes:
        algorithm: Name of oneDNN's.
        alpha, beta: Its numbers.
        operand: The other operand of one with two.
    """

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: PrimitiveOperand | None = None


@dataclass(frozen=True)
class Operation:
    """A primitive, and what follows it.

    Attributes:
        primitive: Name of its kind, a row of `primitives.PRIMITIVES`.
        operands: Its arguments but the result.
        shape: Of the result, as the primitive sees it.
        result: Of the result, as the graph has it.
        order: Of the result, `PLAIN` or `FREE`.
        sizes: Lists of numbers that the primitive takes, by name.
        numbers: Numbers that it takes, by name.
        algorithm: Name of oneDNN's, of a primitive that has several.
        post_ops: What follows it, in order.
    """

    primitive: str
    operands: tuple[PrimitiveOperand, ...]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    order: str = PLAIN
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    algorithm: str = ""
    post_ops: tuple[PostOp, ...] = ()

    def all_operands(self) -> dict[int, PrimitiveOperand]:
        """Return all operands by the argument that each is, those of what follows too."""
        behind = (post_op.operand for post_op in self.post_ops)
        return {each.argument: each for each in (*self.operands, *behind) if each is not None}


@dataclass(frozen=True)
class PrimitiveSequence:
    """Operations, one after the other. Values are numbered: the inputs first, then the result of each operation.

    Attributes:
        inputs: Shapes.
        operations: In the order they run.
        results: Which values are returned.
    """

    inputs: tuple[tuple[int, ...], ...]
    operations: tuple[Operation, ...]
    results: tuple[int, ...]

    def last_reads(self) -> dict[int, int]:
        """Return for each value that operations read the position of the last of them."""
        return {
            operand.source: place
            for place, operation in enumerate(self.operations)
            for operand in operation.all_operands().values()
        }

    def shape(self, value: int) -> tuple[int, ...]:
        """Return the shape of a value, as the graph has it."""
        made = value - len(self.inputs)
        return self.inputs[value] if made < 0 else self.operations[made].result

    def serialize(self, constants: Constants) -> bytes:
        """Return it and its constants as bytes."""
        text = np.frombuffer(json.dumps(asdict(self)).encode(), np.uint8)
        weights = {f"{place} {at}": np.ascontiguousarray(array) for (place, at), array in constants.items()}
        data: bytes = safetensors.save({_SEQUENCE: text, **weights})
        return data


def deserialize(data: bytes) -> tuple[PrimitiveSequence, dict[tuple[int, int], np.ndarray]]:
    """Return what `PrimitiveSequence.serialize` wrote.

    Raises:
        ValueError, KeyError, TypeError: It did not write `data`.
    """
    found = safetensors.load(data)
    fields = json.loads(found.pop(_SEQUENCE).tobytes())
    sequence = PrimitiveSequence(
        tuple(map(tuple, fields["inputs"])), tuple(map(_operation, fields["operations"])), tuple(fields["results"])
    )
    return sequence, {_place(name): array for name, array in found.items()}


def _place(name: str) -> tuple[int, int]:
    operation, argument = map(int, name.split())
    return operation, argument


def _operation(fields: dict[str, Any]) -> Operation:
    return Operation(
        **{
            **fields,
            "operands": tuple(map(_operand, fields["operands"])),
            "shape": tuple(fields["shape"]),
            "result": tuple(fields["result"]),
            "sizes": {name: tuple(values) for name, values in fields["sizes"].items()},
            "post_ops": tuple(map(_post_op, fields["post_ops"])),
        }
    )


def _post_op(fields: dict[str, Any]) -> PostOp:
    return PostOp(**{**fields, "operand": fields["operand"] and _operand(fields["operand"])})


def _operand(fields: dict[str, Any]) -> PrimitiveOperand:
    return PrimitiveOperand(**{**fields, "shape": tuple(fields["shape"])})


def post_op_argument(place: int) -> int:
    """Return which argument the other operand of the post-op at `place` is."""
    return 32768 * (place + 1) | SRC_1
