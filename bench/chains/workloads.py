"""The chains that are measured."""

from __future__ import annotations

from collections.abc import Iterator

from bench.chains.draw import Drawing, DrawnChain

# Chimera's table IV: batch, M, N, K, L of [M, K] x [K, L] x [L, N].
_GEMMS = [
    (8, 512, 64, 64, 512), (12, 512, 64, 64, 512), (16, 512, 64, 64, 512), (12, 256, 64, 64, 256),
    (16, 256, 64, 64, 256), (16, 256, 80, 80, 256), (12, 208, 64, 64, 208), (16, 208, 64, 64, 208),
    (16, 208, 80, 80, 208), (1, 512, 64, 64, 256), (1, 768, 64, 64, 384), (1, 1024, 64, 64, 512),
]  # fmt: skip
# Its table V: channels, image, channels of both results, strides, kernels.
_CONVS = [
    (64, 112, 192, 128, 2, 1, 3, 1), (32, 147, 64, 80, 2, 1, 3, 1), (64, 56, 128, 64, 1, 1, 3, 1),
    (128, 28, 256, 128, 1, 1, 3, 1), (16, 227, 64, 16, 4, 1, 3, 1), (64, 56, 64, 64, 1, 1, 1, 3),
    (64, 56, 64, 64, 1, 1, 1, 1), (256, 56, 256, 64, 1, 1, 1, 1),
]  # fmt: skip
# First layers of detectors and classifiers, in the same form.
_STEMS = [
    (3, 640, 16, 32, 2, 2, 3, 3), (3, 416, 32, 64, 1, 2, 3, 3), (3, 320, 16, 32, 2, 2, 3, 3),
    (3, 224, 32, 64, 2, 2, 3, 3), (3, 224, 32, 16, 2, 1, 3, 1),
]  # fmt: skip
# Rows, width, hidden width and what stands between.
_MLPS = {
    "bert_tiny": (128, 128, 512, "gelu"),
    "bert_base": (128, 768, 3072, "gelu"),
    "vit_s": (197, 384, 1536, "gelu"),
    "vit_b": (197, 768, 3072, "gelu"),
    "convnext_t 56": (3136, 96, 384, "gelu"),
    "convnext_t 28": (784, 192, 768, "gelu"),
    "convnext_t 14": (196, 384, 1536, "gelu"),
    "convnext_t 7": (49, 768, 3072, "gelu"),
    "mobilevit_s 32": (1024, 144, 288, "silu"),
    "mobilevit_s 16": (256, 192, 384, "silu"),
    "mobilevit_s 8": (64, 240, 480, "silu"),
}
# Image, channels in, expanded and out, stride.
_RESIDUALS = [
    (112, 16, 96, 24, 2), (56, 24, 144, 24, 1), (56, 24, 144, 32, 2), (28, 32, 192, 32, 1), (28, 32, 192, 64, 2),
    (14, 64, 384, 64, 1), (14, 64, 384, 96, 1), (14, 96, 576, 96, 1), (14, 96, 576, 160, 2), (7, 160, 960, 160, 1),
    (7, 160, 960, 320, 1),
]  # fmt: skip


def chains() -> Iterator[DrawnChain]:
    """Yield every chain, those of one family together."""
    for softmax in (False, True):
        for number, sizes in enumerate(_GEMMS, 1):
            yield gemms(f"G{number}", sizes, softmax)
    for relu in (False, True):
        for number, layers in enumerate(_CONVS, 1):
            yield convs(f"C{number}", layers, relu)
    for number, layers in enumerate(_STEMS, 1):
        yield convs(f"S{number}", layers, relu=True)
    for name, (rows, width, hidden, between) in _MLPS.items():
        yield mlp(name, rows, width, hidden, between)
    for block in _RESIDUALS:
        yield inverted_residual(*block)


def gemms(name: str, sizes: tuple[int, ...], softmax: bool) -> DrawnChain:
    """Two products of batches, all three operands of which are inputs."""
    batch, rows, channels, depth, keys = sizes
    drawing = Drawing()
    lead = () if batch == 1 else (batch,)
    first = drawing.matmul(drawing.input(*lead, rows, depth), drawing.input(*lead, depth, keys))
    middle = drawing.softmax(first) if softmax else first
    result = drawing.matmul(middle, drawing.input(*lead, keys, channels))
    between, family = (" softmax", "gemm-softmax") if softmax else ("", "gemm")
    return drawing.finish(f"{name} {batch}x{rows}x{depth} x{keys} x{channels}{between}", family, result)


def convs(name: str, sizes: tuple[int, ...], relu: bool) -> DrawnChain:
    """Two convolutions."""
    depth, image, middle, channels, stride, second_stride, kernel, second_kernel = sizes
    drawing = Drawing()
    first = drawing.conv(drawing.input(1, depth, image, image), middle, kernel, stride)
    between = drawing.elementwise("Relu", first) if relu else first
    result = drawing.conv(between, channels, second_kernel, second_stride)
    shape = f"{depth}x{image}x{image} {middle} {kernel}x{kernel}/{stride} {channels} {second_kernel}x{second_kernel}"
    return drawing.finish(f"{name} {shape}{' relu' if relu else ''}", "conv-relu" if relu else "conv", result)


def mlp(name: str, rows: int, width: int, hidden: int, between: str) -> DrawnChain:
    """Two matmuls with weights and biases."""
    drawing = Drawing()
    expanded = drawing.linear(drawing.input(rows, width), hidden)
    middle = drawing.gelu(expanded) if between == "gelu" else drawing.silu(expanded)
    return drawing.finish(f"MLP {name} {rows}x{width} x{hidden} {between}", "mlp", drawing.linear(middle, width))


def inverted_residual(image: int, channels: int, expanded: int, result: int, stride: int) -> DrawnChain:
    """Expansion, 3x3 depthwise convolution and projection, with the residual where MobileNetV2 has one.

    A 3x3 convolution makes the input of an image of three channels, so that activations lie as inside a network.
    """
    drawing = Drawing()
    x = drawing.conv(drawing.input(1, 3, image, image), channels, 3)
    wide = drawing.relu6(drawing.conv(x, expanded, 1))
    moved = drawing.relu6(drawing.conv(wide, expanded, 3, stride, groups=expanded))
    y = drawing.conv(moved, result, 1)
    if stride == 1 and channels == result:
        y = drawing.elementwise("Add", y, x)
    return drawing.finish(f"residual {image}x{image}x{channels} {expanded}/{stride} {result}", "residual", y)
