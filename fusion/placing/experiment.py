"""What the worker of placements measures: saved modules that compute the same, or kernels of one beside libraries."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModuleExperiment:
    """Saved modules of one model.

    Attributes:
        modules: Paths; the first is that which others have to beat, and to agree with.
        seconds: To measure for.
        tolerance: By how much results may differ from the first's, as a share of the largest of those.
    """

    modules: tuple[str, ...]
    seconds: float
    tolerance: float

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class LibraryPart:
    """What a library runs in place of a kernel.

    Attributes:
        candidate: The number of the library in each trial of it.
        library: Its name.
        path: Of what it exported.
    """

    candidate: int
    library: str
    path: str


@dataclass(frozen=True)
class AloneKernel:
    """A kernel by itself.

    Attributes:
        inputs, outputs: Positions of the first of its inputs and results among those of the module, and how many.
        calls: Positions of its calls among the calls of kernels.
        parts: What libraries run in its place.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    calls: tuple[int, ...]
    parts: tuple[LibraryPart, ...]


@dataclass(frozen=True)
class KernelExperiment:
    """Kernels that a saved module calls, none of which reads what another makes.

    Attributes:
        module: Its path.
        kernels: In the order in which they are measured, as far as there is time.
        threads: For libraries.
        seconds: To measure for, opening parts included.
        tolerance: As of a `ModuleExperiment`.
    """

    module: str
    kernels: tuple[AloneKernel, ...]
    threads: int
    seconds: float
    tolerance: float

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


def read_experiment(path: Path) -> ModuleExperiment | KernelExperiment:
    """Return what `write` of one wrote."""
    fields = json.loads(path.read_text())
    if "modules" in fields:
        return ModuleExperiment(tuple(fields["modules"]), fields["seconds"], fields["tolerance"])
    kernels = tuple(
        AloneKernel(
            tuple(each["inputs"]), tuple(each["outputs"]), tuple(each["calls"]),
            tuple(LibraryPart(**part) for part in each["parts"]),
        )
        for each in fields.pop("kernels")
    )  # fmt: skip
    return KernelExperiment(**fields, kernels=kernels)
