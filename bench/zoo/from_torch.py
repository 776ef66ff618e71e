"""Recipes whose file is exported from a torch module with random weights; torch is imported when one is made."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.zoo.model import OpenAxes, Recipe, Shapes

if TYPE_CHECKING:
    from bench.zoo.export import Select

_SEED = 20
_IDS = "input_ids"


def configured(
    name: str,
    family: str,
    head: str,
    shapes: Shapes,
    outputs: Sequence[str],
    axes: OpenAxes | None = None,
    **options: Any,
) -> Recipe:
    """Return the recipe of the `transformers` model `family + head`, built from a configuration: nothing is downloaded.

    Args:
        name: Of the recipe.
        family: Class name without its ending: "ResNet" for ResNetConfig.
        head: The rest of the model's class name: "Model", "ForImageClassification".
        shapes: The forward method's arguments by name, to concrete shape.
        outputs: The fields of the model's output to keep.
        axes: Which dimensions the file leaves open; None for none.
        options: Of the configuration; `vocab_size` also bounds the token ids.
    """
    ranges = {_IDS: (0, int(options["vocab_size"]))} if _IDS in shapes else {}
    make = functools.partial(_transformer, family, head, options)
    return _recipe(name, make, shapes, tuple(outputs), needs=("torch", "transformers"), ranges=ranges, axes=axes)


def handwritten(name: str, module: str, network: str, shapes: Shapes, **options: Any) -> Recipe:
    """Return the recipe of the class `network` in `bench.zoo.beyond.<module>`, made with `options`.

    Its forward method takes the tensors of `shapes` by name and returns one tensor.
    """
    return _recipe(name, functools.partial(_handwritten, module, network, options), shapes, ("output",), ("torch",))


def _recipe(
    name: str,
    make: Callable[[], Any],
    shapes: Shapes,
    outputs: tuple[str, ...],
    needs: tuple[str, ...],
    ranges: Mapping[str, tuple[int, int]] | None = None,
    axes: OpenAxes | None = None,
) -> Recipe:
    module = functools.partial(_fitted, make, shapes, outputs)
    build = functools.partial(_export, module, shapes, axes)
    return Recipe(name, build, shapes, ranges=ranges or {}, needs=needs, module=module)


def _transformer(family: str, head: str, options: Mapping[str, Any]) -> Any:
    import transformers

    config = getattr(transformers, f"{family}Config")(**options)
    return getattr(transformers, f"{family}{head}")(config)


def _handwritten(module: str, network: str, options: Mapping[str, Any]) -> Any:
    return getattr(importlib.import_module(f"bench.zoo.beyond.{module}"), network)(**options)


def _fitted(make: Callable[[], Any], shapes: Shapes, outputs: tuple[str, ...]) -> Select:
    import torch

    from bench.zoo import export, weights

    torch.manual_seed(_SEED)
    model = make()
    weights.initialize(model)
    first = next(iter(shapes.values()))
    weights.calibrate(model, (8, *first[1:]))
    return export.Select(model, tuple(shapes), outputs)


def _export(module: Callable[[], Select], shapes: Shapes, axes: OpenAxes | None, path: Path) -> None:
    from bench.zoo import export

    export.write(module(), path, shapes, axes)
