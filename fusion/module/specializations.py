"""The compiled forms of one model by input shapes, made when a shape is first seen (design D11)."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from fusion.errors import InputError
from fusion.module.input_slot import check_array, to_value
from fusion.module.specialization import Shapes, Specialization
from fusion.signature import TensorSpec

MAX_SPECIALIZATIONS = 16
"""Forms kept; the one unused for longest goes first. Each holds its own packed weights and activations."""

Make = Callable[[dict[str, tuple[int, ...]]], Specialization]


class Specializations:
    """Finds, makes and forgets compiled forms. Threads wait only for forms they need."""

    def __init__(self, inputs: tuple[TensorSpec, ...], make: Make | None, ready: Sequence[Specialization] = ()) -> None:
        """`make` compiles for shapes by input name; None where only the forms in `ready` exist (a loaded module)."""
        self._inputs = inputs
        self._make = make
        self._forms: OrderedDict[Shapes, Specialization] = OrderedDict((_key(form), form) for form in ready)
        self._making: dict[Shapes, Future[Specialization]] = {}
        self._lock = threading.Lock()
        _all.add(self)

    def renewed(self, forms: Sequence[Specialization]) -> Specializations:
        """Return the same with `forms` in place of those there are."""
        return Specializations(self._inputs, self._make, forms)

    def all(self) -> tuple[Specialization, ...]:
        """Return the forms there are, the one used last at the end."""
        with self._lock:
            return tuple(self._forms.values())

    def find(self, values: Sequence[Any]) -> Specialization:
        """Return the form for the shapes of `values`, compiling it if it is new.

        Raises:
            InputError: A value does not fit the model, or the module was loaded without a form for its shape.
        """
        known = [to_value(value, spec) for value, spec in zip(values, self._inputs, strict=True)]
        key = tuple(value.shape if spec.is_tensor else () for value, spec in zip(known, self._inputs, strict=True))
        form = self._known(key)
        if form is not None:
            return form
        for value, spec in zip(known, self._inputs, strict=True):
            if spec.is_tensor:
                check_array(value, spec)
        if self._make is None:
            raise self._unseen(key)
        return self._made(key, self._make)

    def _known(self, key: Shapes) -> Specialization | None:
        with self._lock:
            form = self._forms.get(key)
            if form is not None:
                self._forms.move_to_end(key)
            return form

    def _made(self, key: Shapes, make: Make) -> Specialization:
        """Return the new form for `key`, made by the first of the threads that ask for it."""
        with self._lock:
            if key in self._forms:
                return self._forms[key]
            making = self._making.get(key)
            first = making is None
            if making is None:
                making = self._making[key] = Future()
        if first:
            self._run(making, key, make)
        return making.result()

    def _run(self, making: Future[Specialization], key: Shapes, make: Make) -> None:
        try:
            form = make({spec.name: shape for spec, shape in zip(self._inputs, key, strict=True) if spec.is_tensor})
        except BaseException as error:
            with self._lock:
                del self._making[key]
            making.set_exception(error)
            return
        with self._lock:
            self._forms[key] = form
            if len(self._forms) > MAX_SPECIALIZATIONS:
                self._forms.popitem(last=False)
            del self._making[key]
        making.set_result(form)

    def forget_other_threads(self) -> None:
        """In a process that came out of a fork, give up what its other threads were making."""
        self._making.clear()
        self._lock = threading.Lock()

    def _unseen(self, key: Shapes) -> InputError:
        return InputError(
            f"the saved module has no compiled form for the input shapes {self._describe(key)}",
            why="a saved module holds the shapes it had been run with when it was saved; it has "
            + ("; ".join(self._describe(known) for known in self._forms) or "none"),
            hint="use one of these shapes, or compile the model again with shapes= and save that",
        )

    def _describe(self, key: Shapes) -> str:
        return ", ".join(f"{spec.name}={list(shape)}" for spec, shape in zip(self._inputs, key, strict=True))


_all: weakref.WeakSet[Specializations] = weakref.WeakSet()


def _after_fork() -> None:
    for forms in _all:
        forms.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _key(form: Specialization) -> Shapes:
    return tuple(tuple(extent or 0 for extent in spec.shape or ()) for spec in form.inputs)
