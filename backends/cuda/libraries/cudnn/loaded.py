"""A convolution on a device: the plan of its execution, made once, and a run of it."""

from __future__ import annotations

from collections.abc import Sequence

from backends.cuda.libraries.cudnn.api import FALLBACK, NOTES, RANKED, CuDnn, Descriptors, opened
from backends.cuda.libraries.cudnn.convolution import LibraryConvolution
from backends.cuda.libraries.cudnn.graph import ids_of, write_graph
from backends.cuda.libraries.sums import MOST_WORKSPACE_BYTES
from backends.cuda.runtime.device import OpenDevice
from fusion.errors import TargetError

_MOST_ENGINES = 64
"""That are looked at; 9.28.1 proposes at most 40."""
_MOST_NOTES = 16
"""Of an engine; there are 10."""
_REFUSED = {
    NOTES[name]
    for name in ("DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT", "NONDETERMINISTIC", "WINOGRAD")
}
"""What engines must not do: operands are what they are (`tfloat32` is asked for, and is a tensor core's own), sums are
float32, and neither transforms lose digits nor runs differ."""


class LoadedConvolution:
    """A convolution that can be run, by one thread at a time.

    Attributes:
        workspace_bytes: That a run needs.
    """

    def __init__(self, device: OpenDevice, convolution: LibraryConvolution) -> None:
        """Make the graph, and take the first engine that suits of those that the library ranks, or falls back on.

        Raises:
            NotInstalledError: The library is not there.
            TargetError: It has no engine for the convolution on this device.
        """
        self._library, self._ids = opened.of(device), ids_of(convolution)
        self._descriptors = Descriptors(self._library)
        with device.current():
            graph = write_graph(self._library, self._descriptors, convolution)
            found = choose_plan(self._library, self._descriptors, graph)
            if found is None:
                raise TargetError(
                    "cuDNN has no engine for a convolution",
                    where=str(convolution),
                    why=f"none that it proposes on {device.found} suits",
                    hint=self._library.api.without,
                )
        self._plan, self.workspace_bytes = found

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Have a stream compute it; the context is current.

        Args:
            addresses: Of the images, the weights, the result, and the bias and the residual where there are any.
            workspace: Where `workspace_bytes` are.

        Raises:
            FusionError: The library refuses it.
        """
        library, pack = self._library, Descriptors(self._library)
        given = pack.make(
            "VARIANT_PACK",
            VARIANT_PACK_UNIQUE_IDS=self._ids,
            VARIANT_PACK_DATA_POINTERS=addresses,
            VARIANT_PACK_WORKSPACE=[workspace],
        )
        with library.running:
            library.call("cudnnSetStream", library.handle, stream)
            library.call("cudnnBackendExecute", library.handle, self._plan, given)


def choose_plan(
    library: CuDnn, descriptors: Descriptors, graph: int, modes: Sequence[int] = (RANKED, FALLBACK)
) -> tuple[int, int] | None:
    """Return the plan of the first engine that suits, and the bytes that it works in; None where none does.

    Args:
        modes: In which the heuristic is asked, in order.

    Raises:
        FusionError: The library fails.
    """
    for mode in modes:
        ranked = descriptors.make("ENGINEHEUR", ENGINEHEUR_OPERATION_GRAPH=[graph], ENGINEHEUR_MODE=[mode])
        for engine in descriptors.get(ranked, "ENGINEHEUR_RESULTS", _MOST_ENGINES, "ENGINECFG"):
            (of,) = descriptors.get(engine, "ENGINECFG_ENGINE", 1, "ENGINE")
            if _REFUSED.intersection(descriptors.get(of, "ENGINE_NUMERICAL_NOTE", _MOST_NOTES)):
                continue
            plan = descriptors.make_if_supported(
                "EXECUTION_PLAN", EXECUTION_PLAN_HANDLE=[library.handle], EXECUTION_PLAN_ENGINE_CONFIG=[engine]
            )
            if plan is None:
                continue
            (size,) = descriptors.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", 1)
            if size <= MOST_WORKSPACE_BYTES:
                return plan, int(size)
    return None
