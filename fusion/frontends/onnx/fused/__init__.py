"""Operators of ONNX Runtime's own, most of them several of ONNX's in one, and of old sets, as those that they stand
for."""

from fusion.frontends.onnx.fused.body import expand_fused, has_rule

__all__ = ["expand_fused", "has_rule"]
