"""Writes a model as Relax source: a Python file with TVMScript, and its weights in a file of safetensors beside it."""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi.structural import structural_equal

import fusion
from fusion.errors import InternalError, OptionError, UnsupportedOperatorError
from fusion.frontends import ImportedModel
from fusion.passes.inline_branches import InlineBranches
from fusion.tensors import as_numpy

_INLINE = ("bool", "int32", "int64", "float32", "float64")
"""Dtypes of scalars that the printer writes exactly, as far as they are finite."""
_IMPORT = re.compile(r"^# (from tvm\.script import (?:ir as I|relax as R|tirx as T))$", re.MULTILINE)

_FILE = '''\
"""{name} as a Relax module, converted by fusion {version}.

    from {name} import load

    module = fusion.compile({module})

{signature}
"""

from pathlib import Path

from safetensors.numpy import load_file
from tvm import IRModule, relax
{imports}

{script}


def load() -> IRModule:
    """Return `Module` with the weights in {weights} as its constants."""
    return relax.transform.BindParams("main", load_file(Path(__file__).with_name("{weights}")))(Module)
'''
_FILE_ALONE = '''\
"""{name} as a Relax module, converted by fusion {version}.

    from {name} import Module

    module = fusion.compile({module})

{signature}
"""

{imports}

{script}
'''


def write_relax(imported: ImportedModel, path: Path, params: Mapping[str, np.ndarray]) -> Path | None:
    """Write a model to the Python file `path`, and its weights to NAME.safetensors beside it; return that file, None
    where it has none besides scalars.

    Args:
        imported: The model.
        path: Its stem is a name of Python.
        params: Names that weights are known by.

    Raises:
        UnsupportedOperatorError: TVM's printer writes the module in a way that its parser does not read.
        OptionError: The files cannot be written.
    """
    named = _lift(imported, params)
    text, weights = _render(path.stem, imported, named)
    _write(path, text, weights, named.values)
    return path.with_name(weights) if weights else None


@dataclass
class _Named:
    """A module whose parameters have names of Python, and its weights by those names."""

    mod: tvm.IRModule
    inputs: list[str] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)


def _lift(imported: ImportedModel, params: Mapping[str, np.ndarray]) -> _Named:
    """Return the module of `imported` with its constants, but scalars, as parameters, called as `params` calls them."""
    mod = relax.transform.CanonicalizeBindings()(InlineBranches(imported.branches)(imported.mod))
    main = mod["main"]
    names = _Identifiers()
    inputs = {
        old: relax.Var(names.make(spec.name), old.ty) for old, spec in zip(main.params, imported.inputs, strict=True)
    }
    lift = _LiftConstants(names, params)
    body = lift.visit_expr(main.bind_params(inputs).body)
    lifted = relax.Function(
        [*inputs.values(), *lift.weights], body, main.ret_ty, main.is_pure, main.attrs
    ).with_attr("num_input", len(inputs))
    result = tvm.IRModule({**mod.functions})
    result.update_func(result.get_global_var("main"), lifted)
    return _Named(result, [str(variable.name) for variable in inputs.values()], lift.values)


