"""What a zoo model is: a recipe that makes its file, and the made model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import inputs

Shapes = Mapping[str, tuple[int, ...]]
OpenAxes = Mapping[str, Mapping[int, str]]
"""Of each input and output of a file, the positions of the dimensions that it leaves open, and their names."""


@dataclass(frozen=True)
class Recipe:
    """How one model of the zoo is made.

    Attributes:
        name: Also the file's stem.
        build: Writes the ONNX file to the path it is given.
        shapes: Input name to concrete shape.
        ranges: Half-open range of each integer input.
        needs: Python packages that `build` or `draw` import or take files from.
        module: Makes the torch module that the file is exported from, with the same weights; None if there is none.
        draw: Draws one input array of a shape, where plain noise would not excite the network.
    """

    name: str
    build: Callable[[Path], None]
    shapes: Shapes
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    module: Callable[[], Any] | None = None
    draw: Callable[[tuple[int, ...], np.random.Generator], np.ndarray] | None = None

    def inputs(self, specs: Sequence[inputs.InputSpec], seed: int) -> dict[str, np.ndarray]:
        """Return random inputs for `specs`, the same for the same seed."""
        if self.draw is None:
            return inputs.draw(specs, seed)
        rng = np.random.default_rng(seed)
        return {spec.name: self.draw(spec.shape, rng) for spec in specs}


@dataclass(frozen=True)
class ZooModel:
    """One made model: an ONNX file with concrete input shapes."""

    recipe: Recipe
    path: Path
    specs: tuple[inputs.InputSpec, ...]

    @property
    def name(self) -> str:
        """The model's name in the zoo."""
        return self.recipe.name

    @property
    def shapes(self) -> Shapes:
        """Input name to concrete shape."""
        return self.recipe.shapes

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        """Return random inputs, the same for the same seed."""
        return self.recipe.inputs(self.specs, seed)
