"""Names, shapes and dtypes of what goes into a model and comes out.

A leaf: running a saved module needs nothing of TVM's compiler, and so nothing that imports it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a model input or output.

    A dimension that is unknown before the run is None; so is the whole shape where not even the rank is known. The
    dtype is numpy's name of it; values that are no tensors have ONNX's name of their type: "seq(tensor(float))".
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str

    @property
    def is_tensor(self) -> bool:
        """Whether the value is a tensor, and no sequence or optional."""
        return "(" not in self.dtype

    @property
    def is_static(self) -> bool:
        """Whether nothing about the value is left to be known at run time that code would be compiled for."""
        return not self.is_tensor or (self.shape is not None and None not in self.shape)


@dataclass(frozen=True)
class FallbackNode:
    """A node that runs on ONNX Runtime inside the module, and why."""

    op: str
    node: str
    reason: str
