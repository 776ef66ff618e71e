"""RapidOCR's pipeline (detection, angle, recognition) with its three networks replaced.

Its pre- and post-processing is used as it is: https://github.com/RapidAI/RapidOCR
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rapidocr_onnxruntime import RapidOCR

from bench import zoo

Network = Callable[[np.ndarray], np.ndarray]
# Stage -> the zoo's name of its network, in the order in which the pipeline runs them.
NETWORKS = {"detection": "ppocr_det", "angle": "ppocr_cls", "recognition": "ppocr_rec"}
# Lines are padded to a multiple of this width, with the zeros that RapidOCR itself pads with, so that few shapes occur.
_WIDTH_STEP = 64


@dataclass(frozen=True)
class TextLine:
    """One line of text that was found.

    Attributes:
        text: As recognised.
        score: Mean probability of its characters.
    """

    text: str
    score: float


class Reader:
    """The pipeline over three networks.

    Args:
        make: Makes the function that runs the ONNX file at a path; it is called with several shapes.
    """

    def __init__(self, make: Callable[[Path], Network]) -> None:
        self.paths = {stage: zoo.make(name).path for stage, name in NETWORKS.items()}
        self.inputs: dict[str, np.ndarray] = {}
        networks = {stage: make(path) for stage, path in self.paths.items()}
        self._pipeline = RapidOCR()
        self._pipeline.text_det.infer = self._session("detection", networks)
        self._pipeline.text_cls.infer = self._session("angle", networks)
        self._pipeline.text_rec.session = self._session("recognition", networks)

    def read(self, image: np.ndarray) -> list[TextLine]:
        """Return the lines of text in `image`, uint8 of shape (height, width, 3), from top to bottom.

        The last array each network was given is in `inputs` afterwards.
        """
        found, _ = self._pipeline(image)
        return [TextLine(text, float(score)) for _, text, score in found or ()]

    def _session(self, stage: str, networks: dict[str, Network]) -> Callable[[np.ndarray], list[np.ndarray]]:
        def run(data: np.ndarray) -> list[np.ndarray]:
            padded = _pad_width(data) if stage == "recognition" else data
            self.inputs[stage] = padded
            return [networks[stage](padded)]

        return run


def _pad_width(lines: np.ndarray) -> np.ndarray:
    missing = -lines.shape[3] % _WIDTH_STEP
    return np.pad(lines, [(0, 0), (0, 0), (0, 0), (0, missing)])
