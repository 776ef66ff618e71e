"""Which libraries have ended the process that tried them: they are asked for nothing more in this one."""

from __future__ import annotations

from fusion.errors import ExecutionError

failures: dict[str, str] = {}
"""How each library that was tried has ended the other process, by its name; "" where it has not."""


def raise_if_broken(name: str) -> None:
    """Refuse to ask the library of a name if it has ended the other process.

    Raises:
        ExecutionError: It has.
    """
    failure = failures.get(name, "")
    if failure:
        raise ExecutionError(failure)
