"""torch.compile with frozen weights, on the torch module that a zoo model was exported from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch._inductor import config

from bench.peers.engine import Arrays, Engine, Job, Runner, UnsupportedModelError
from bench.zoo.registry import RECIPES


class Inductor:
    """`torch.compile` under `torch.inference_mode`, freezing on."""


    def load(self, job: Job, folder: Path) -> Runner:
        """Make the torch module that the ONNX file was exported from; its first call compiles it.

        Raises:
            UnsupportedModelError: The model is not one that the zoo makes from torch.
        """
        recipe = RECIPES.get(job.zoo_name)
        if recipe is None or recipe.module is None:
            raise UnsupportedModelError("torch.compile runs torch modules, and this model exists only as ONNX")
        torch.set_num_threads(job.threads)
        config.freezing = True
        module = recipe.module()
        compiled = torch.compile(module)

        def run(inputs: Arrays) -> Arrays:
            with torch.inference_mode():
                results = compiled(*(torch.from_numpy(inputs[name]) for name in module.inputs))
            return {name: value.numpy() for name, value in zip(module.outputs, results, strict=True)}

        return run


ENGINE: Engine = Inductor()
