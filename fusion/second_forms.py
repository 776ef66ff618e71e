"""Compiles a model for concrete shapes, in another form where a defect of the compiler ends the first.

The forms, in this order: the nodes at fault on ONNX Runtime, found by compiling ever smaller parts; without the passes
that fail; every operator as TVM lowers it; the whole model on ONNX Runtime. Only ONNX models have the first and last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from fusion import pipeline
from fusion.context import Context
from fusion.errors import FusionError, InternalError, NeedsFallbackError, ResourceError
from fusion.failures import cause, report
from fusion.frontends import import_model
from fusion.frontends.imported import ImportedModel
from fusion.frontends.onnx.prefixes import Prefixes
from fusion.lowered import Lowered
from fusion.module.build import build
from fusion.module.settings import refusal, settings_of
from fusion.module.specialization import Specialization
from fusion.module.specialize import specialize
from fusion.module.write_objects import beginning_code
from fusion.options import FAST
from fusion.pipeline import PipelineMode
from fusion.placing.require_libraries import require_libraries
from fusion.system.interrupts import keeping_interrupts

Shapes = Mapping[str, Sequence[int]]
_MOST_FAULTS = 4
_SEARCH_SECONDS = 60.0
"""For finding nodes at fault; a compilation takes up to 20 s, and a search as many of them as the logarithm of the
number of nodes."""
_WHY_LENGTH = 300


@dataclass(frozen=True)
class Attempt:
    """Another form of a model.

    Attributes:
        compile: Makes it.
        failures: What it does without, and why: a sentence each.
    """

    compile: Callable[[], Specialization]
    failures: tuple[str, ...]


Make = Callable[[ImportedModel, Lowered | None, Context], Specialization]
"""Makes a form of a lowered model."""


def compile_form(model: Any, shapes: Shapes, ctx: Context, make: Make = specialize) -> Specialization:
    """Return `model` compiled for `shapes`; `make` makes the form of its kernels.

    Raises:
        FusionError: The model, the target or an option is at fault.
        InternalError: A defect, and no other form of the model compiles; or `strict`.
        ResourceError: Memory ends.
        KeyboardInterrupt: The user ends it.
    """
    with keeping_interrupts() as check:
        return _first_that_compiles(_Compile(make), model, shapes, ctx, check)


def _first_that_compiles(
    compile: _Compile, model: Any, shapes: Shapes, ctx: Context, check: Callable[[], None]
) -> Specialization:
    """Return the first form that compiles; `check` raises what must not be taken for a defect."""
    try:
        imported = import_model(
            model, shapes, strict=ctx.strict, byte_products=ctx.compiler.byte_products,
            by_libraries=ctx.libraries_only,
        )  # fmt: skip
        return compile(imported, ctx)
    except NeedsFallbackError as error:
        error.hint = ctx.to_fall_back
        raise
    except FusionError:
        raise
    except MemoryError as error:
        raise _no_memory() from error
    except Exception as error:  # TVM's passes raise whatever their checks raise
        check()
        if ctx.strict:
            raise _defect(error) from error
        first = error
    for attempt in _attempts(compile, model, shapes, replace(ctx, effort=FAST), first):
        try:
            form = attempt.compile()
        except MemoryError as error:
            raise _no_memory() from error
        except FusionError:  # of this form: the next may do
            continue
        except Exception as error:  # as above
            check()
            report("another form failed too", error)
            continue
        return replace(form, notes=(*attempt.failures, *form.notes))
    raise _defect(first) from first


@dataclass(frozen=True)
class _Compile:
    """Lowers an imported model and makes its form."""

    make: Make

    def __call__(
        self, imported: ImportedModel, ctx: Context, mode: PipelineMode = PipelineMode.WHOLE
    ) -> Specialization:
        if ctx.effort == FAST and ctx.database is None:
            return self._form(imported, ctx, mode)

        def make(model: ImportedModel, how: Context) -> Specialization:
            return self._form(model, how, mode)

        # Here, not above: only what measures, or looks for what was measured, needs these.
        from fusion.placing.choose import ChoosePlaces
        from fusion.placing.place_subgraphs import PlaceSubgraphs

        placed = PlaceSubgraphs(imported, ctx, make)()
        chooses = ctx.graph_libraries and placed.imported.mod is not None
        return placed.told_by(ChoosePlaces(placed.imported, ctx, make)() if chooses else make(placed.imported, ctx))

    def _form(self, imported: ImportedModel, ctx: Context, mode: PipelineMode) -> Specialization:
        if imported.mod is None:
            return self.make(imported, None, ctx)
        with beginning_code(ctx) as begun:
            lowered = pipeline.lower(imported, begun, mode=mode)
            if ctx.libraries_only:
                require_libraries(imported, lowered, ctx)
            return self.make(imported, lowered, begun)


def _attempts(
    compile: _Compile, model: Any, shapes: Shapes, ctx: Context, first: Exception
) -> Iterator[Attempt]:
    """Yield the other forms, the best first."""
    parts = Prefixes(_source(model), shapes) if isinstance(model, (str, Path, onnx.ModelProto)) else None
    if parts is not None:
        yield from _without_faults(compile, parts, ctx)
    told = report("compiling failed, and the passes that fail are left out", first)
    yield Attempt(lambda: compile(import_model(model, shapes), ctx, PipelineMode.SPARING), (told,))
    told = report("compiling failed, and every operator runs as TVM lowers it", first)
    yield Attempt(lambda: compile(import_model(model, shapes), ctx, PipelineMode.PLAIN), (told,))
    if parts is not None:
        told = report("compiling failed, and the whole model runs on ONNX Runtime", first)
        whole = parts.whole(_reason(first))
        yield Attempt(lambda: compile(whole, ctx), (told,))


def _source(model: str | Path | onnx.ModelProto) -> Path | onnx.ModelProto:
    return model if isinstance(model, onnx.ModelProto) else Path(model)


def _without_faults(compile: _Compile, parts: Prefixes, ctx: Context) -> Iterator[Attempt]:
    """Yield the model with one more node at fault on ONNX Runtime each time."""
    declined, told = dict[str, str](), list[str]()
    deadline = time.monotonic() + _SEARCH_SECONDS
    for _ in range(_MOST_FAULTS):
        found = _find_fault(parts, ctx, declined, deadline)
        if found is None or parts.name(found[0]) in declined:
            break
        index, error = found
        node = parts.nodes[index]
        declined[parts.name(index)] = _reason(error)
        told.append(report(f"compiling {node.op_type} {parts.name(index)!r} failed, and ONNX Runtime runs it", error))
        yield Attempt(lambda: compile(parts.first(len(parts.nodes), declined), ctx), tuple(told))


def _find_fault(
    parts: Prefixes, ctx: Context, declined: Mapping[str, str], deadline: float
) -> tuple[int, Exception] | None:
    """Return the last node of the shortest part that fails, and how; None where the parts do not fail."""
    for attempt in (_lower, _generate):
        error = _error_of(attempt, parts, len(parts.nodes), ctx, declined)
        if error is None:
            continue
        good, bad = 0, len(parts.nodes)
        while bad - good > 1:
            if time.monotonic() > deadline:
                return None
            middle = (good + bad) // 2
            found = _error_of(attempt, parts, middle, ctx, declined)
            if found is None:
                good = middle
            else:
                bad, error = middle, found
        return bad - 1, error
    return None


def _error_of(
    attempt: Callable[[ImportedModel, Context], None], parts: Prefixes, count: int, ctx: Context,
    declined: Mapping[str, str],
) -> Exception | None:  # fmt: skip
    try:
        attempt(parts.first(count, declined), ctx)
    except MemoryError:
        raise
    except FusionError:  # of the part: no defect
        return None
    except Exception as error:  # whatever the whole model raised
        return error
    return None


def _lower(imported: ImportedModel, ctx: Context) -> None:
    if imported.mod is not None:
        pipeline.lower(imported, ctx)


def _generate(imported: ImportedModel, ctx: Context) -> None:
    if imported.mod is not None:
        lowered = pipeline.lower(imported, ctx)
        build(lowered, len(imported.inputs), ctx, to_run=refusal(settings_of(ctx)) is None)


def _reason(error: Exception) -> str:
    return f"internal error, {cause(error)}: please report it"


def _defect(error: Exception) -> InternalError:
    return InternalError(
        f"{type(error).__name__} while compiling",
        why=" ".join(str(error).split())[-_WHY_LENGTH:],
        hint="report it with the model and the lines above",
    )


def _no_memory() -> ResourceError:
    return ResourceError(
        "there is not enough memory to compile the model",
        hint="end other processes, compile on a machine with more memory, or give the model in smaller parts",
    )
