"""Options that several verbs share, and reading their values."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fusion.errors import OptionError
from fusion.system.files import read_file

SAVED_SUFFIX = ".fusion"
_EXTENT = re.compile(r"[0-9]{1,18}|[A-Za-z_]\w*", re.ASCII)
_SIZES = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?:/([0-9]{1,18}))?", re.ASCII)


def user_path(text: str) -> str:
    """Return the path that an argument names, with the user's home for a "~" at its beginning: shells put it there only
    where a word begins with that, not in `--db=~/x`. The `type` of every argument that is a path."""
    return os.path.expanduser(text)


def add_verb(verbs: Any, name: str, arguments: str, summary: str, description: str = "") -> argparse.ArgumentParser:
    """Add a verb whose `--help` fits a screen of 24 lines: the usage line names the options only once, and no line
    tells of `--help`."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        usage=f"fusion {name} {arguments}[options]",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=26, width=100),
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.set_defaults(parser=parser)
    return parser


def add_model(parser: argparse.ArgumentParser, text: str = "ONNX file, Relay text or saved module (*.fusion)") -> None:
    """Add the positional argument for one model."""
    parser.add_argument("model", type=user_path, metavar="MODEL", help=text)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add `--shape`."""
    parser.add_argument(
        "--shape", action="append", default=[], metavar="X=1,3,8,8",
        help="shape of input X, repeatable; with names: X=n,3,8,w",
    )  # fmt: skip


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add `--bounds`."""
    parser.add_argument(
        "--bounds", action="append", metavar="N=8-512/8", help="sizes of open dimension N, in steps or not; repeatable"
    )


def add_params(parser: argparse.ArgumentParser) -> None:
    """Add `--params`."""
    parser.add_argument(
        "--params", type=user_path, metavar="FILE", help="of a Relay module: .npz or relay.save_param_dict's"
    )


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add what steers a compilation."""
    add_shapes(parser)
    add_bounds(parser)
    add_params(parser)
    targets = '"llvm" (this machine, default), "llvm -mcpu=NAME", "cuda [-arch=NAME]"'
    parser.add_argument("--target", metavar="T", help=targets)
    parser.add_argument("--effort", metavar="E", help="fast (default); balanced: measures kernels, 30 s; or max: 10 m")
    parser.add_argument("--threads", type=int, metavar="N", help="worker threads; all allowed CPUs by default")
    parser.add_argument("--precision", metavar="P", help="fp32 (default), bf16, bf16-or-fp32 or tf32")
    parser.add_argument("--strict", action="store_true", help="refuse models that need a fallback")
    parser.add_argument("--no-cache", action="store_true", help="compile anew, and keep nothing for the next time")
    add_database(parser, "measurements of kernels: balanced adds to them")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def add_backends(parser: argparse.ArgumentParser) -> None:
    """Add `--backends`."""
    parser.add_argument(
        "--backends", type=_names, metavar="A,B", help="who may run parts: openvino,cpu"
    )


def add_database(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--db`."""
    parser.add_argument("--db", type=user_path, metavar="FILE", help=text)


def add_timing(parser: argparse.ArgumentParser) -> None:
    """Add `--timing`."""
    parser.add_argument("--timing", action="store_true", help="say what each stage of compiling took")


