"""Writes one chain as an ONNX model, and counts the work of each of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod, sqrt

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bench.inputs import InputSpec
from bench.kernels.case import Case

_OPSET, _IR_VERSION = 17, 8
Shape = tuple[int, ...]


@dataclass(frozen=True)
class KernelWork:
    """What one kernel must do at least.

    Attributes:
        flops: Operations of its product; 0 for a softmax.
        bytes: What it reads and writes, each once.
    """

    flops: int
    bytes: int


@dataclass(frozen=True)
class DrawnChain:
    """A case, and what its operators would have to do as kernels of their own.

    Attributes:
        parts: The products and softmaxes, in order; what is elementwise costs nothing as an epilogue.
    """

    case: Case
    parts: tuple[KernelWork, ...]

    @property
    def whole(self) -> KernelWork:
        """What a kernel of all of it must do."""
        return KernelWork(self.case.flops, self.case.bytes)


@dataclass
class Drawing:
    """A graph that grows by one operator a call, each of which returns the name of its result."""

    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[InputSpec] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    parts: list[KernelWork] = field(default_factory=list)

    def input(self, *shape: int) -> str:
        """Return a value that is given at run time."""
        self.inputs.append(InputSpec(f"x{len(self.inputs)}", shape, "float32"))
        self.shapes[self.inputs[-1].name] = shape
        return self.inputs[-1].name

    def weight(self, *shape: int, fan_in: int) -> str:
        """Return a constant under which values keep their scale, the same for the same place and shape."""
        name = f"w{len(self.weights)}"
        values = np.random.default_rng((len(self.weights), *shape)).standard_normal(shape) / sqrt(fan_in)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        self.shapes[name] = shape
        return name

    def matmul(self, left: str, right: str) -> str:
        """The product of the last two axes."""
        shape = (*self.shapes[left][:-1], self.shapes[right][-1])
        return self._product("MatMul", [left, right], shape, 2 * prod(shape) * self.shapes[left][-1])

    def linear(self, x: str, width: int) -> str:
        """A matmul with weights, and a bias."""
        depth = self.shapes[x][-1]
        product = self.matmul(x, self.weight(depth, width, fan_in=depth))
        return self.elementwise("Add", product, self.weight(width, fan_in=100))

    def conv(self, x: str, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        """A convolution with a bias and half a kernel of padding."""
        batch, depth, *image = self.shapes[x]
        taps = depth // groups * kernel * kernel
        weight = self.weight(channels, depth // groups, kernel, kernel, fan_in=taps)
        shape = (batch, channels, *((extent - 1) // stride + 1 for extent in image))
        return self._product(
            "Conv", [x, weight, self.weight(channels, fan_in=100)], shape, 2 * prod(shape) * taps,
            pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups,
        )  # fmt: skip

    def softmax(self, x: str) -> str:
        """Over the last axis."""
        self.parts.append(KernelWork(0, 2 * 4 * prod(self.shapes[x])))
        return self._node("Softmax", [x], self.shapes[x], axis=-1)

    def elementwise(self, kind: str, *operands: str) -> str:
        """An operator whose result has the shape of its first operand."""
        return self._node(kind, list(operands), self.shapes[operands[0]])

    def constant(self, value: float) -> str:
        """A number."""
        name = f"c{value}"
        if name not in self.shapes:
            self.weights.append(numpy_helper.from_array(np.float32(value), name))
            self.shapes[name] = ()
        return name

    def gelu(self, x: str) -> str:
        """x (1 + erf(x / sqrt 2)) / 2, as torch exports it."""
        erf = self.elementwise("Erf", self.elementwise("Div", x, self.constant(sqrt(2))))
        scaled = self.elementwise("Mul", x, self.elementwise("Add", erf, self.constant(1)))
        return self.elementwise("Mul", scaled, self.constant(0.5))

    def silu(self, x: str) -> str:
        """x sigmoid(x)."""
        return self.elementwise("Mul", x, self.elementwise("Sigmoid", x))

    def relu6(self, x: str) -> str:
        """A ReLU of at most 6."""
        return self.elementwise("Clip", x, self.constant(0), self.constant(6))

    def finish(self, name: str, family: str, result: str) -> DrawnChain:
        """Return the chain that ends in `result`."""
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, spec.shape) for spec in self.inputs],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, self.shapes[result])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        onnx.checker.check_model(model)
        outer = [spec.name for spec in self.inputs] + [tensor.name for tensor in self.weights]
        flops = sum(part.flops for part in self.parts)
        return DrawnChain(
            Case(
                name=name,
                family=family,
                model=model,
                inputs=tuple(self.inputs),
                flops=flops,
                bytes=self._bytes([*outer, result]),
                used={},
            ),
            tuple(self.parts),
        )

    def _product(self, kind: str, operands: list[str], shape: Shape, flops: int, **attributes: object) -> str:
        result = self._node(kind, operands, shape, **attributes)
        self.parts.append(KernelWork(flops, self._bytes([*operands, result])))
        return result

    def _node(self, kind: str, operands: list[str], shape: Shape, **attributes: object) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, operands, [result], **attributes))
        self.shapes[result] = shape
        return result

    def _bytes(self, names: Sequence[str]) -> int:
        return sum(4 * prod(self.shapes[name]) for name in names)
