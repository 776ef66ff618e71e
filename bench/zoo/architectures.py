"""Well-known architectures with random weights, built from `transformers` configurations: nothing is downloaded."""

from __future__ import annotations

import functools
from typing import Any

from bench.zoo.from_torch import configured
from bench.zoo.model import OpenAxes, Recipe

_LABELS = 1000
_VOCABULARY = 30522
_TOKENS = (1, 128)
ENCODER_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPEN_TOKENS: OpenAxes = {name: {0: "batch", 1: "length"} for name in (*ENCODER_INPUTS, "last_hidden_state")}
"""The axes of an encoder for any number of texts of any length."""


def classifier(name: str, family: str, side: int = 224, **options: Any) -> Recipe:
    """Return the recipe of an image classifier for squares of `side` pixels, with a thousand classes."""
    shapes = {"pixel_values": (1, 3, side, side)}
    return configured(name, family, "ForImageClassification", shapes, ("logits",), num_labels=_LABELS, **options)


def _encoder(name: str, layers: int, hidden: int, heads: int, axes: OpenAxes | None = None) -> Recipe:
    return configured(
        name,
        "Bert",
        "Model",
        dict.fromkeys(ENCODER_INPUTS, _TOKENS),
        ("last_hidden_state", "pooler_output"),
        axes=axes,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=_VOCABULARY,
        attn_implementation="eager",
    )


_bert_tiny = functools.partial(_encoder, layers=2, hidden=128, heads=2)
_bert_base = functools.partial(_encoder, layers=12, hidden=768, heads=12)

RECIPES = (
    classifier("resnet50", "ResNet"),
    classifier("mobilenet_v2", "MobileNetV2"),
    _bert_tiny("bert_tiny"),
    _bert_base("bert_base"),
    classifier(
        "vit_s",
        "ViT",
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        attn_implementation="eager",
    ),
    classifier("mobilevit_s", "MobileViT", side=256),
    # The published start value of the layer scale, 1e-6, would hide every block behind its residual.
    classifier("convnext_t", "ConvNext", layer_scale_init_value=0.5),
)

RELATED_RECIPES = (classifier("resnet101", "ResNet", depths=[3, 4, 23, 3]),)
"""What records of ResNet-50 are tried on."""

_OPEN_ENCODER: OpenAxes = {**OPEN_TOKENS, "pooler_output": {0: "batch"}}
OPEN_RECIPES = (
    _bert_tiny("bert_tiny_open", axes=_OPEN_ENCODER),
    _bert_base("bert_base_open", axes=_OPEN_ENCODER),
)
"""The same networks with the same weights, in files for any number of texts of any length."""
