"""The compiled forms of one model: that for all sizes, and one for each input shape that needed its own."""

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

from fusion.errors import FusionError, InputError, ResourceError, ShapeError, contradicting, out_of_bounds
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
from fusion.system.abandon import Abandoned, checkpoint, taking_precedence
from fusion.system.forks import Lock

MAX_SPECIALIZATIONS = 16
"""How many forms are kept; the least recently used goes first. Each has activations, and perhaps weights, of its
own."""
_MANY = 4
"""The number of forms at which the user is warned, once."""

T = TypeVar("T")
Make = Callable[[dict[str, tuple[int, ...]]], Specialization]


class Specializations:
    """Finds, compiles and forgets forms. A thread waits only for a form that it needs."""

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
            make: Compiles the model for shapes, by input name; None for a loaded module, which has only `ready`.
            ready: The forms that there are.
            opened: The form for all sizes; None if there is none.
            hot: Decides which shapes get a form of their own beside that; None for no shape.
            stand_in: Answers calls while a form is compiled in the background; None if nothing can.
            wait: Whether calls wait for their form by default.
            equal: Names of dimensions that the user gave; those of one name have the same size in a call.
            bounds: The sizes that dimensions may have, by name.
        """
        self._inputs = inputs
        self._make = make
        self._opened = opened or OpenForm(None)
        self._hot = hot or HotShapes(0)
        self._stand_in = stand_in
        if stand_in is not None:
            self._opened.when_known = stand_in.close  # not a method of self, which would be a reference cycle
        self._wait = wait
        self._equal = equal
        self.bounds = bounds
        self._forms: OrderedDict[Shapes, Specialization] = OrderedDict((_key(form), form) for form in ready)
        self._making: dict[Shapes, Future[Specialization]] = {}
        self._failed: OrderedDict[Shapes, FusionError] = OrderedDict()
        self._begun: list[Shapes] = []
        self._answered: OrderedDict[Shapes, None] = OrderedDict()  # by the stand-in, while it was made for all sizes
        self._compared: OrderedDict[Shapes, FormTimes] = OrderedDict()
        self._lock = Lock(self._making.clear)  # what other threads of the parent were making

    def renewed(self, forms: Sequence[Specialization]) -> Specializations:
        """Return a copy that has `forms` in place of its own."""
        opened, each = split_forms(forms)
        again = self._opened.renewed(opened)
        return Specializations(
            self._inputs, self._make, each, opened=again, hot=self._hot, stand_in=self._stand_in, wait=self._wait,
            equal=self._equal, bounds=self.bounds,
        )  # fmt: skip

    def all(self) -> tuple[Specialization, ...]:
        """Return the forms that there are: that for all sizes first, the most recently used last."""
        opened = self._opened.form
        with self._lock:
            return (*(() if opened is None else (opened,)), *self._forms.values())

    def finish(self) -> None:
        """Wait for the forms that are being compiled, and make those of calls that the stand-in answered while one for
        all sizes was made that is not for them. If that fails, the next call with the shape raises the error."""
        self._opened.finish()
        self._make_answered()
        with self._lock:
            making = dict(self._making)
        for key, form in making.items():
            with taking_precedence():
                error = form.exception()
            # It gave way to this thread, or the process ends, which this thread outlives.
            if isinstance(error, Abandoned) and self._make is not None:
                with contextlib.suppress(FusionError):
                    self._made(key, self._make)

    def _make_answered(self) -> None:
        with self._lock:
            answered = list(self._answered)
        for key in answered:
            if self._make is not None and self._known(key) is None and self._opened.find(key) is None:
                with contextlib.suppress(FusionError):
                    self._made(key, self._make)
            with self._lock:
                self._answered.pop(key, None)

    def under_way(self) -> list[str]:
        """Return a line for each shape whose form is being compiled, could not be compiled, or was compared with the
        form for all sizes as it is called often."""
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

    def outlook(self) -> tuple[str, ...]:
        """Return what `under_way` does, and whether the stand-in answers calls."""
        answers = self._stand_in is not None and self._stand_in.is_open
        return (*self.under_way(), *["ONNX Runtime answers calls meanwhile"] * answers)

    @property
    def refused(self) -> bool:
        """Whether a form that a call needed could not be compiled."""
        return bool(self._failed)

    def find(self, values: Sequence[Any]) -> Specialization:
        """Return the form for just the shapes of `values`; compile it if there is none.

        Raises:
            InputError: A value does not fit the model, or the module was loaded without a form for its shape.
        """
        key = self._key_of(values)
        return self._known(key) or self._made(key, self._maker(key, values))

    def form_of(self, values: Sequence[Any]) -> Specialization:
        """Return the form that runs `values`, for their shapes or for all sizes; compile it if there is none.

        Raises:
            InputError: As `find`.
        """
        self.program(values, wait=True)
        key = self._key_of(values)
        return self._known(key) or self._opened.find(key) or self.find(values)

    def program(self, values: Sequence[Any], wait: bool | None = None) -> Program:
        """Return the program that runs `values`: of the form for their shapes, of that for all sizes, or, if neither is
        compiled yet and the call is not to wait, of the stand-in.

        Raises:
            InputError: As `find`.
            FusionError: Compiling the form in the background failed.
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
        # ONNX Runtime's LSTM, GRU and Einsum crash on tensors without elements.
        waits = (self._wait if wait is None else wait) or not all(map(_has_elements, values))
        stand_in = None if waits else self._stand_in
        program = self._open_program(key, stand_in)
        if program is None:
            program = self._made(key, make).program if stand_in is None else self._meanwhile(key, make, stand_in)
        return program

    def _open_program(self, key: Shapes, stand_in: StandIn | None) -> Program | None:
        """Return the program of the form for all sizes, or of the stand-in while that is compiled; None if the form is
        not for `key`."""
        if self._opened.is_due and stand_in is not None and not stand_in.lacking and self._opened.begin(key):
            program = stand_in.open()
            form = self._opened.find(key)
            if form is None and program is not None and self._opened.is_due:
                with self._lock:
                    _put(self._answered, key, None)
                return stand_in.answering(program, lambda values: self.program(values, wait=True))
            self._close_if_unused(stand_in)  # as the form did if it was ready before the stand-in was opened
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
        """Return the function that compiles the form for `key`, the shapes of `values`, which are checked.

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
        """Return the program of the stand-in, while the form for `key` is compiled in the background, or that of the
        form if there is nothing else."""
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
        """Compile the form for `key`. Warn of many forms only if that succeeds."""
        form = self._made_by_one(key, make)
        self._warn_of(key)
        return form

    def _made_by_one(self, key: Shapes, make: Make) -> Specialization:
        """Compile the form for `key`, in the first of the threads that ask for it."""
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
                # The other thread was interrupted, or its compilation abandoned: this one compiles it.

    def _submit(self, key: Shapes, make: Make, beside: Specialization | None = None) -> bool:
        """Have the form for `key` compiled in the background, unless it is there, under way, or known to be slow.
        Return False if the background accepts no jobs.

        Args:
            beside: The form for all sizes, which runs `key` too: the job gets low priority, and its form is only kept
                if it is faster.
        """
        submit = background.submit if beside is None else background.submit_idle
        with self._lock:
            times = self._compared.get(key)
            if key in self._forms or key in self._making or (times is not None and times.is_slower):
                return True
            making: Future[Specialization] = Future()
            # Noted after it is queued: an interrupt in between must not leave a form that nobody compiles.
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
        """Compile the form for `key` and set it as the result of `making`, unless it is there or another thread
        compiles it. It is kept unless it is slower than the form `beside` it."""
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
                    # A copy, without the traceback, which would keep all objects of the compilation alive.
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
        """Return the form for `key`. If the model refuses it, and the inputs disagree, the error says so."""
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
    """Return the form for all sizes, None if there is none, and those for one shape each."""
    opened = [form for form in forms if form.opened is not None]
    return (opened[0] if opened else None), tuple(form for form in forms if form.opened is None)


def _has_elements(value: Any) -> bool:
    """Return whether a tensor has elements; of a sequence, whether it has tensors, all with elements."""
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
    """Compile the form unless its module is gone. If that gave way to other compilations, submit it again."""
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
