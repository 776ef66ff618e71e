"""A kernel that a library runs, as plain data that code files keep; no compiler is needed to read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from backends.cuda.libraries.cublaslt.product import NAME as CUBLASLT
from backends.cuda.libraries.cublaslt.product import read_product
from backends.cuda.libraries.cudnn.convolution import NAME as CUDNN
from backends.cuda.libraries.cudnn.convolution import read_convolution


class LibraryWork(Protocol):
    """What a library computes: a dataclass of its own for each, of numbers and text; `str` of it is for reports.

    Attributes:
        library: Its name, in the registry and in code files.
        multiplied: The operands that tensor cores multiply; "" where there are none.
        tensors: How many it reads and writes.
        result: Which of them it writes.
    """

    @property
    def library(self) -> str: ...

    @property
    def multiplied(self) -> str: ...

    @property
    def tensors(self) -> int: ...

    @property
    def result(self) -> int: ...


_READERS: Mapping[str, Callable[[Mapping[str, Any]], LibraryWork]] = {CUBLASLT: read_product, CUDNN: read_convolution}


@dataclass(frozen=True)
class DeviceLibraryCall:
    """What a library computes, and where its tensors are.

    Attributes:
        arguments: Positions of them among a PrimFunc's parameters, in the order of the library's folder.
    """

    work: LibraryWork
    arguments: tuple[int, ...]

    def fields(self) -> dict[str, Any]:
        """Return what a file keeps of it."""
        held: Any = self.work
        return {"library": self.work.library, "work": asdict(held), "arguments": list(self.arguments)}


def read_call(fields: Mapping[str, Any]) -> DeviceLibraryCall:
    """Return the call that `DeviceLibraryCall.fields` returned these of.

    Raises:
        ValueError: They are of none, or of a library that is not known.
    """
    library = fields.get("library", CUBLASLT)  # the only one in files from before there were several
    if library not in _READERS:
        raise ValueError(f"its kernels are run by {library!r}, which is not known here")
    work = _READERS[library](fields["work"] if "work" in fields else fields["product"])
    call = DeviceLibraryCall(work, tuple(map(int, fields["arguments"])))
    if len(call.arguments) != work.tensors:
        raise ValueError(f"{library} has not {len(call.arguments)} tensors for {work}")
    return call