class _Identifiers:
    """Makes names that Python takes, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def make(self, name: str) -> str:
        """Return `name`, or what is most like it."""
        base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        base = f"_{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
        found, number = base, 0
        while found in self._taken:
            number += 1
            found = f"{base}_{number}"
        self._taken.add(found)
        return found


@mutator
class _LiftConstants(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    """Replaces constants by parameters; equal ones, as far as `params` has them, keep their name there."""

    def __init__(self, names: _Identifiers, params: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.names = names
        self.known = {_key(array): name for name, array in params.items()}
        self.found: dict[Any, relax.Var] = {}
        self.weights: list[relax.Var] = []
        self.values: dict[str, np.ndarray] = {}

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        """Replace one constant."""
        if not isinstance(op.value, tvm.runtime.Tensor):
            return op
        array = as_numpy(op.value)
        if array.ndim == 0 and array.dtype.name in _INLINE and np.isfinite(array):
            return op
        key = _key(array)
        if key not in self.found:
            name = self.names.make(self.known.get(key, f"w{len(self.weights)}"))
            self.found[key] = relax.Var(name, relax.TensorType(array.shape, str(op.value.dtype)))
            self.weights.append(self.found[key])
            self.values[name] = array
        return self.found[key]


def _key(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.name, array.shape, hashlib.blake2b(np.ascontiguousarray(array).tobytes()).digest()


def _render(name: str, imported: ImportedModel, named: _Named) -> tuple[str, str | None]:
    """Return the text of the Python file, and the name of the file of weights.

    Raises:
        UnsupportedOperatorError: TVM's printer writes the module in a way that its parser does not read.
    """
    script = str(named.mod.script())
    _check_statements(script, named.mod)
    _check_loads(script, named.mod)
    weights = f"{name}.safetensors" if named.values else None
    imports = "\n".join(_IMPORT.findall(script))
    text = (_FILE if weights else _FILE_ALONE).format(
        name=name,
        version=fusion.__version__,
        module="load()" if weights else "Module",
        signature="\n".join(_signature(imported, named.inputs)),
        imports=imports,
        script=_IMPORT.sub("", script).strip(),
        weights=weights,
    )
    return text, weights


def _signature(imported: ImportedModel, names: Sequence[str]) -> list[str]:
    lines = [
        f"input   {name}: {spec.dtype}{list(spec.shape or ())}"
        + (f", '{_quoted(spec.name)}'" if spec.name != name else "")
        for spec, name in zip(imported.inputs, names, strict=True)
    ]
    return lines + [f"output  {_quoted(spec.name)}: {spec.dtype}{list(spec.shape or ())}" for spec in imported.outputs]


def _quoted(name: str) -> str:
    """Return `name`, which is whatever the model says, as a docstring shows it: nothing in it ends the docstring."""
    return name.encode("unicode_escape").decode().replace("\\", "\\\\").replace('"', '\\"')


def _check_statements(script: str, mod: tvm.IRModule) -> None:
    """Raise unless `script` is one class of the functions of `mod`: whatever else stood in it would run on import."""
    try:
        statements = ast.parse(script).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnsupportedOperatorError(
            "TVM writes the module as what is no Python",
            why=str(error)[:300],
            hint="give functions names of Python; otherwise compile the model itself, and report this",
        ) from error
    only = statements[0] if len(statements) == 1 else None
    functions = [part for part in only.body if not _is_attributes(part)] if isinstance(only, ast.ClassDef) else []
    found = [part.name if isinstance(part, ast.FunctionDef) else "" for part in functions]
    if sorted(found) != sorted(var.name_hint for var in mod.get_global_vars()):
        raise UnsupportedOperatorError(
            "TVM writes more than the functions of the module",
            why="the name of a function is none in Python",
            hint=f"the functions are {', '.join(repr(var.name_hint) for var in mod.get_global_vars())}",
        )


def _is_attributes(part: ast.stmt) -> bool:
    """Return whether `part` is the call that gives a class the attributes of its module."""
    call = part.value if isinstance(part, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) == "I.module_attrs"


def _check_loads(script: str, mod: tvm.IRModule) -> None:
    try:
        same = structural_equal(tvm.script.from_source(script), mod)
    except Exception as error:  # whatever TVM's parser raises
        raise UnsupportedOperatorError(
            "TVM cannot read the module that its printer writes",
            why=" ".join(str(error).split())[:300],
            hint="compile the model itself, and report this",
        ) from error
    if not same:
        raise InternalError("TVM reads another module than its printer wrote", hint="report it with the model")


def _write(path: Path, text: str, weights: str | None, values: Mapping[str, np.ndarray]) -> None:
    try:
        if weights is not None:
            save_file({name: np.ascontiguousarray(array) for name, array in values.items()}, path.with_name(weights))
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"cannot write {str(path)[:200]!r}", why=why) from error
