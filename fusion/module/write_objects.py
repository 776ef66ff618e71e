"""The object files of a compilation: a folder that is gone at its end, and what writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from backends.backend import ObjectWriter
from fusion.context import Context
from fusion.errors import SavedFileError
from fusion.module.kernel_cache import open_kernels
from fusion.module.linker import ELF, ROOM, find_linker
from fusion.system.temporary_folder import telling_of_files, temporary_folder


def why_not_linked() -> str:
    """Return why object files cannot be linked on this machine; "" where they can."""
    if not ELF:
        return "the system's object files are not ELF"
    return "" if find_linker() is not None else "none was found"


@contextmanager
def beginning_code(ctx: Context) -> Iterator[Context]:
    """Give `ctx` with a writer that begins the code of each kernel once that has its loops, while the block lasts;
    without where it is a device's, cannot be linked here, or written, as `build` tells."""
    folders = ExitStack()
    try:
        writer = None if ctx.compiler.device or why_not_linked() else _try_writer(ctx, folders)
        yield ctx if writer is None else replace(ctx, writer=writer)
    finally:
        folders.close()  # whatever is raised in the block is not about the folder


def _try_writer(ctx: Context, folders: ExitStack) -> ObjectWriter | None:
    try:
        return folders.enter_context(_new_writer(ctx))
    except SavedFileError:
        return None


@contextmanager
def writing_code(ctx: Context) -> Iterator[ObjectWriter]:
    """Give the writer of `ctx`, or a new one.

    Raises:
        SavedFileError: The files cannot be written.
    """
    if ctx.writer is None:
        with _new_writer(ctx) as writer:
            yield writer
    else:
        with telling_of_files():
            yield ctx.writer


@contextmanager
def _new_writer(ctx: Context) -> Iterator[ObjectWriter]:
    with temporary_folder(ROOM) as folder, ctx.compiler.object_writer(folder, open_kernels(ctx)) as writer:
        yield writer
