"""Every error a user can see: what went wrong, where, why, and what to do next.

Each class has one stable code (`F1xx` input files, `F2xx` models, `F3xx` run time, `F4xx` saved files, `F5xx` targets,
`F9xx` defects of fusion itself), so that scripts can tell them apart and `docs/errors.md` can explain each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class FusionError(Exception):
    """Base of all errors fusion raises on purpose.

    Args:
        what: One sentence that names the failure.
        where: Operator and node name, file, or argument, where there is one.
        why: The cause, as far as it is known.
        hint: What the user can do next.
    """

    code = "F000"

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        lines += [f"  {label}: {text}" for label, text in
                  (("where", self.where), ("why", self.why), ("hint", self.hint)) if text]
        return "\n".join(lines)


class ModelFileError(FusionError):
    """The model file is missing, truncated, not a model, or points at data it must not or cannot read."""

    code = "F101"


class RelayTextError(FusionError):
    """The text of a Relay module breaks the rules of Relay's text form; `where` has line and column."""

    code = "F102"


class ParameterFileError(FusionError):
    """A file of parameters is missing, cut short or no such file."""

    code = "F103"


class InvalidModelError(FusionError):
    """The model was read but breaks its own format's rules: cyclic, empty, ill-typed."""

    code = "F201"


class UnsupportedOperatorError(FusionError):
    """An operator cannot be compiled, and `strict=True` or the lack of a fallback forbids running it elsewhere."""

    code = "F202"


class NeedsFallbackError(UnsupportedOperatorError):
    """ONNX Runtime could run a part of the model, and is not to; who asked knows what would let it."""


class ShapeError(FusionError):
    """`shapes=` names an unknown input or contradicts the model, or an operator's shapes contradict each other."""

    code = "F204"


class LimitError(FusionError):
    """A model, or a tensor of it, is larger than this process can hold or fusion compiles."""

    code = "F205"


class ModelChangedError(FusionError):
    """A model is read again, for a new shape or with other weights, and is not the one any more that was compiled."""

    code = "F206"


class InputError(FusionError):
    """An array given to a compiled module has the wrong name, rank, shape or dtype."""

    code = "F301"


class ExecutionError(FusionError):
    """A compiled module failed while it ran."""

    code = "F302"


class DeviceLostError(FusionError):
    """A device that a compiled module runs on does not answer any more, or not this process."""

    code = "F303"


class SavedFileError(FusionError):
    """A saved module is cut short, damaged, or from another version."""

    code = "F401"


class TargetError(FusionError):
    """The target is unknown, or this machine cannot run code made for it."""

    code = "F501"


class OptionError(FusionError):
    """An option of the API or the command line has a value that is not allowed."""

    code = "F502"


class ResourceError(FusionError):
    """The machine has too little of what the call takes: memory to compile, or threads."""

    code = "F503"


class NotInstalledError(FusionError):
    """A package that the call needs, or the compiler, is not installed here."""

    code = "F504"


class InternalError(FusionError):
    """A defect in fusion; the message says what to report."""

    code = "F901"


class ManyFormsWarning(UserWarning):
    """A module is compiled for more input shapes than a program usually has reason to use; once for each module."""


OTHER_VALUES = "give inputs of other values; where the model itself computes this one, correct the model"
"""What to do about values that an operator does not take."""
Declared = Sequence[int | str | None] | None
"""The shape that a model declares: an open dimension is its name, or None where it has none; None where not even the
rank is known."""


def unknown_input(name: str, inputs: Iterable[str]) -> ShapeError:
    """Return the error of a shape that is given for what is none of the `inputs`."""
    return ShapeError(
        f"the model has no input {name!r}", where=f"shapes[{name!r}]", hint=f"its inputs are {', '.join(inputs)}"
    )


def contradicting(contradiction: str, error: ShapeError | None = None) -> InputError:
    """Return the error of a call whose inputs give one dimension two sizes, of which `error` came, if there is one."""
    return InputError(
        f"the inputs contradict each other: {contradiction}",
        where="" if error is None else error.where,
        why="" if error is None else error.what,
        hint="pad or cut the arrays to one size; dimensions of one name are one",
    )


def out_of_bounds(why: str) -> InputError:
    """Return the error of a call with a size that `bounds=` excludes."""
    return InputError(
        "an input has a size beyond the bounds that the module was compiled for",
        why=why,
        hint="pad or cut the array, or compile the model with other bounds=",
    )


def unknown_shape(
    name: str, declared: Declared, why: str = "", others: Mapping[str, Declared] | None = None
) -> ShapeError:
    """Return the error of an input whose shape must be given.

    Args:
        name: The input's.
        declared: Its shape in the model.
        why: More than that the model leaves it open.
        others: Further inputs whose shapes must be given.
    """
    extents = None if declared is None else ", ".join("?" if size is None else str(size) for size in declared)
    needed = {name: declared, **(others or {})}
    shapes = ", ".join(f"{each!r}: {_placeholders(shape)}" for each, shape in needed.items())
    return ShapeError(
        f"the shape of input {name!r} is not known",
        where=f"input {name!r}",
        why=why or ("the model declares no shape" if extents is None else f"the model declares ({extents})"),
        hint=f"give the sizes that they have in use for the names in shapes={{{shapes}}}",
    )


# What the axes of a tensor of each rank mostly are, for those that the model does not name. An example with numbers
# would be taken for a recommendation, and a model that is compiled for sizes of 1 serves nobody.
_AXES = {
    1: ("length",),
    2: ("batch", "length"),
    3: ("batch", "length", "width"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}


def _placeholders(declared: Declared) -> str:
    """Return a shape as Python writes it, with a name for each size that must be given."""
    shape = (None,) * 4 if declared is None else tuple(declared)
    names = _AXES.get(len(shape), ("batch", *(f"size_{axis}" for axis in range(1, len(shape)))))
    sizes = [name if size is None else str(size) for name, size in zip(names, shape, strict=True)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
