"""A product on a device: its descriptors and algorithm, made once, and a run of it.

cuBLASLt has matrices by columns, where a result by rows is the transposed one: it is given `result' = right' x left'`.
The right operand is its A, whose rows are our columns, and a bias of each of its rows is one of each of our columns.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

from backends.cuda.libraries.cublaslt.api import (
    ALIGNMENTS,
    BATCH_COUNT,
    BATCH_STEP,
    BIAS_POINTER,
    COMPUTE_32F,
    COMPUTE_32F_FAST_TF32,
    EPILOGUE,
    EPILOGUE_BIAS,
    EPILOGUE_GELU,
    EPILOGUE_NONE,
    EPILOGUE_RELU,
    MOST_WORKSPACE,
    REAL,
    TRANSA,
    TRANSB,
    Heuristic,
    opened,
)
from backends.cuda.libraries.cublaslt.product import LibraryProduct, OperandLayout
from backends.cuda.libraries.sums import MOST_WORKSPACE_BYTES
from backends.cuda.runtime.device import OpenDevice
from fusion.errors import TargetError

_ALIGNMENT = 16
"""Bytes at a multiple of which callers' tensors begin at least: the library takes 256 for granted unless told."""


@dataclass(frozen=True)
class _Matrix:
    """A matrix as the library has it, by columns.

    Attributes:
        rows: Neighbours in memory.
        step: Elements between columns; `batch_step` between matrices.
        kind: Its cudaDataType_t.
    """

    rows: int
    columns: int
    step: int
    batch_step: int
    kind: int


class LoadedProduct:
    """A product that can be run, by one thread at a time.

    Attributes:
        workspace_bytes: That a run needs.
    """

    def __init__(self, device: OpenDevice, product: LibraryProduct) -> None:
        """Make the descriptors, and take the first algorithm that the library proposes.

        Raises:
            NotInstalledError: The library is not there.
            TargetError: It has no algorithm for the product on this device.
        """
        self._device, self._library = device, opened.of(device)
        self._product = product
        self._one, self._zero = c_float(1.0), c_float(0.0)
        with device.current():
            self._operation = self._make_operation()
            self._right, self._left, self._result = (self._make_layout(each) for each in _matrices(product))
            found = self._choose()
        self._algorithm, self.workspace_bytes = found.algorithm, int(found.workspace_bytes)

    def _make_operation(self) -> int:
        product, library = self._product, self._library
        compute = COMPUTE_32F_FAST_TF32 if product.tfloat32 else COMPUTE_32F
        made = library.make("cublasLtMatmulDescCreate", compute, REAL["float32"])
        weakref.finalize(self, library.discard, "cublasLtMatmulDescDestroy", made).atexit = False
        for attribute, value in (
            (TRANSA, c_int32(product.right.by_depth)),
            (TRANSB, c_int32(not product.left.by_depth)),
            (EPILOGUE, c_uint32(_epilogue(product))),
            # A heuristic reads of the pointer how the bias is aligned.
            *([(BIAS_POINTER, c_void_p(_ALIGNMENT))] if product.has_bias else []),
        ):
            library.set("cublasLtMatmulDescSetAttribute", made, attribute, value)
        return made

    def _make_layout(self, matrix: _Matrix) -> int:
        library = self._library
        made = library.make("cublasLtMatrixLayoutCreate", matrix.kind, matrix.rows, matrix.columns, matrix.step)
        weakref.finalize(self, library.discard, "cublasLtMatrixLayoutDestroy", made).atexit = False
        library.set("cublasLtMatrixLayoutSetAttribute", made, BATCH_COUNT, c_int32(self._product.batches))
        library.set("cublasLtMatrixLayoutSetAttribute", made, BATCH_STEP, c_int64(matrix.batch_step))
        return made

    def _choose(self) -> Heuristic:
        library, found, count = self._library, Heuristic(), c_int()
        preference = library.make("cublasLtMatmulPreferenceCreate")
        try:
            aligned = ((each, c_uint32(_ALIGNMENT)) for each in ALIGNMENTS)
            for attribute, value in ((MOST_WORKSPACE, c_uint64(MOST_WORKSPACE_BYTES)), *aligned):
                library.set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
            library.call(
                "cublasLtMatmulAlgoGetHeuristic", library.handle, self._operation, self._right, self._left,
                self._result, self._result, preference, 1, byref(found), byref(count),
            )  # fmt: skip
        finally:
            library.discard("cublasLtMatmulPreferenceDestroy", preference)
        if not count.value or found.state:
            raise TargetError(
                "cuBLASLt has no algorithm for a product",
                where=str(self._product),
                why=f"it proposes {count.value}, of status {found.state}, on {self._device.found}",
                hint=self._library.api.without,
            )
        return found

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Have a stream compute it; the context is current.

        Args:
            addresses: Of the left and the right operand, the result, and the bias and the residual where there are any.
            workspace: Where `workspace_bytes` are.

        Raises:
            FusionError: The library refuses it.
        """
        library = self._library
        left, right, result, *added = addresses
        if self._product.has_bias:
            library.set("cublasLtMatmulDescSetAttribute", self._operation, BIAS_POINTER, c_void_p(added[0]))
        kept, scale = (added[-1], self._one) if self._product.has_residual else (result, self._zero)
        library.call(
            "cublasLtMatmul", library.handle, self._operation, byref(self._one), right, self._right, left, self._left,
            byref(scale), kept, self._result, result, self._result, byref(self._algorithm), workspace,
            self.workspace_bytes, stream,
        )  # fmt: skip


def _epilogue(product: LibraryProduct) -> int:
    asked = (product.has_bias, EPILOGUE_BIAS), (product.has_relu, EPILOGUE_RELU), (product.has_gelu, EPILOGUE_GELU)
    return sum(bit for is_asked, bit in asked if is_asked) or EPILOGUE_NONE


def _matrices(product: LibraryProduct) -> tuple[_Matrix, _Matrix, _Matrix]:
    """Return the library's A, B and D: the right operand, the left one, and the result."""
    columns, rows = product.columns, product.rows
    return (
        _operand(product.right, columns, product),
        _operand(product.left, rows, product),
        _Matrix(columns, rows, step=columns, batch_step=rows * columns, kind=REAL[product.result_dtype]),
    )


def _operand(lies: OperandLayout, outer: int, product: LibraryProduct) -> _Matrix:
    inner, lines = (product.depth, outer) if lies.by_depth else (outer, product.depth)
    return _Matrix(inner, lines, lies.step, lies.batch_step, REAL[product.dtype])
