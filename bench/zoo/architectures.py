"""Well-known architectures with random weights, built from `transformers` configurations: nothing is downloaded."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.zoo.model import Recipe

_SEED = 20
_LABELS = 1000
_NEEDS = ("torch", "transformers")
_VOCABULARY = 30522
_TOKENS = (1, 128)


def _config(kind: str, **options: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(**options)


def _build_classifier(family: str, side: int, options: Mapping[str, Any], path: Path) -> None:
    import torch
    import transformers

    from bench.zoo import export, weights

    torch.manual_seed(_SEED)
    config = _config(f"{family}Config", num_labels=_LABELS, **options)
    model = getattr(transformers, f"{family}ForImageClassification")(config)
    weights.initialize(model)
    weights.calibrate(model, (8, 3, side, side))
    export.write(model, path, {"pixel_values": torch.randn(1, 3, side, side)}, ("logits",))


def _build_encoder(layers: int, hidden: int, heads: int, path: Path) -> None:
    import torch
    import transformers

    from bench.zoo import export, weights

    torch.manual_seed(_SEED)
    config = _config(
        "BertConfig",
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=_VOCABULARY,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config)
    weights.initialize(model)
    export.write(model, path, export.token_arguments(_TOKENS), ("last_hidden_state", "pooler_output"))


def _classifier(name: str, family: str, side: int = 224, **options: Any) -> Recipe:
    build = functools.partial(_build_classifier, family, side, options)
    return Recipe(name, build, {"pixel_values": (1, 3, side, side)}, needs=_NEEDS)


def _encoder(name: str, layers: int, hidden: int, heads: int) -> Recipe:
    return Recipe(
        name,
        functools.partial(_build_encoder, layers, hidden, heads),
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), _TOKENS),
        ranges={"input_ids": (0, _VOCABULARY)},
        needs=_NEEDS,
    )


RECIPES = (
    _classifier("resnet50", "ResNet"),
    _classifier("mobilenet_v2", "MobileNetV2"),
    _encoder("bert_tiny", layers=2, hidden=128, heads=2),
    _encoder("bert_base", layers=12, hidden=768, heads=12),
    _classifier(
        "vit_s",
        "ViT",
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        attn_implementation="eager",
    ),
    _classifier("mobilevit_s", "MobileViT", side=256),
    # The published start value of the layer scale, 1e-6, would hide every block behind its residual.
    _classifier("convnext_t", "ConvNext", layer_scale_init_value=0.5),
)
