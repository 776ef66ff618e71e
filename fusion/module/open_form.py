"""The form of a module for all sizes of its open dimensions: made once, when a call first needs it."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from concurrent.futures import Future

from fusion.declined import Declined
from fusion.errors import FusionError, ModelChangedError, ModelFileError, ResourceError
from fusion.failures import report
from fusion.module import background
from fusion.module.specialization import Shapes, Specialization
from fusion.symbolic.open_dims import CallAtFault
from fusion.system.abandon import checkpoint
from fusion.system.forks import Lock

_PASSING = (ResourceError, ModelChangedError, ModelFileError)
Make = Callable[[Shapes | None], Specialization]
Making = Future[Shapes | None]
_UNDER_WAY = "being compiled for all sizes"
_KNOWN = 256
"""Shapes that are known to be the form's: reading their sizes takes 5 us, as long as a short kernel."""
_log = logging.getLogger("fusion")


class OpenForm:
    """Makes the form, and says for which shapes it is."""

    def __init__(self, make: Make | None, ready: Specialization | None = None) -> None:
        """
        Args:
            make: Compiles it, given the shapes of the first call, None without one: a model that does not take all
                sizes has a form for some that are like these. Raises `Declined` with the reason where the model has
                none, `CallAtFault` where another call may be the first. None where it is not made.
            ready: The form itself, of a loaded module.
        """
        self._make = make
        self.form = ready
        self.reason = ""
        """Why the model has none, once that is known."""
        self.when_known: Callable[[], None] = _nothing
        """Called once it is known what it is."""
        self._known: set[Shapes] = set()
        self._first: Shapes | None = None
        self._making: Making | None = None
        self._lock = Lock(self._forget_other_threads)

    def renewed(self, ready: Specialization | None) -> OpenForm:
        """Return the same with `ready` in place of the form there is."""
        again = OpenForm(self._make, ready)
        again.reason, again._first = self.reason, self._first
        return again

    @property
    def is_due(self) -> bool:
        """Whether it is not known yet what it is."""
        return self.form is None and self._make is not None and not self.reason

    @property
    def outlook(self) -> str:
        """What becomes of it, as a sentence; empty where it is made, or nobody wants one."""
        if self.reason:
            return f"no form for all sizes: {self.reason}"
        if not self.is_due:
            return ""
        return "a form for all sizes is made with the first call" if self._making is None else _UNDER_WAY

    def find(self, shapes: Shapes) -> Specialization | None:
        """Return the form, if it is made and for these shapes."""
        form = self.form
        if shapes in self._known:
            return form
        if form is None or form.opened is None or form.opened.sizes(shapes) is None:
            return None
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known.add(shapes)
        return form

    def bounds(self) -> list[str]:
        """Return for which sizes it is, if it is made, in one line."""
        plan = None if self.form is None else self.form.opened
        return [] if plan is None else [f"that for {plan.describe_bounds()}"]

    def finish(self, first: Shapes | None = None) -> None:
        """Make it, or wait until another thread has.

        Args:
            first: The shapes of the call that needs it, None without one.
        """
        self._note(first)
        while self.is_due:
            making: Making = Future()
            self._run(making)
            if making.done():
                making.result()
                return
            other = self._making
            if other is not None and other.exception() is None and (first is None or other.result() is self._first):
                return
            # It was abandoned, or somebody interrupted the thread that made it, or that had none with another first
            # call than this one: this thread makes it itself.
            self._note(first)

    def begin(self, first: Shapes) -> bool:
        """Have the background make it for a call with the shapes `first`, unless somebody does; False if that takes no
        jobs."""
        self._note(first)
        with self._lock:
            if self._making is not None or not self.is_due:
                return True
            making: Making = Future()
            # Noted once it is queued: if an interrupt comes between, nobody waits for what nobody makes.
            if not background.submit(functools.partial(_run_if_used, weakref.ref(self), making)):
                return False
            self._making = making
            return True

    def _note(self, first: Shapes | None) -> None:
        """Note the shapes of the first call; a reason not to make it that was found without holds no longer."""
        with self._lock:
            if self._first is None and first is not None:
                self._first = first
                if self.reason:
                    self.reason, self._making = "", None

    def _run(self, making: Making) -> None:
        """Make it and fulfil `making` with the first call it was made for, unless it is made or another's to make."""
        try:
            if not self._is_to_make(making):
                return
            checkpoint()()
            first = self._find_out()
        except BaseException as error:  # it was abandoned, or interrupted
            self._give_up(making)
            making.set_exception(error)
        else:
            if self.is_due:
                self._give_up(making)
            else:
                self.when_known()
            making.set_result(first)

    def _is_to_make(self, making: Making) -> bool:
        with self._lock:
            if self._making is None and self.is_due:
                self._making = making
            return self._making is making

    def _give_up(self, making: Making) -> None:
        with self._lock:
            if self._making is making:
                self._making = None

    def _find_out(self) -> Shapes | None:
        """Make the form, or note why the model has none: there is one for each shape then. Of what passes, a lack of
        memory or a file that is away, calls for one shape tell. Return the shapes of the first call that it was made
        for."""
        make, first = self._make, self._first
        assert make is not None
        try:
            self.form = make(first)
        except CallAtFault as reason:
            self._first = None
            _log.info("there is no form for all sizes yet: %s", reason)
        except Declined as reason:
            self._decline(str(reason), first)
        except (MemoryError, *_PASSING) as error:
            _log.info("there is no form for all sizes yet: %s", error)
        except FusionError as error:
            self._decline(error.what, first)
        except Exception as error:  # a defect, or whatever TVM's checks raise
            self.reason = report("compiling for all sizes failed", error)
        return first

    def _decline(self, reason: str, first: Shapes | None) -> None:
        """Note why the model has none, unless that is for want of a first call that has come meanwhile."""
        with self._lock:
            self.reason = reason if self._first is first else ""

    def _forget_other_threads(self) -> None:
        self._making = None


def _nothing() -> None:
    pass


def _run_if_used(used: weakref.ref[OpenForm], making: Making) -> None:
    """Make the form unless its module is gone, which then nobody waits for."""
    form = used()
    if form is not None:
        form._run(making)
