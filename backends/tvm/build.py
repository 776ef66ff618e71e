"""Relax's own lowering: a form of each operator, those fused that TVM's patterns fuse, and loops as they come."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from backends.tensorir.legalize.divisions import DIVISIONS
from fusion.bindings import call_name, data_of


def why_not_lowered(call: relax.Call) -> str:
    """Return why TVM has no form of a call, or a wrong one; "" where it has a right one."""
    if call_name(call) == "not_equal" and "float" in str(data_of(call).ty.dtype):
        return "TVM's code takes NaN not to differ from anything"  # of a wrong mask nobody sees NaN
    if not isinstance(call.op, tvm.ir.Op) or call.op.get_attr("FLegalize") is None:
        return f"TVM has no form of {call_name(call) or 'what it calls'}"
    params = list(dict.fromkeys(arg for arg in call.args if isinstance(arg, relax.Var)))
    builder = relax.BlockBuilder()
    try:
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(call)
            builder.emit_func_output(result)
        left = _legalize(builder.finalize())["main"]
    except Exception as error:  # whatever a form raises of operands that it does not take
        return f"TVM's form of {call_name(call)} fails: {type(error).__name__}"
    ops = {str(value.op.name) for block in left.body.blocks for value in _calls(block)}
    return "" if f"relax.{call_name(call)}" not in ops else f"TVM's form of {call_name(call)} does not take this call"


def build(mod: tvm.IRModule) -> Any:
    """Return the executable of a module, whose kernels run on the thread that calls them."""
    return relax.build(_legalize(mod), tvm.target.Target.from_device("cpu"))


def _legalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with kernels in place of operators: TVM's forms, but for divisions that end the process
    there: the lowest integer by -1."""
    return relax.transform.LegalizeOps(DIVISIONS)(mod)


def _calls(block: relax.BindingBlock) -> list[relax.Call]:
    values = (binding.value for binding in block.bindings)
    return [value for value in values if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)]
