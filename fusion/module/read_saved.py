"""Reads what was saved, and refuses one that is damaged or made for another version or machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fusion
from fusion.errors import SavedFileError
from fusion.library import LoadedLibrary
from fusion.model_graph import ModelGraph
from fusion.module.archive import Archive
from fusion.module.fallback_program import FallbackProgram, open_parts_apart, register_fallbacks
from fusion.module.foreign_program import ForeignProgram
from fusion.module.graph_file import read_graph
from fusion.module.manifest import (
    FORMAT,
    Manifest,
    StoredForm,
    StoredOpenPlan,
    StoredWeight,
    from_fields,
    is_number,
    read_header,
)
from fusion.module.offload_program import offload
from fusion.module.open_plan import OpenRunPlan
from fusion.module.open_program import OpenProgram
from fusion.module.plan import RunPlan
from fusion.module.program import KernelProgram, Program
from fusion.module.settings import Settings, refusal
from fusion.module.share_weights import share_weights
from fusion.module.shared_library import load_library
from fusion.module.specialization import Code, Specialization
from fusion.module.weights_file import map_weights
from fusion.runtime import TVM_VERSION, Tensor
from fusion.signature import TensorSpec
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.system.temporary_folder import temporary_folder
from fusion.tensors import as_numpy


@dataclass(frozen=True)
class Saved:
    """The parts of a module.

    Attributes:
        inputs, outputs, settings: As of a `CompiledModule`.
        dynamic: Whether its model leaves dimensions open.
        bounds: The sizes that dimensions of these names may have.
        forms: At least one.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    settings: Settings
    dynamic: bool
    bounds: Mapping[str, range]
    forms: tuple[Specialization, ...]


def read_saved(
    archive: Archive, *, verify: bool = True, share: bool = False, apart: bool = False, to_explain: bool = False
) -> Saved:
    """Return what is in `archive`, ready to run.

    Args:
        archive: What `fusion.module.save` wrote.
        verify: As for `load`.
        share: Whether its weights take the place of equal ones in this process.
        apart: Whether another process opens its parts on libraries first.
        to_explain: Whether it may be for another machine: then a run raises what `load` does.

    Raises:
        SavedFileError, TargetError: As `load` does.
    """
    manifest = _read_manifest(archive)
    for name, digest in manifest.checksums.items():
        if verify or not name.endswith(".safetensors"):
            archive.check(name, digest)
    reason = refusal(manifest.settings)
    if reason is not None and not to_explain:
        raise reason
    how = _Loading(share, None if reason is None else ForeignProgram(reason))
    read = [_read_subgraphs(form, archive) for form in manifest.forms]
    if apart and reason is None:
        open_parts_apart(read, manifest.settings.threads)
    pairs = zip(manifest.forms, read, strict=True)
    forms = tuple(_load_form(form, subgraphs, manifest, archive, how) for form, subgraphs in pairs)
    return Saved(
        inputs=manifest.inputs, outputs=manifest.outputs, settings=manifest.settings, dynamic=manifest.dynamic,
        bounds=_ranges(manifest.bounds), forms=forms,
    )  # fmt: skip


def _ranges(bounds: Mapping[str, tuple[int, ...]]) -> dict[str, range]:
    return {name: range(smallest, largest + 1, step) for name, (smallest, largest, step) in bounds.items()}


@dataclass(frozen=True)
class _Loading:
    """How forms are loaded.

    Attributes:
        share: As of `read_saved`.
        foreign: What runs in their place where they are for another machine.
    """

    share: bool
    foreign: ForeignProgram | None


def _read_manifest(archive: Archive) -> Manifest:
    try:
        fields = read_header(archive.read_manifest())
        _check_versions(fields, archive)
        manifest = from_fields(fields)
    except (ValueError, RecursionError) as error:
        raise archive.damaged(f"its manifest cannot be read: {error}") from error
    if not manifest.forms:
        raise archive.damaged("its manifest lists no compiled form")
    return manifest


