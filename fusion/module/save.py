"""Writes a compiled module as one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import fusion
from fusion.errors import SavedFileError
from fusion.module.archive import MANIFEST, Data, archive_bytes, checksum, write_archive
from fusion.module.graph_file import write_graph
from fusion.module.manifest import (
    FORMAT,
    Manifest,
    StoredForm,
    StoredOpenPlan,
    StoredOpenWeight,
    StoredWeight,
    to_json,
)
from fusion.module.open_plan import OpenRunPlan
from fusion.module.specialization import Specialization
from fusion.module.weights_file import write_weights
from fusion.runtime import FFI_VERSION, TVM_VERSION, Tensor
from fusion.symbolic.open_weights import TableWindow
from fusion.system.files import as_path
from fusion.tensors import as_tensor, byte_view

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule

_WEIGHTS = "weights.safetensors"


def save(module: CompiledModule, path: str | Path) -> None:
    """Write `module` to `path`, replacing a file that is there only once the new one is complete.

    Raises:
        SavedFileError: There is no linker, the file cannot be written, or the module has not been compiled for any
            shape yet.
    """
    write_archive(as_path(path), saved_members(module))


def to_bytes(module: CompiledModule) -> bytes:
    """Return what `save` writes.

    Raises:
        SavedFileError: There is no linker, or the module has not been compiled for any shape yet.
    """
    return archive_bytes(saved_members(module))


def saved_members(module: CompiledModule) -> dict[str, Data]:
    """Return what `save` writes, by name.

    Raises:
        SavedFileError: There is no linker, or the module has not been compiled for any shape yet.
    """
    forms = module.specializations
    if not forms:
        raise _nothing_to_save(module)
    members, weights = _Members(), _Weights()
    described = tuple(_describe(form, index, members, weights) for index, form in enumerate(forms))
    if any(form.code is not None for form in forms):
        members.add(_WEIGHTS, write_weights(weights.tensors))
    manifest = Manifest(
        format=FORMAT, fusion=fusion.__version__, tvm=TVM_VERSION, ffi=FFI_VERSION, settings=module.settings,
        inputs=module.inputs, outputs=module.outputs, dynamic=module.dynamic, bounds=_ends(module.bounds),
        forms=described, checksums=members.digests,
    )  # fmt: skip
    return {MANIFEST: to_json(manifest), **members.data}


def _nothing_to_save(module: CompiledModule) -> SavedFileError:
    what = "the module has not been compiled for any input shape yet"
    under_way = module.under_way
    if module.refused:
        return SavedFileError(what, why="; ".join(under_way), hint="call it with wait=True, which raises that error")
    return SavedFileError(
        what,
        why="; ".join(["its model leaves dimensions open, and no call has made a form of it", *under_way]),
        hint="call it once with each shape to save, with wait=True, or compile it with shapes=",
    )


class _Members:
    """The members so far; equal ones are kept once."""

    def __init__(self) -> None:
        self.data: dict[str, Data] = {}
        self.digests: dict[str, str] = {}

    def add(self, name: str, data: Data) -> str:
        """Return the name of the member that holds `data`."""
        digest = checksum(data)
        for known, other in self.digests.items():
            if other == digest:
                return known
        self.data[name], self.digests[name] = data, digest
        return name


class _Weights:
    """The weights of all forms; those that share memory (`share_weights`) are kept once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._numbers: dict[tuple[int, tuple[int, ...], str], int] = {}

    def add(self, tensor: Tensor) -> StoredWeight:
        """Return which one `tensor` is."""
        shape, dtype = tuple(int(extent) for extent in tensor.shape), str(tensor.dtype)
        number = self._numbers.setdefault((byte_view(tensor).ctypes.data, shape, dtype), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
        return StoredWeight(number, shape, dtype)


def _describe(form: Specialization, index: int, members: _Members, weights: _Weights) -> StoredForm:
    plan, code, held, graph, opened = None, "", "", "", None
    types: tuple[StoredWeight, ...] = ()
    if form.code is not None:
        plan, held = form.code.plan, _WEIGHTS
        code = members.add(f"form{index}/module.so", form.code.library())
        graph = members.add(f"form{index}/graph.json.z", write_graph(form.graph()))
        types = tuple(map(weights.add, form.code.weights))
        opened = None if form.code.opened is None else _describe_open(form.code.opened, weights)
    subgraphs = {
        key: members.add(f"form{index}/fallback{number}.onnx", model)
        for number, (key, model) in enumerate(form.subgraphs.items())
    }
    return StoredForm(
        inputs=form.inputs,
        outputs=form.outputs,
        plan=plan,
        code=code,
        weights=held,
        graph=graph,
        weight_types=types,
        subgraphs=subgraphs,
        kernels=form.kernels,
        fallbacks=form.fallbacks,
        notes=form.notes,
        times=form.times,
        opened=opened,
    )


def _describe_open(plan: OpenRunPlan, weights: _Weights) -> StoredOpenPlan:
    stored = tuple(
        StoredOpenWeight(
            shape=weight.shape,
            table=weights.add(as_tensor(np.ascontiguousarray(weight.table))),
            counts=() if isinstance(weight.source, TableWindow) else weight.source.parts,
            window=weight.source if isinstance(weight.source, TableWindow) else None,
        )
        for weight in plan.weights
    )
    dims = tuple(tuple(map(str, dims)) for dims in plan.dims.dims)
    return StoredOpenPlan(
        typical_sizes=plan.typical_sizes,
        buffers=plan.buffers,
        given=plan.given,
        arguments=plan.arguments,
        dims=dims,
        derived=plan.dims.derived,
        bounds=_ends(plan.bounds),
        weights=stored,
    )


def _ends(bounds: Mapping[str, range]) -> dict[str, tuple[int, ...]]:
    """Return the smallest and the largest of the sizes of each name, and the step between them."""
    return {name: (sizes[0], sizes[-1], sizes.step) for name, sizes in bounds.items()}