def add_dump(parser: argparse.ArgumentParser) -> None:
    """Add `--dump`."""
    parser.add_argument(
        "--dump", type=user_path, metavar="DIR", help="write the module between passes there; compiles anew"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add what gives a run its inputs."""
    parser.add_argument(
        "--input", action="append", default=[], metavar="X=FILE.npy", help="an input; random if not given"
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="of random inputs")


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """Return shapes by input name from "x=1,3,480,480"; "x=" is the shape of a scalar. Dimensions that stay open have a
    name in place of a size: "x=batch,3,480,width".

    Raises:
        OptionError: A text has another form, or a name comes twice.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, separator, extents = text.rpartition("=")
        if not separator or not name:
            raise OptionError(f"cannot read --shape {text}", hint="write --shape NAME=EXTENTS: --shape x=1,3,480,480")
        if name in shapes:
            raise OptionError(f"--shape names the input {name!r} twice", hint="give each input one shape")
        shapes[name] = _parse_extents(text, extents)
    return shapes


def parse_bounds(texts: Sequence[str] | None) -> dict[str, range]:
    """Return the sizes of open dimensions by their names from "length=1-512" and, in steps of 32,
    "width=32-2048/32"; of None, as where the option is not given, none.

    Raises:
        OptionError: A text has another form or names no size, or a name comes twice.
    """
    bounds: dict[str, range] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        found = _SIZES.fullmatch(sizes)
        smallest, largest, step = (int(part or 1) for part in found.groups()) if found else (1, 0, 1)
        if not name or smallest > largest or step < 1:
            raise OptionError(
                f"cannot read --bounds {text}",
                hint="write --bounds NAME=SMALLEST-LARGEST, and /STEP if there is one: --bounds width=32-512/32",
            )
        if name in bounds:
            raise OptionError(f"--bounds names the dimension {name!r} twice", hint="give each dimension one range")
        bounds[name] = range(smallest, largest + 1, step)
    return bounds


def known_shapes(shapes: Mapping[str, Sequence[int | str]]) -> dict[str, tuple[int, ...]]:
    """Return those of `shapes` that have no names in them."""
    return {
        name: tuple(int(extent) for extent in shape)
        for name, shape in shapes.items()
        if not any(isinstance(extent, str) for extent in shape)
    }


def parse_sizes(texts: Sequence[str], verb: str) -> dict[str, tuple[int, ...]]:
    """Return what `parse_shapes` does, for a verb to which names say nothing.

    Raises:
        OptionError: As there, or a dimension has a name.
    """
    shapes = parse_shapes(texts)
    known = known_shapes(shapes)
    if len(known) < len(shapes):
        raise OptionError(
            f"names of dimensions in --shape have no use with {verb}", why="it needs all sizes", hint="give numbers"
        )
    return known


def _parse_extents(text: str, extents: str) -> tuple[int | str, ...]:
    fields = [field.strip() for field in extents.split(",")] if extents else []
    if not all(_EXTENT.fullmatch(field) for field in fields):
        raise OptionError(
            f"cannot read --shape {text}",
            why=f"{extents!r} is no list of whole numbers, 0 or more, and names of dimensions that stay open",
            hint="give one for each dimension: --shape x=1,3,480,480, or --shape x=batch,3,480,width",
        )
    return tuple(int(field) if field.isdigit() else field for field in fields)


def read_inputs(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return arrays by input name from "x=file.npy".

    Raises:
        OptionError: A text has another form, a name comes twice, or a file cannot be read as an array of numbers.
    """
    files: dict[str, str] = {}
    for text in texts:
        name, file = _split_input(text)
        if name in files:
            raise OptionError(f"--input names the input {name!r} twice", hint="give each input one array")
        files[name] = file
    return {name: _read_array(Path(file)) for name, file in files.items()}


def input_file(text: str) -> str:
    """Return the file that "x=file.npy" names.

    Raises:
        OptionError: The text has another form.
    """
    return _split_input(text)[1]


def _split_input(text: str) -> tuple[str, str]:
    # A name may hold "=", a file given to this option cannot.
    name, separator, file = text.rpartition("=")
    if not separator or not name:
        raise OptionError(f"cannot read --input {text}", hint="write --input NAME=FILE.npy")
    return name, user_path(file)


def _read_array(path: Path) -> np.ndarray:
    try:
        array = np.load(BytesIO(read_file(path)), allow_pickle=False)
    except Exception as error:  # a damaged file raises whatever numpy, zipfile and zlib raise
        raise OptionError(
            f"cannot read the array in {path}", why=str(error), hint="write it with numpy.save"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise OptionError(f"{path} holds several arrays", hint="write one array with numpy.save")
    return array
