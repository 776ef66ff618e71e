"""What is run: torch modules of single kernels, and those of the zoo, with inputs of a batch and a precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import zoo
from bench.inputs import InputSpec
from bench.zoo.open_batch import batched
from bench.zoo.registry import RECIPES
from fusion.errors import OptionError

MEMORY, PRODUCT, ATTENTION, MODEL = "memory", "product", "attention", "model"
"""The kinds: a region that its bytes limit, one product, an attention, a model of the zoo."""
FLOATS = {"fp32": "float32", "fp16": "float16"}
"""Dtypes by precision."""
_WIDTH, _TOKENS, _HEADS, _HEAD = 1024, 512, 16, 64
"""A transformer's layer: channels, tokens of one text, heads, and channels of a head."""


@dataclass(frozen=True)
class Subject:
    """What one comparison runs.

    Attributes:
        name: Of a kernel of `KERNELS`, or of a model of the zoo.
        batch: How many texts or images.
        precision: A key of `FLOATS`: of weights and inputs that are no integers.
    """

    name: str
    batch: int
    precision: str

    @property
    def dtype(self) -> str:
        """Of weights and inputs."""
        return FLOATS[self.precision]

    @property
    def kind(self) -> str:
        """One of the kinds above."""
        return KERNELS[self.name].kind if self.name in KERNELS else MODEL

    def __str__(self) -> str:
        return f"{self.name}, batch {self.batch}, {self.precision}"


@dataclass(frozen=True)
class Made:
    """A module of torch on the CPU, without gradients, and the names of its inputs and outputs."""

    module: Any
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]

    def draw(self, seed: int) -> list[np.ndarray]:
        """Return random inputs, the same for the same seed."""
        random = np.random.default_rng(seed)
        return [spec.draw(random) for spec in self.inputs]


@dataclass(frozen=True)
class KernelCase:
    """One kernel.

    Attributes:
        kind: See above.
        forward: What it computes with `torch`, of tensors.
        shapes: Of these, for a batch of 1: each begins with the batch, but for those of `shared`.
        shared: Positions of those that do not depend on the batch.
        flops: Of a batch of 1; 0 for what memory limits.
    """

    kind: str
    forward: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    shared: tuple[int, ...] = ()
    flops: int = 0

    def shapes_of(self, batch: int) -> list[tuple[int, ...]]:
        """Return the shapes of a batch."""
        return [
            shape if place in self.shared else (batch * shape[0], *shape[1:]) for place, shape in enumerate(self.shapes)
        ]

    def moved_bytes(self, batch: int, item: int) -> int:
        """Return the bytes of all operands and of the result, which is as large as the first operand, of elements of
        `item` bytes: what a region has to move at least."""
        sizes = [int(np.prod(shape)) for shape in self.shapes_of(batch)]
        return item * (sum(sizes) + sizes[0])


def _norm(x: Any, gamma: Any, beta: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta)


def _residual_norm(x: Any, y: Any, gamma: Any, beta: Any) -> Any:
    return _norm(x + y, gamma, beta)


def _gated(x: Any, bias: Any) -> Any:
    shifted = x + bias
    return shifted * shifted.sigmoid()


def _attention(queries: Any, keys: Any, values: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values)


def _softmax(x: Any) -> Any:
    return x.softmax(-1)


def _transposed(x: Any) -> Any:
    return x.transpose(1, 2).contiguous()


def _product(x: Any, w: Any) -> Any:
    return x @ w


def _layer(x: Any, w: Any, bias: Any) -> Any:
    return (x @ w + bias).relu()


_TEXT, _CHANNELS = (1, _TOKENS, _WIDTH), (_WIDTH,)
_HEADED = (1, _HEADS, _TOKENS, _HEAD)
KERNELS: Mapping[str, KernelCase] = {
    "bias_silu": KernelCase(MEMORY, _gated, (_TEXT, _CHANNELS), (1,)),
    "softmax": KernelCase(MEMORY, _softmax, ((_HEADS, _TOKENS, _TOKENS),)),
    "layer_norm": KernelCase(MEMORY, _norm, (_TEXT, _CHANNELS, _CHANNELS), (1, 2)),
    "residual_norm": KernelCase(MEMORY, _residual_norm, (_TEXT, _TEXT, _CHANNELS, _CHANNELS), (2, 3)),
    "transpose": KernelCase(MEMORY, _transposed, (_TEXT,)),
    "product": KernelCase(
        PRODUCT, _product, (_TEXT, (_WIDTH, _WIDTH)), (1,), flops=2 * _TOKENS * _WIDTH * _WIDTH
    ),
    "wide_product": KernelCase(
        PRODUCT, _layer, (_TEXT, (_WIDTH, 4 * _WIDTH), (4 * _WIDTH,)), (1, 2), flops=8 * _TOKENS * _WIDTH * _WIDTH
    ),
    "attention": KernelCase(
        ATTENTION, _attention, (_HEADED, _HEADED, _HEADED), flops=4 * _HEADS * _TOKENS * _TOKENS * _HEAD
    ),
}
"""By name. What memory limits reads its first operand and writes as much."""


def make(subject: Subject) -> Made:
    """Return the module of a subject and its inputs; torch is imported.

    Raises:
        OptionError: There is no such kernel or model, or the model exists only as ONNX.
    """
    if subject.name in KERNELS:
        return _kernel(KERNELS[subject.name], subject)
    recipe = RECIPES.get(subject.name)
    if recipe is None or recipe.module is None:
        known = ", ".join((*KERNELS, *models()))
        raise OptionError(f"there is no torch module {subject.name!r}", hint=f"name some of {known}")
    held = recipe.module()
    specs = {spec.name: spec for spec in zoo.make(subject.name).specs}
    shapes = batched({name: specs[name].shape for name in held.inputs}, subject.batch)
    inputs = tuple(
        InputSpec(name, shapes[name], _dtype(specs[name].dtype, subject), specs[name].low, specs[name].high)
        for name in held.inputs
    )
    return Made(_cast(held, subject), inputs, tuple(held.outputs))


def models() -> list[str]:
    """Return the models of the zoo that are made of torch modules here."""
    return [name for name in zoo.available(zoo.ZOO) if RECIPES[name].module is not None]


def _kernel(case: KernelCase, subject: Subject) -> Made:
    import torch

    class Kernel(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            return case.forward(*tensors)

    shapes = case.shapes_of(subject.batch)
    inputs = tuple(InputSpec(f"x{place}", shape, subject.dtype) for place, shape in enumerate(shapes))
    return Made(Kernel().eval(), inputs, ("y",))


def _dtype(given: str, subject: Subject) -> str:
    return subject.dtype if given.startswith("float") else given


def _cast(module: Any, subject: Subject) -> Any:
    import torch

    return module.eval().to(getattr(torch, subject.dtype)).requires_grad_(False)
