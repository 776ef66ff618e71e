"""Activations, and those that other operators end with."""

from __future__ import annotations

from collections.abc import Sequence

from fusion.frontends.onnx.fused.body import Body, expands


@expands("BiasGelu")
def bias_gelu(body: Body) -> str:
    """gelu(x + bias)"""
    return body.op("Gelu", body.op("Add", body.x(0), body.x(1)))


@expands("FastGelu")
def fast_gelu(body: Body) -> str:
    """gelu(x + bias) in its form with a tanh; the bias may be missing"""
    x = body.op("Add", body.x(0), body.x(1)) if body.x(1) else body.x(0)
    return body.op("Gelu", x, approximate="tanh")


@expands("QuickGelu")
def quick_gelu(body: Body) -> str:
    """x * sigmoid(alpha * x)"""
    x, alpha = body.x(0), body.node.attr("alpha", 1.702)
    scaled = x if alpha == 1 else body.op("Mul", x, body.like(alpha))
    return body.op("Mul", x, body.op("Sigmoid", scaled))


# Names of the parameters of each activation that a fused operator may end with.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softsign": (),
    "Softplus": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


def activate(body: Body, x: str, parameters: Sequence[float]) -> str:
    """Return `x` after the activation that the node names, if it names one; `parameters` are in its own order."""
    name = body.node.attr("activation", "")
    if name in ("", "Identity"):
        return x
    if name == "Clip":
        low, high = (body.like(value) for value in parameters)
        return body.op("Clip", x, low, high)
    body.refuse(name not in _PARAMETERS, f"activation {name}")
    return body.op(name, x, **dict(zip(_PARAMETERS[name], parameters, strict=False)))
