"""Architectures of `transformers`, from configurations: convolutions, windows, patches, tokens and sound."""

from __future__ import annotations

from typing import Any

from bench.zoo.architectures import classifier
from bench.zoo.from_torch import configured
from bench.zoo.model import Recipe

# The published start values of layer scales, down to 1e-6, would hide every block behind its residual.
_LAYER_SCALE = 0.5
_SMALL: dict[str, Any] = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
_STATE = ("last_hidden_state",)


def _vision(name: str, family: str, side: int, **options: Any) -> Recipe:
    return configured(name, family, "Model", {"pixel_values": (1, 3, side, side)}, _STATE, **options)


def _text(name: str, family: str, tokens: int, head: str = "Model", **options: Any) -> Recipe:
    return configured(name, family, head, {"input_ids": (1, tokens)}, _STATE, **options)


RECIPES = (
    classifier("resnet18", "ResNet", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"),
    classifier("regnet_y_800mf", "RegNet", hidden_sizes=[64, 144, 320, 784], depths=[1, 3, 8, 2], groups_width=16),
    classifier("mobilenet_v1", "MobileNetV1"),
    classifier("convnextv2_atto", "ConvNextV2", hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 6, 2]),
    classifier("poolformer_s12", "PoolFormer", layer_scale_init_value=_LAYER_SCALE),
    classifier("swin_t", "Swin"),
    classifier("dinov2_s6", "Dinov2", image_size=224, num_hidden_layers=6, **_SMALL),
    classifier("levit_128s", "Levit"),
    classifier("cvt_13", "Cvt"),
    _vision("clip_vision", "CLIPVision", 224, num_hidden_layers=4, patch_size=16, **_SMALL),
    _vision(
        "yolos_tiny",
        "Yolos",
        256,
        image_size=[256, 256],
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
    ),
    configured(
        "segformer_b0",
        "Segformer",
        "ForSemanticSegmentation",
        {"pixel_values": (1, 3, 256, 256)},
        ("logits",),
        num_labels=19,
    ),
    _text(
        "albert",
        "Albert",
        64,
        vocab_size=30000,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        num_hidden_layers=4,
    ),
    _text("distilbert", "DistilBert", 128, vocab_size=30522, n_layers=6),
    _text("t5_encoder", "T5", 128, "EncoderModel", vocab_size=32128, num_layers=4),
    _text(
        "deberta_v2_s",
        "DebertaV2",
        64,
        vocab_size=10000,
        num_hidden_layers=4,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        **_SMALL,
    ),
    _text("mobilebert", "MobileBert", 128, vocab_size=5000, num_hidden_layers=6),
    configured("wav2vec2", "Wav2Vec2", "Model", {"input_values": (1, 16000)}, _STATE, num_hidden_layers=3),
)
