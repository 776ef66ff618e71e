"""Well-known architectures with random weights, built from `transformers` configurations: nothing is downloaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.zoo.model import Recipe, Shapes

if TYPE_CHECKING:
    from bench.zoo.export import Select

_SEED = 20
_LABELS = 1000
_NEEDS = ("torch", "transformers")
_VOCABULARY = 30522
_TOKENS = (1, 128)
_ENCODER_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _config(kind: str, **options: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(**options)


def _classifier_module(family: str, side: int, options: Mapping[str, Any]) -> Select:
    import torch
    import transformers

    from bench.zoo import export, weights

    torch.manual_seed(_SEED)
    config = _config(f"{family}Config", num_labels=_LABELS, **options)
    model = getattr(transformers, f"{family}ForImageClassification")(config)
    weights.initialize(model)
    weights.calibrate(model, (8, 3, side, side))
    return export.Select(model, ("pixel_values",), ("logits",))


def _encoder_module(layers: int, hidden: int, heads: int) -> Select:
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
    return export.Select(model, _ENCODER_INPUTS, ("last_hidden_state", "pooler_output"))


def _export(module: Callable[[], Select], shapes: Shapes, path: Path) -> None:
    from bench.zoo import export

    export.write(module(), path, shapes)


def _classifier(name: str, family: str, side: int = 224, **options: Any) -> Recipe:
    module = functools.partial(_classifier_module, family, side, options)
    return _recipe(name, module, {"pixel_values": (1, 3, side, side)})


def _encoder(name: str, layers: int, hidden: int, heads: int) -> Recipe:
    return _recipe(
        name,
        functools.partial(_encoder_module, layers, hidden, heads),
        dict.fromkeys(_ENCODER_INPUTS, _TOKENS),
        ranges={"input_ids": (0, _VOCABULARY)},
    )


def _recipe(name: str, module: Callable[[], Select], shapes: Shapes, **options: Any) -> Recipe:
    return Recipe(name, functools.partial(_export, module, shapes), shapes, needs=_NEEDS, module=module, **options)


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
