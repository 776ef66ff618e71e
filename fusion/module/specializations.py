"""The compiled forms of one model by input shapes, made when a shape is first seen (design D11)."""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from fusion.abandon import Abandoned, checkpoint, taking_precedence
from fusion.errors import FusionError, InputError, ResourceError, ShapeError, contradicting, out_of_bounds
from fusion.forks import Lock
from fusion.module import background
from fusion.module.compare_forms import FormTimes, compare_forms
from fusion.module.hot_shapes import HotShapes
from fusion.module.input_slot import check_array, to_value
from fusion.module.open_form import OpenForm
from fusion.module.program import Program
from fusion.module.specialization import Shapes, Specialization
from fusion.module.stand_in import StandIn
from fusion.module.warn_of_forms import warn_of_forms
from fusion.signature import TensorSpec, beyond, disagreement

MAX_SPECIALIZATIONS = 16
"""Forms kept; the one unused for longest goes first. Each holds its own activations, and what weights no other has."""
_MANY = 4
"""At so many forms the user is warned, once."""

T = TypeVar("T")
Make = Callable[[dict[str, tuple[int, ...]]], Specialization]


class Specializations:
    """Finds, makes and forgets compiled forms. Threads wait only for forms they need."""

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        make: Make | None,
        ready: Sequence[Specialization] = (),
        *,
        opened: OpenForm | None = None,
        hot: HotShapes | None = None,
        stand_in: StandIn | None = None,
        wait: bool = False,
        equal: frozenset[str] = frozenset(),
        bounds: Mapping[str, range] = MappingProxyType({}),
    ) -> None:
        """
        Args:
            equal: Names of dimensions that have one size in each call; what others have, the model itself tells.
            bounds: The sizes that dimensions of these names may have.
            opened: The form for all sizes; None where there is none.
            hot: Says which shapes get a form of their own beside that; none without.
            make: Compiles for shapes by input name; None where only the forms in `ready` exist (a loaded module).
            stand_in: Answers while a form is made in the background; None where the model has none.
            wait: Whether calls that do not say so wait for their form.
        """
        self._inputs = inputs
        self._make = make
        self._opened = opened or OpenForm(None)
        self._hot = hot or HotShapes(0)
        self._stand_in = stand_in
        if stand_in is not None:
            self._opened.when_known = stand_in.close  # no method of this, which would make a cycle
        self._wait = wait
        self._equal = equal
        self.bounds = bounds
        self._forms: OrderedDict[Shapes, Specialization] = OrderedDict((_key(form), form) for form in ready)
        self._making: dict[Shapes, Future[Specialization]] = {}
        self._failed: OrderedDict[Shapes, FusionError] = OrderedDict()
        self._begun: list[Shapes] = []
        self._compared: OrderedDict[Shapes, FormTimes] = OrderedDict()
        self._lock = Lock(self._making.clear)  # what other threads of the parent were making

    def renewed(self, forms: Sequence[Specialization]) -> Specializations:
        """Return the same with `forms` in place of those there are."""
        opened, each = split_forms(forms)
        again = self._opened.renewed(opened)
        return Specializations(
            self._inputs, self._make, each, opened=again, hot=self._hot, stand_in=self._stand_in, wait=self._wait,
            equal=self._equal, bounds=self.bounds,
        )  # fmt: skip

    def all(self) -> tuple[Specialization, ...]:
        """Return the forms there are, that for all sizes first and the one used last at the end."""
        opened = self._opened.form
        with self._lock:
            return (*(() if opened is None else (opened,)), *self._forms.values())

    def finish(self) -> None:
        """Wait for the forms that are being made; what could not be made is told by the next call with its shape."""
        self._opened.finish()
        with self._lock:
            making = dict(self._making)
        for key, form in making.items():
            with taking_precedence():
                error = form.exception()
            # It gave way to this thread, or the process ends, which this thread outlives.
            if isinstance(error, Abandoned) and self._make is not None:
                with contextlib.suppress(FusionError):
                    self._made(key, self._make)

    def under_way(self) -> list[str]:
        """Return the shapes whose forms are being made, those whose forms could not be made, and those that come often,
        one line each."""
        with self._lock:
            making, failed, compared = list(self._making), list(self._failed.items()), list(self._compared.items())
        outlook = self._opened.outlook
        told = [outlook] if outlook else []
        return told + [f"being compiled for {self._describe(key)}" for key in making] + [
            f"could not be compiled for {self._describe(key)}: {error.what}" for key, error in failed
        ] + [
            f"a form of its own for {self._describe(key)} takes {times}" + ": it is not used" * times.is_slower
            for key, times in compared
        ]  # fmt: skip

    @property
    def refused(self) -> bool:
        """Whether forms could not be made that calls asked for."""
        return bool(self._failed)

    def find(self, values: Sequence[Any]) -> Specialization:
        """Return the form for the shapes of `values`, compiling it if it is new.

        Raises:
            InputError: A value does not fit the model, or the module was loaded without a form for its shape.
        """
        key = self._key_of(values)
        return self._known(key) or self._made(key, self._maker(key, values))

    def form_of(self, values: Sequence[Any]) -> Specialization:
        """Return the form that runs `values`: that for their shapes or for all, compiling what is new.

        Raises:
            InputError: As `find`.
        """
        self.program(values, wait=True)
        key = self._key_of(values)
        return self._known(key) or self._opened.find(key) or self.find(values)

    def program(self, values: Sequence[Any], wait: bool | None = None) -> Program:
        """Return what runs `values`: the form for their shapes, that for all sizes or, where neither is made yet and it
        is not to be waited for, what stands in for it.

        Raises:
            InputError: As `find`.
            FusionError: The form was made in the background, and that failed.
        """
        key = self._key_of(values)
        form = self._known(key)
        if form is not None:
            return form.program
        form = self._opened.find(key)
        if form is not None:
            if self._hot.is_hot_now(key) and self._make is not None:
                self._submit(key, self._make, beside=form)
            return form.program
        make = self._maker(key, values)
        # Of tensors without elements, ONNX Runtime's LSTM, GRU and Einsum end the process.
        waits = (self._wait if wait is None else wait) or not all(map(_has_elements, values))
        stand_in = None if waits else self._stand_in
        program = self._open_program(key, stand_in)
        if program is None:
            program = self._made(key, make).program if stand_in is None else self._meanwhile(key, make, stand_in)
        return program

    def _open_program(self, key: Shapes, stand_in: StandIn | None) -> Program | None:
        """Return what runs `key` of the form for all sizes, or while that is made; None where it is not for `key`."""
        if self._opened.is_due and stand_in is not None and not stand_in.lacking and self._opened.begin(key):
            program = stand_in.open()
            form = self._opened.find(key)
            if form is None and program is not None and self._opened.is_due:
                return stand_in.answering(program, lambda values: self.program(values, wait=True))
            self._close_if_unused(stand_in)  # which the form did before it was opened
        self._opened.finish(key)
        form = self._opened.find(key)
        return None if form is None else form.program

    def _key_of(self, values: Sequence[Any]) -> Shapes:
        # Without what a strict zip takes, as in `KernelProgram.run_in`; who calls has counted the values.
        known = zip(map(to_value, values, self._inputs), self._inputs)  # noqa: B905
        return tuple([value.shape if spec.is_tensor else () for value, spec in known])

    def _known(self, key: Shapes) -> Specialization | None:
        with self._lock:
            form = self._forms.get(key)
            if form is not None:
                self._forms.move_to_end(key)
            return form

    def _maker(self, key: Shapes, values: Sequence[Any]) -> Make:
        """Return what makes the form for `key`, the shapes of `values`.

        Raises:
            InputError: As `find`.
        """
        for value, spec in zip(values, self._inputs, strict=True):
            if spec.is_tensor:
                check_array(to_value(value, spec), spec)
        contradiction = disagreement(self._inputs, key, self._equal if self._make is not None else None)
        if contradiction:
            raise contradicting(contradiction)
        if why := beyond(self._inputs, key, self.bounds):
            raise out_of_bounds(why)
        if self._make is None:
            raise self._unseen(key)
        return self._make

    def _meanwhile(self, key: Shapes, make: Make, stand_in: StandIn) -> Program:
        """Return what runs `key` while its form is made in the background; the form, if it has to be waited for."""
        if stand_in.lacking:
            return self._made(key, make).program
        self._warn_of(key)
        with self._lock:
            if key in self._failed:
                raise copy.copy(self._failed[key])
            full = len(self._making) >= MAX_SPECIALIZATIONS
        if not full and not self._submit(key, make):
            return self._made(key, make).program
        program = stand_in.open()
        self._close_if_unused(stand_in)
        form = self._known(key)
        if form is None and program is not None:
            return stand_in.answering(program, lambda values: self.find(values).program)
        return (form or self._made(key, make)).program

    def _made(self, key: Shapes, make: Make) -> Specialization:
        """Return the new form for `key`; who asks for many is warned, not who is refused them."""
        form = self._made_by_one(key, make)
        self._warn_of(key)
        return form

    def _made_by_one(self, key: Shapes, make: Make) -> Specialization:
        """Return the new form for `key`, made by the first of the threads that ask for it."""
        while True:
            making: Future[Specialization] = Future()
            self._run(making, key, make)
            if making.done():
                return making.result()
            with self._lock:
                form, other = self._forms.get(key), self._making.get(key)
            if form is not None:
                return form
            if other is not None:
                with taking_precedence():
                    error = other.exception()
                if error is None:
                    return other.result()
                if isinstance(error, Exception):
                    raise error
                # It was abandoned, or somebody interrupted the thread that made it: this one makes it itself.

    def _submit(self, key: Shapes, make: Make, beside: Specialization | None = None) -> bool:
        """Have the background make the form for `key` unless it is there, being made or known to be slow; False if that
        takes no jobs.

        Args:
            beside: The form for all sizes that runs `key`: the thread of low priority makes one that is faster.
        """
        submit = background.submit if beside is None else background.submit_idle
        with self._lock:
            times = self._compared.get(key)
            if key in self._forms or key in self._making or (times is not None and times.is_slower):
                return True
            making: Future[Specialization] = Future()
            # Noted once it is queued: if an interrupt comes between, nobody waits for what nobody makes.
            if not submit(functools.partial(_make_if_used, weakref.ref(self), making, key, make, beside)):
                return False
            self._making[key] = making
            return True

    def _is_to_make(self, making: Future[Specialization], key: Shapes) -> bool:
        with self._lock:
            return key not in self._forms and self._making.setdefault(key, making) is making

    def _warn_of(self, key: Shapes) -> None:
        with self._lock:
            if key in self._begun or len(self._begun) == _MANY:
                return
            self._begun.append(key)
            known = list(self._begun)
        if len(known) == _MANY:
            warn_of_forms([self._describe(shapes) for shapes in known], MAX_SPECIALIZATIONS)

    def _run(
        self, making: Future[Specialization], key: Shapes, make: Make, beside: Specialization | None = None
    ) -> None:
        """Make the form for `key` and fulfil `making` with it, unless it is there or is another's to make; it is kept
        unless it is slower than the one `beside` it."""
        try:
            if not self._is_to_make(making, key):
                return
            checkpoint()()
            form = self._fitting(key, make)
            times = None if beside is None else compare_forms(form, beside)
        except BaseException as error:
            with self._lock:
                if self._making.get(key) is making:
                    del self._making[key]
                if key in self._begun and len(self._begun) < _MANY:
                    self._begun.remove(key)
                if isinstance(error, FusionError) and not isinstance(error, ResourceError):
                    # A copy has no traceback, which holds all that the frames of the compilation held.
                    _put(self._failed, key, copy.copy(error))
            making.set_exception(error)
        else:
            with self._lock:
                if times is not None:
                    _put(self._compared, key, times)
                if times is None or not times.is_slower:
                    _put(self._forms, key, form)
                self._failed.pop(key, None)
                self._making.pop(key, None)
            making.set_result(form)
        if self._stand_in is not None:
            self._close_if_unused(self._stand_in)

    def _fitting(self, key: Shapes, make: Make) -> Specialization:
        """Return the form for `key`; the error of one that the model refuses says so where inputs disagree."""
        try:
            return make({spec.name: shape for spec, shape in zip(self._inputs, key, strict=True) if spec.is_tensor})
        except ShapeError as error:
            contradiction = disagreement(self._inputs, key)
            if not contradiction:
                raise
            raise contradicting(contradiction, error) from error

    def _close_if_unused(self, stand_in: StandIn) -> None:
        with self._lock:
            if not self._making:
                stand_in.close()

    def _unseen(self, key: Shapes) -> InputError:
        return InputError(
            f"the saved module has no compiled form for the input shapes {self._describe(key)}",
            why="a saved module holds the forms it had when it was saved; it has "
            + ("; ".join([*self._opened.bounds(), *(self._describe(known) for known in self._forms)]) or "none"),
            hint="use one of these shapes, or compile the model again with shapes= and save that",
        )

    def _describe(self, key: Shapes) -> str:
        return ", ".join(f"{spec.name}={list(shape)}" for spec, shape in zip(self._inputs, key, strict=True))


