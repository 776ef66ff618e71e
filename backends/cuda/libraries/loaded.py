"""What libraries run, on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from backends.cuda.libraries.call import LibraryWork
from backends.cuda.libraries.cublaslt.loaded import LoadedProduct
from backends.cuda.libraries.cublaslt.product import NAME as CUBLASLT
from backends.cuda.libraries.cudnn.convolution import NAME as CUDNN
from backends.cuda.libraries.cudnn.loaded import LoadedConvolution
from backends.cuda.runtime.device import OpenDevice


class LoadedWork(Protocol):
    """Work that can be run, by one thread at a time.

    Attributes:
        workspace_bytes: That a run needs.
    """

    @property
    def workspace_bytes(self) -> int: ...

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Have a stream compute it; the context is current.

        Args:
            addresses: Of its tensors.
            workspace: Where `workspace_bytes` are.

        Raises:
            FusionError: The library refuses it.
        """


_LOADED: Mapping[str, Callable[[OpenDevice, Any], LoadedWork]] = {CUBLASLT: LoadedProduct, CUDNN: LoadedConvolution}


def load_work(device: OpenDevice, work: LibraryWork) -> LoadedWork:
    """Return work as its library loads it.

    Raises:
        NotInstalledError: The library is not there.
        TargetError: It has nothing that does the work on this device.
    """
    return _LOADED[work.library](device, work)
