"""torch.compile with frozen weights, on the torch module that a zoo model was exported from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch._inductor import config

from bench.inputs import draw, read_specs
from bench.peers.engine import Arrays, Engine, Job, Runner, UnsupportedModelError
from bench.zoo.registry import RECIPES


class Inductor:
    """`torch.compile` under `torch.inference_mode`, freezing on."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Make the torch module that the ONNX file was exported from, and compile it by a first call.

        Raises:
            UnsupportedModelError: The model is not one that the zoo makes from torch.
        """
        recipe = RECIPES.get(job.zoo_name)
        if recipe is None or recipe.module is None:
            raise UnsupportedModelError("torch.compile takes torch modules, and this model exists only as ONNX")
        torch.set_num_threads(job.threads)
        config.freezing = True
        module = recipe.module()
        compiled = torch.compile(module)

        def run(inputs: Arrays) -> Arrays:
            with torch.inference_mode():
                results = compiled(*(torch.from_numpy(inputs[name]) for name in module.inputs))
            return {name: value.numpy() for name, value in zip(module.outputs, results, strict=True)}

        run(draw(read_specs(job.path, job.shapes), seed=0))
        return run


ENGINE: Engine = Inductor()
