"""Random streams of shapes for models of the zoo that leave dimensions open.

Every size is drawn for itself, log-uniform between its bounds, both included: each doubling is as likely as the next,
so that most texts are short and most batches small, as those that come to a server are, and some are the largest.
The same seed gives the same stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.streams.result import Shapes
from fusion.errors import OptionError

_BATCH = (1, 32)


@dataclass(frozen=True)
class StreamTemplate:
    """What the calls of a stream have in common.

    Attributes:
        sizes: The bounds of each size that is drawn.
        shapes: Input name to its extents, numbers and names of sizes.
        most: Of the product of the sizes of a call; sizes that are beyond are drawn again.
    """

    sizes: Mapping[str, tuple[int, int]]
    shapes: Mapping[str, tuple[int | str, ...]]
    most: float = math.inf

    def draw(self, rng: np.random.Generator) -> Shapes:
        """Return the shapes of one call."""
        drawn: dict[str, int] = {}
        while not drawn or math.prod(drawn.values()) > self.most:
            drawn = {name: _log_uniform(rng, *bounds) for name, bounds in self.sizes.items()}
        return {
            name: tuple(drawn[extent] if isinstance(extent, str) else extent for extent in shape)
            for name, shape in self.shapes.items()
        }


_TEXTS = StreamTemplate(
    {"batch": _BATCH, "length": (1, 512)},
    dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("batch", "length")),
)
_TEXTS_OF_SECONDS = replace(_TEXTS, most=4096)
"""For a model of which 1,000 tokens take a second and more: the few largest calls took as long as all others."""
TEMPLATES = {
    "bert_base_open": _TEXTS_OF_SECONDS,
    "minilm_open": _TEXTS,
    "ppocr_rec": StreamTemplate({"batch": _BATCH, "width": (32, 1600)}, {"x": ("batch", 3, 48, "width")}),
    "bert_tiny_open": _TEXTS,
}
"""By the name of a model in the zoo."""


def draw_stream(model: str, calls: int, seed: int) -> list[Shapes]:
    """Return the shapes of so many calls of the zoo's `model`.

    Raises:
        OptionError: There are no streams for this model, or `calls` is no number of calls.
    """
    if calls < 1:
        raise OptionError(f"a stream cannot have {calls} calls", hint="use 1 or more")
    if model not in TEMPLATES:
        raise OptionError(f"there are no streams for the model {model!r}", hint=f"one of {', '.join(TEMPLATES)}")
    rng = np.random.default_rng(seed)
    return [TEMPLATES[model].draw(rng) for _ in range(calls)]


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))
