"""A graph of ONNX that grows by random operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

Dims = tuple[int | str, ...]


@dataclass
class Graph:
    """A graph that grows.

    Attributes:
        values: The tensors so far, with their dimensions.
    """

    rng: np.random.Generator
    values: list[tuple[str, Dims]] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, value: np.ndarray) -> str:
        """Return the name of a new constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, *shape: int) -> str:
        """Return a new constant of random numbers."""
        return self.weight((self.rng.standard_normal(shape) / 2).astype(np.float32))

    def integers(self, *values: int) -> str:
        """Return a new constant of these numbers."""
        return self.weight(np.array(values, np.int64))

    def add(self, operator: str, inputs: list[str], dims: Dims, **attributes: object) -> str:
        """Return the name of a new tensor."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        self.values.append((name, dims))
        return name

    def pick(self, fits: Callable[[Dims], bool] = lambda dims: True) -> tuple[str, Dims] | None:
        """Return one of the tensors whose dimensions fit, mostly a late one."""
        found = [value for value in self.values if fits(value[1])]
        if not found:
            return None
        return found[max(self.rng.integers(len(found)), self.rng.integers(len(found)))]
