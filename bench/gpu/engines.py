"""The engines of a device: fusion's own kernels, also with cuBLASLt and cuDNN, and torch's, at their best settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import fusion
from bench.gpu.subjects import Made, Subject

OURS, OURS_LIBRARIES, EAGER, MAX_AUTOTUNE = "fusion", "fusion-libraries", "torch-eager", "torch-max-autotune"
_WARM_CALLS = 3
Tensors = Sequence[Any]
Call = Callable[[], Tensors]
"""Has the device compute the outputs of the inputs that it was made for; nobody waits."""


class DeviceEngine(Protocol):
    """Loads a subject."""

    def __call__(self, subject: Subject, made: Made, inputs: Tensors) -> Call:
        """Return what runs it on these tensors of torch, which are on the device."""
        ...


def _ours(backends: Sequence[str] | None) -> DeviceEngine:
    def load(subject: Subject, made: Made, inputs: Tensors) -> Call:
        import torch

        module = compile_ours(made, "cuda", backends)

        def run() -> Tensors:
            return module(*inputs, stream=torch.cuda.current_stream())

        return run

    return load


def compile_ours(made: Made, target: str, backends: Sequence[str] | None = None) -> fusion.CompiledModule:
    """Return the module for a target, without a cache and without what was measured before."""
    import torch

    given = tuple(torch.from_numpy(each) for each in made.draw(0))
    exported = torch.export.export(made.module, given)
    named = None if backends is None else list(backends)
    return fusion.compile(exported, target=target, backends=named, cache=False, database=False, wait=True)


def _eager(subject: Subject, made: Made, inputs: Tensors) -> Call:
    """Capture the module's own kernels, cuBLAS's and cuDNN's among them, as a CUDA graph."""
    import torch

    module = made.module.cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.inference_mode():
        for _ in range(_WARM_CALLS):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        outputs = listed(module(*inputs))

    def run() -> Tensors:
        graph.replay()
        return outputs

    return run


def _max_autotune(subject: Subject, made: Made, inputs: Tensors) -> Call:
    """Compile with all of Inductor's searches, weights frozen; it makes CUDA graphs itself."""
    import torch
    from torch._inductor import config

    config.freezing = True
    compiled = torch.compile(made.module.cuda(), mode="max-autotune")

    def run() -> Tensors:
        with torch.inference_mode():
            return listed(compiled(*inputs))

    for _ in range(_WARM_CALLS):
        run()
    return run


def listed(outputs: Any) -> Tensors:
    """Return what a module of torch returns as a list, one result too."""
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


ENGINES: dict[str, DeviceEngine] = {
    OURS: _ours(None), OURS_LIBRARIES: _ours(("cublaslt", "cudnn", "cpu")), EAGER: _eager, MAX_AUTOTUNE: _max_autotune,
}  # fmt: skip
"""By name."""
