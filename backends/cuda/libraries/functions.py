"""A library's C API, called by ctypes: its functions with their types, and errors that say what to do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping
from ctypes import c_char_p, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from backends.cuda.runtime.device import OpenDevice
from fusion.errors import ExecutionError, FusionError, InternalError, LimitError, NotInstalledError, TargetError
from fusion.system.forks import Lock

T = TypeVar("T")


@dataclass(frozen=True)
class ForeignApi:
    """What a library is.

    Attributes:
        title: Its name in sentences; `name` is that among the backends, and `package` the one from PyPI.
        functions: The parameters of each function, all of which return a status, 0 for success.
        text: The function that says what a status means.
        no_memory: Statuses that say that memory ended; so `lacking`, that the device or the library has not what is
            asked for, and `failed`, that the device did not do it. All others are our mistakes.
    """

    title: str
    name: str
    package: str
    functions: Mapping[str, tuple[Any, ...]]
    text: str
    no_memory: Collection[int]
    lacking: Collection[int]
    failed: Collection[int]

    @property
    def without(self) -> str:
        """What a user may do instead."""
        return f'compile the model without "{self.name}" among its backends'

    def unusable(self, why: str) -> NotInstalledError:
        """Return the error of a library that is not there, or not as it should be."""
        hint = f"pip install {self.package}; or {self.without}"
        return NotInstalledError(f"the module needs {self.title}, which cannot be loaded", why=why, hint=hint)

    def load(self, path: str | None) -> ctypes.CDLL:
        """Load the library.

        Raises:
            NotInstalledError: It is not there, or cannot be loaded.
        """
        if path is None:
            raise self.unusable(f"{self.package} is not installed")
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            raise self.unusable(str(error)) from error


class LibraryFunctions:
    """The functions of one library."""

    def __init__(self, api: ForeignApi, library: ctypes.CDLL) -> None:
        """Give the functions their types.

        Raises:
            NotInstalledError: The library lacks one.
        """
        self.api = api
        self._functions: dict[str, Any] = {}
        for name, parameters in api.functions.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise api.unusable(f"it has no {name}") from error
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function
        self._text = getattr(library, api.text)
        self._text.argtypes, self._text.restype = (c_int,), c_char_p

    def make(self, name: str, *arguments: Any) -> int:
        """Return the handle that a function gives through its first parameter.

        Raises:
            FusionError: As `call`.
        """
        made = c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            FusionError: It returned an error: a LimitError where memory ends, a TargetError where the device has not
                what the call needs, an ExecutionError where the device failed, an InternalError where we are wrong.
        """
        self.check(self.status(name, *arguments), name)

    def check(self, status: int, name: str) -> None:
        """Raise, as `call` does, where a function returned an error."""
        if status:
            raise self._error(status, name)

    def status(self, name: str, *arguments: Any) -> int:
        """Return what a function returns."""
        return int(self._functions[name](*arguments))

    def discard(self, name: str, handle: int) -> None:
        """Call what destroys a handle."""
        self._functions[name](handle)

    def _error(self, status: int, name: str) -> FusionError:
        api = self.api
        why = f"{name} returned {status}: {(self._text(status) or b'').decode(errors='replace')}"
        if status in api.no_memory:
            hint = "use smaller batches, or end other programs on the device"
            return LimitError(f"{api.title} has no memory on the device", why=why, hint=hint)
        if status in api.lacking:
            return TargetError(f"{api.title} has not what a kernel needs on this device", why=why, hint=api.without)
        if status in api.failed:
            hint = f"start another process; or {api.without}"
            return ExecutionError(f"{api.title} failed on the CUDA device", why=why, hint=hint)
        return InternalError(f"{api.title} refuses a call", why=why, hint="report it")


class OpenedOnce(Generic[T]):
    """What is opened for each device once, by whoever asks first."""

    def __init__(self, opened: Callable[[OpenDevice], T]) -> None:
        self._opened = opened
        self._held: dict[OpenDevice, T] = {}
        self._opening = Lock()

    def of(self, device: OpenDevice) -> T:
        """Return what there is for a device."""
        with self._opening:
            if device not in self._held:
                self._held[device] = self._opened(device)
            return self._held[device]

    def clear(self) -> None:
        """Forget all, as where a library was exchanged."""
        with self._opening:
            self._held.clear()
