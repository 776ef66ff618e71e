"""Compiled forms in the cache on disk: what `save` writes of each, under a key of all that decided it, or why the model
has none.

Processes lock nothing: those that compile the same at a time each write it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from fusion.cache import Store
from fusion.cache.attempts import attempt
from fusion.cache.texts import find_text, keep_text
from fusion.compiled_module import CompiledModule
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import LimitError, ResourceError, SavedFileError
from fusion.failures import tells_of_failure
from fusion.model_digest import ModelDigest
from fusion.module.archive import MANIFEST, Archive, Data, write_members
from fusion.module.code_key import decided_by, key_of
from fusion.module.read_saved import read_saved
from fusion.module.save import saved_members
from fusion.module.settings import refusal, settings_of
from fusion.module.specialization import Shapes as CallShapes
from fusion.module.specialization import Specialization
from fusion.signature import TensorSpec
from fusion.stages import stage
from fusion.symbolic.open_dims import Undecided
from fusion.system.forks import Lock

Shapes = Mapping[str, Sequence[int]]
_ENTRY = "entry.json"
"""Member with the key, and the checksum of the manifest, which has those of all other members."""
_log = logging.getLogger("fusion.cache")


def uses_cache(ctx: Context) -> bool:
    """Return whether forms are kept: one for another machine cannot be run here, and linking is left to whoever saves
    it."""
    return ctx.cache is not None and refusal(settings_of(ctx)) is None


def find_or_compile(
    model: ModelDigest | None,
    shapes: Shapes,
    ctx: Context,
    compile: Callable[[], Specialization],
    *,
    open_inputs: Sequence[TensorSpec] = (),
    first: CallShapes | None = None,
    bounds: Mapping[str, range] = MappingProxyType({}),
) -> Specialization:
    """Return the form for `shapes` of the model with this digest from the cache of `ctx`, or what `compile` returns,
    and keep that; of a model that has no whole one, what `compile` returns.

    Args:
        open_inputs: Those of a form for all sizes that they leave open.
        first: The shapes of the first call: which form there is, or why there is none, they may decide. None without.
        bounds: The sizes that open dimensions of these names have.

    Raises:
        Declined: `compile` declines, or has declined in a process before.
    """
    if model is None or not model.whole or ctx.cache is None or not uses_cache(ctx):
        return compile()
    store = Store(ctx.cache)
    try:
        key = form_key(model, shapes, ctx, open_inputs, bounds)
    except Exception as error:  # whatever versions and sources that cannot be read raise
        _log.info("the form has no key, and is not looked for: %s", error)
        return compile()
    with _lock_of(key):
        why_none = f"{key_of({'form': key, 'first': first})}.reason"
        form = _find_placed(store, key) if ctx.graph_libraries else _find(store, key)
        if form is not None and not _is_made_for(form, first):
            # There is one for sizes like those of another first call, and each kind has an entry of its own.
            key = _key_of_kind(key, form, first)
            form = _find(store, key)
        if form is not None and _is_made_for(form, first):
            return form
        reason = find_text(store, why_none) if open_inputs else None
        if reason is not None:
            raise Declined(reason)
        try:
            form = compile()
        except Undecided:
            raise
        except Declined as declined:
            if model.current():
                keep_text(store, why_none, str(declined))
            raise
        if model.current():
            _keep(store, key, form, ctx)
        return form


def _is_made_for(form: Specialization, first: CallShapes | None) -> bool:
    """Return whether a first call with these shapes would get this form."""
    return first is None or form.opened is None or form.opened.is_made_for(first)


def _key_of_kind(key: str, other: Specialization, first: CallShapes | None) -> str:
    """Return the key of forms for calls like the `first` one, to which the `other` form, that of `key`, is not made."""
    assert first is not None
    assert other.opened is not None
    return key_of({"form": key, "rests": other.opened.rests(first)})


_locks: weakref.WeakValueDictionary[str, Lock] = weakref.WeakValueDictionary()
_all_locks = Lock()


def _lock_of(key: str) -> Lock:
    """Return the lock under which the threads of this process make one form, so that the second of them finds it."""
    with _all_locks:
        return _locks.setdefault(key, Lock())


def form_key(
    model: ModelDigest,
    shapes: Shapes,
    ctx: Context,
    open_inputs: Sequence[TensorSpec] = (),
    bounds: Mapping[str, range] = MappingProxyType({}),
) -> str:
    """Return a checksum of all that the form of `model` for `shapes`, or for all sizes within `bounds` that its inputs
    leave open, depends on."""
    given = {name: [int(extent) for extent in shape] for name, shape in shapes.items()}
    opened = [spec.declared for spec in open_inputs]
    limits = {name: [sizes.start, sizes.stop, sizes.step] for name, sizes in bounds.items()}
    return key_of({**decided_by(ctx), "model": model.digest, "shapes": given, "open": opened, "bounds": limits})


def _name(key: str) -> str:
    return f"{key}.fusion"


def _find_placed(store: Store, key: str) -> Specialization | None:
    """As `_find`, of a form that may have parts on libraries; one whose opening has ended a process is made anew, for
    which the libraries are tried in another process."""
    with attempt(store, f"{key}.opening") as is_safe:
        if is_safe:
            return _find(store, key)
        store.drop(_name(key), "a process ended while it opened it")
        return None


@stage("look into the cache")
def _find(store: Store, key: str) -> Specialization | None:
    file = store.open(_name(key))
    if file is None:
        return None
    try:
        archive = Archive(store.place.folder / _name(key), file)
        entry = json.loads(bytes(archive.read(_ENTRY)))
        if entry != _describe(key, archive.read(MANIFEST)):
            raise archive.damaged("its key or the checksum of its manifest does not match")
        return read_saved(archive, share=True).forms[0]
    except (MemoryError, LimitError, ResourceError) as error:  # of this process; others read the entry
        _log.info("the form is not taken from the cache: %s", error)
        return None
    except Exception as error:  # of damaged bytes whatever reads them first
        store.drop(_name(key), str(error))
        return None


@stage("keep in the cache")
def _keep(store: Store, key: str, form: Specialization, ctx: Context) -> None:
    linked = form.code is None or form.code.linked
    # What a defect, or a library that fails, has changed is not kept: the next compilation may do without. Nor
    # is a form whose bounds may be those of this process's memory: the next may have more.
    if not linked or form.is_limited or any(map(tells_of_failure, form.notes)):
        return
    try:
        members = saved_members(CompiledModule(form.inputs, form.outputs, settings_of(ctx), fixed=form))
    except (SavedFileError, MemoryError) as error:
        _log.info("the form is not kept: %s", error)
        return
    entry = json.dumps(_describe(key, members[MANIFEST])).encode()
    size = sum(map(len, members.values()))
    store.write(_name(key), size, lambda file: write_members(file, {_ENTRY: entry, **members}))


def _describe(key: str, manifest: Data) -> dict[str, str]:
    return {"key": key, "manifest": hashlib.sha256(manifest).hexdigest()}
