"""What oneDNN is to compute, as data that a saved module holds: one primitive, and what follows it elementwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from safetensors import numpy as safetensors

SRC, DST, WEIGHTS, BIAS, SCALE, SHIFT, SCRATCHPAD = 1, 17, 33, 41, 51, 52, 80
"""`DNNL_ARG_*`: which argument of a primitive."""
_OPERATION = "operation"


@dataclass(frozen=True)
class PrimitiveOperand:
    """An argument of a primitive.

    Attributes:
        argument: Which.
        shape: As the primitive sees it.
        source: The position of a parameter; -1 of a constant.
        plain: Whether it has to lie in memory in the order of its axes; otherwise the primitive chooses.
    """

    argument: int
    shape: tuple[int, ...]
    source: int
    plain: bool = True


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
        plain: As for an operand, of the result.
        sizes: Lists of numbers that the primitive takes, by name.
        numbers: Numbers that it takes, by name.
        algorithm: Name of oneDNN's, of a primitive that has several.
        post_ops: What follows it, in order.
    """

    primitive: str
    operands: tuple[PrimitiveOperand, ...]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    plain: bool = True
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    algorithm: str = ""
    post_ops: tuple[PostOp, ...] = ()

    def all_operands(self) -> dict[int, PrimitiveOperand]:
        """Return all operands by the argument that each is, those of what follows too."""
        behind = (post_op.operand for post_op in self.post_ops)
        return {each.argument: each for each in (*self.operands, *behind) if each is not None}

    def serialize(self, constants: Mapping[int, np.ndarray]) -> bytes:
        """Return it and its constants, by the argument that each is, as bytes."""
        text = np.frombuffer(json.dumps(asdict(self)).encode(), np.uint8)
        weights = {str(argument): np.ascontiguousarray(array) for argument, array in constants.items()}
        data: bytes = safetensors.save({_OPERATION: text, **weights})
        return data


def deserialize(data: bytes) -> tuple[Operation, dict[int, np.ndarray]]:
    """Return what `Operation.serialize` wrote.

    Raises:
        ValueError, KeyError, TypeError: It did not write `data`.
    """
    found = safetensors.load(data)
    fields = json.loads(found.pop(_OPERATION).tobytes())
    operation = Operation(
        **{
            **fields,
            "operands": tuple(map(_operand, fields["operands"])),
            "shape": tuple(fields["shape"]),
            "result": tuple(fields["result"]),
            "sizes": {name: tuple(values) for name, values in fields["sizes"].items()},
            "post_ops": tuple(map(_post_op, fields["post_ops"])),
        }
    )
    return operation, {int(argument): array for argument, array in found.items()}


def _post_op(fields: dict[str, Any]) -> PostOp:
    return PostOp(**{**fields, "operand": fields["operand"] and _operand(fields["operand"])})


def _operand(fields: dict[str, Any]) -> PrimitiveOperand:
    return PrimitiveOperand(**{**fields, "shape": tuple(fields["shape"])})


def post_op_argument(place: int) -> int:
    """Return which argument the other operand of the post-op at `place` is."""
    return 32768 * (place + 1) | 2
