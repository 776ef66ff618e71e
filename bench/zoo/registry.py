"""The list of zoo models and the function that makes one."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from bench import cache, inputs
from bench.zoo import architectures, light, open_batch, scale, trained
from bench.zoo.beyond import configurations, networks
from bench.zoo.model import Recipe, ZooModel
from fusion.errors import OptionError

# Part of the folder's name: raise it when a recipe changes, so that nobody measures an old file.
VERSION = 1
ZOO, BEYOND, OPEN, BATCH, RELATED = "zoo", "beyond", "open", "batch", "related"
_FIRST = (*architectures.RECIPES, *light.RECIPES, *trained.RECIPES)
_SECOND = (*configurations.RECIPES, *networks.RECIPES)
# What the project is judged and tuned on, what it has not met, files of the first with all dimensions of texts left
# open, files of both with the batch left open, and what records of the first are tried on.
SETS = {
    ZOO: _FIRST,
    BEYOND: _SECOND,
    OPEN: (*architectures.OPEN_RECIPES, *trained.OPEN_RECIPES),
    BATCH: tuple(map(open_batch.open_batch, (*_FIRST, *_SECOND))),
    RELATED: architectures.RELATED_RECIPES,
}
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipes in SETS.values() for recipe in recipes}


def names(which: str = ZOO) -> list[str]:
    """Return the names of all models of the set `which`: ZOO, BEYOND, OPEN, BATCH or RELATED."""
    return [recipe.name for recipe in SETS[which]]


def available(which: str = ZOO) -> list[str]:
    """Return the names of the models of the set `which` whose packages are installed here."""
    return [recipe.name for recipe in SETS[which] if not _missing(recipe)]


def make(name: str, folder: str | os.PathLike[str] | None = None) -> ZooModel:
    """Return the model `name`, making its file in the cache folder first where it is not there yet.

    Args:
        name: One of `names(which)`.
        folder: Cache folder to use in place of the default.

    Raises:
        OptionError: The name is unknown, or a package the recipe needs is not installed.
        AssertionError: The made model's outputs are not finite, not of unit scale, or do not depend on its inputs.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        raise OptionError(f"the zoo has no model {name!r}", hint=f"one of {', '.join(RECIPES)}")
    path = cache.folder(folder) / f"zoo-v{VERSION}" / f"{name}.onnx"
    if not path.exists():
        _build(recipe, path)
    return _model(recipe, path)


def _model(recipe: Recipe, path: Path) -> ZooModel:
    return ZooModel(recipe, path, inputs.read_specs(path, recipe.shapes, recipe.ranges))


def _missing(recipe: Recipe) -> list[str]:
    return [package for package in recipe.needs if importlib.util.find_spec(package) is None]


def _build(recipe: Recipe, path: Path) -> None:
    missing = _missing(recipe)
    if missing:
        packages = ", ".join(missing)
        raise OptionError(f"the zoo model {recipe.name!r} needs {packages}", hint="pip install 'fusion[bench]'")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        unfinished = Path(scratch) / path.name
        recipe.build(unfinished)
        scale.check(_model(recipe, unfinished))
        unfinished.replace(path)