def split_forms(forms: Sequence[Specialization]) -> tuple[Specialization | None, tuple[Specialization, ...]]:
    """Return the form for all sizes, None where there is none, and those for one shape each."""
    opened = [form for form in forms if form.opened is not None]
    return (opened[0] if opened else None), tuple(form for form in forms if form.opened is None)


def _has_elements(value: Any) -> bool:
    """Return whether a tensor has elements, or a sequence tensors that all have; an empty optional lacks none."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_has_elements, value))
    return 0 not in np.shape(value)


def _make_if_used(
    used: weakref.ref[Specializations],
    making: Future[Specialization],
    key: Shapes,
    make: Make,
    beside: Specialization | None,
) -> None:
    """Make the form unless its module is gone, which then nobody waits for; once more where it gave way to others."""
    forms = used()
    if forms is not None:
        forms._run(making, key, make, beside)
        if making.done() and isinstance(making.exception(), Abandoned):
            background.resume_idle(functools.partial(_submit_if_used, used, key, make, beside))


def _submit_if_used(
    used: weakref.ref[Specializations], key: Shapes, make: Make, beside: Specialization | None
) -> None:
    forms = used()
    if forms is not None:
        forms._submit(key, make, beside)


def _put(known: OrderedDict[Shapes, T], key: Shapes, value: T) -> None:
    """Keep `value` as one of the last `MAX_SPECIALIZATIONS`."""
    known[key] = value
    if len(known) > MAX_SPECIALIZATIONS:
        known.popitem(last=False)


def _key(form: Specialization) -> Shapes:
    return tuple(tuple(extent or 0 for extent in spec.shape or ()) for spec in form.inputs)