def _check_versions(fields: dict[str, Any], archive: Archive) -> None:
    """The format comes first: of a manifest of another format only `format` and `fusion` are known to be there."""
    if fields.get("format") != FORMAT:
        raise SavedFileError(
            f"{archive.path} has format {fields.get('format')!r} and this version reads format {FORMAT}",
            why=f"fusion {fields.get('fusion')} wrote it; this is fusion {fusion.__version__}",
            hint="compile the model again with this version, or load the file with the version that wrote it",
        )
    if fields.get("tvm") != TVM_VERSION:
        raise SavedFileError(
            f"{archive.path} was compiled with TVM {fields.get('tvm')} and this is TVM {TVM_VERSION}",
            why="machine code depends on TVM's runtime of the same version",
            hint=f"install apache-tvm=={fields.get('tvm')}, or compile the model again",
        )


def _read_subgraphs(form: StoredForm, archive: Archive) -> dict[str, bytes]:
    return {key: bytes(archive.read(member)) for key, member in form.subgraphs.items()}


def _load_form(
    form: StoredForm, subgraphs: dict[str, bytes], manifest: Manifest, archive: Archive, how: _Loading
) -> Specialization:
    code = _load_code(form, archive, how.share)
    registered = () if how.foreign else register_fallbacks(subgraphs, manifest.settings.threads)
    return Specialization(
        inputs=form.inputs,
        outputs=form.outputs,
        program=how.foreign or _load_program(form, code, registered, manifest.settings, archive),
        code=code,
        kernels=form.kernels,
        fallbacks=form.fallbacks,
        subgraphs=subgraphs,
        notes=form.notes,
        times=form.times,
        graph=functools.cache(lambda: _load_graph(form, archive)),
    )


def _load_graph(form: StoredForm, archive: Archive) -> ModelGraph:
    if not form.graph:
        return ModelGraph()
    try:
        return read_graph(archive.read(form.graph))
    except (ValueError, RecursionError) as error:
        raise archive.damaged(str(error)) from error


def _load_code(form: StoredForm, archive: Archive, share: bool) -> Code | None:
    if form.plan is None:
        return None
    weights = _map_weights(archive, form.weights, form.weight_types)
    held = share_weights(weights) if share else weights
    opened = None if form.opened is None else _load_open(form.inputs, form.plan, form.opened, archive, form.weights)
    return Code(form.plan, held, lambda: bytes(archive.read(form.code)), linked=True, opened=opened)


def _load_open(
    inputs: tuple[TensorSpec, ...], plan: RunPlan, stored: StoredOpenPlan, archive: Archive, member: str
) -> OpenRunPlan:
    tables = _map_weights(archive, member, [weight.table for weight in stored.weights])
    weights = tuple(
        OpenWeight(weight.shape, np.array(as_numpy(table)), weight.source)
        for weight, table in zip(stored.weights, tables, strict=True)
    )
    dims = tuple(tuple(int(dim) if is_number(dim) else dim for dim in dims) for dims in stored.dims)
    known = OpenDims(tuple(spec.name for spec in inputs), dims, stored.derived)
    return OpenRunPlan(
        typical=plan,
        typical_sizes=stored.typical_sizes,
        buffers=stored.buffers,
        given=stored.given,
        arguments=stored.arguments,
        dims=known,
        bounds=_ranges(stored.bounds),
        weights=weights,
    )


def _map_weights(archive: Archive, member: str, stored: Sequence[StoredWeight]) -> tuple[Tensor, ...]:
    types = [(weight.number, weight.shape, weight.dtype) for weight in stored]
    try:
        return map_weights(archive.read(member), types)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise archive.damaged(str(error)) from error


def _load_program(
    form: StoredForm, code: Code | None, registered: tuple[object, ...], settings: Settings, archive: Archive
) -> Program:
    threads = settings.threads
    if code is None:
        if len(registered) != 1:
            raise archive.damaged("its manifest lists neither a plan nor a fallback model")
        return FallbackProgram(registered[0], form.inputs)
    library = None if settings.device else _load_library(archive, form.code)
    try:
        if library is None:
            return offload(code, form.inputs, settings)
        if code.opened is not None:
            return OpenProgram(library, code.opened, code.weights, inputs=form.inputs, threads=threads)
        return KernelProgram(
            library, code.plan, weights=code.weights, inputs=form.inputs, threads=threads, subgraphs=registered
        )
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise archive.damaged(str(error)) from error


def _load_library(archive: Archive, member: str) -> LoadedLibrary:
    with temporary_folder() as folder:
        library = folder / "module.so"
        library.write_bytes(archive.read(member))
        return load_library(library, str(archive.path))
