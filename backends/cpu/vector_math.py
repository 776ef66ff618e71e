"""Replace float32 math calls by branch-free polynomials, which LLVM vectorises, and what would come out inexact.

TVM ships LLVM without a vector math library, so `tirx.exp` on 16 lanes becomes 16 calls of libm's `expf`. Every
function here is straight-line arithmetic on one value: selects in place of branches, bits moved by reinterpret.
Error bounds are in ulp of float32 against the exact value, seen over all exponents
(tests/backends/cpu/test_vector_math.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType, TensorLoad
from tvm_ffi.structural import StructuralMutator

from backends.cpu.arc_functions import ARC_FUNCTIONS
from backends.cpu.math_without_scalef import WITHOUT_SCALEF
from backends.cpu.powers import power
from backends.cpu.remainders import fmod
from backends.cpu.vector_terms import (
    EXP_BETWEEN_ROUNDED,
    LEAST_DISTANCE,
    ROUND,
    ROUND_BITS,
    Expr,
    bits,
    clamp,
    erf_in_two,
    f32,
    float_of_bits,
    horner,
    i32,
    nearest,
    with_sign_of,
)  # fmt: skip
from backends.tensorir.exact_values import REWRITTEN, exact, is_inexact, is_narrow_function, widened
from fusion.structural import contains, find, mutate

Approximation = Callable[["_Names", Expr], Expr]


@dataclass(frozen=True)
class VectorizeMath:
    """Rewrite each float32 math call of a PrimFunc; float64, float16 and unknown calls stay.

    `y[i] = T.exp(x[i])`  ->  `m0[v] = x[i]; m1[v] = clamp(m0[v]); ...; y[i] = poly(m0[v], m1[v], ...)`
    `y = T.max(y, x[i])`  ->  `y = T.Select(x[i] <= inf, T.max(x[i], y), x[i])`, and more in exact_values.py.

    Intermediates, and all other float values that are bound to variables, live in buffers of one vector, which LLVM
    turns into registers: TVM's simplifier replaces variables by their values everywhere, so that expressions double
    with each level (1.7 s for one gelu), and then folds (x + c) - c to x, which is wrong for floats. It leaves loads
    alone. Only in the branches of `if_then_else`, whose loads may be out of bounds elsewhere, intermediates are `Let`s.

    Attributes:
        has_scalef: Whether the target multiplies by a power of two in one instruction, as AVX-512 does; elsewhere LLVM
            calls ldexpf for each lane, and forms of `math_without_scalef` are taken.
    """

    has_scalef: bool
    name: str = "vectorize_math"

    def __call__(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `func` with the same signature and its math calls replaced."""
        # Variables have what was loaded or cast, and are five times as many.
        rewriter = _Rewriter(self.has_scalef, contains(func.body, ((TensorLoad, tirx.Cast), _is_bfloat16)))
        return func.with_body(rewriter.rewrite(func.body)) if rewriter.has_work(func.body) else func


@dataclass
class _Rewriter:
    """Walks the statements; knows the vectorised loop around, whose lanes each have their own intermediate values.

    Attributes:
        has_scalef: As in `VectorizeMath`.
        has_bfloat16: Whether the function has values of bfloat16: to ask each bound value for some took a third of what
            this pass did.
        lane: Index of the lane, None outside of vectorised loops.
        lanes: Number of lanes.
        allocated: The buffers to allocate before the vectorised loop.
        moved: What replaces a variable: the element of a buffer that its value went to, or the value.
        has_branches: Whether lanes may take different branches: TVM makes a loop over the lanes of a statement that has
            some, in which variables of the statements before it are unknown.
    """

    has_scalef: bool
    has_bfloat16: bool
    lane: Expr = None
    lanes: int = 1
    allocated: list[tirx.Buffer] = field(default_factory=list)
    moved: dict[tirx.Var, Expr] = field(default_factory=dict)
    has_branches: bool = False

    def rewrite(self, body: Any) -> Any:
        """Return a statement or expression with its math calls replaced."""
        return mutate(
            body,
            [
                (tirx.For, self._for),
                (tirx.SeqStmt, self._sequence),
                (tirx.BufferStore, self._store),
                (tirx.Bind, self._bind),
                (tirx.Var, lambda var, mutator: self.moved.get(var, var)),
                (Call, self._stray),
            ],
        )

    def has_work(self, statement: tirx.Stmt) -> bool:
        """Return whether anything inside is to be replaced; an unrolled micro-kernel is long and has no math at all."""
        calls = (Call, lambda call: _is_math(call) or _is_scalar(call))
        binds = [(tirx.Bind, lambda bind: _has_bfloat16(bind.value))] if self.has_bfloat16 else []
        return contains(statement, calls, (REWRITTEN, is_inexact), (tirx.Mod, _is_float32), *binds)

    def new_temporary(self, dtype: str) -> tuple[tirx.Buffer, Expr]:
        """Return a buffer with one element per lane, and this lane's index."""
        buffer = tirx.decl_buffer((self.lanes,), dtype, "m")
        self.allocated.append(buffer)
        return buffer, tirx.const(0, "int64") if self.lane is None else self.lane

    def _for(self, loop: tirx.For, mutator: StructuralMutator) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.VECTORIZED or self.lane is not None or not isinstance(loop.extent, tirx.IntImm):
            return mutator.default_mutate(loop)
        lane, lanes = loop.loop_var - loop.min, int(loop.extent.value)
        branches = _has_branches_of_lanes(loop)
        inner = _Rewriter(self.has_scalef, self.has_bfloat16, lane, lanes, moved=self.moved, has_branches=branches)
        body = inner.rewrite(loop.body)
        kind = tirx.ForKind.SERIAL if _has_scalar_call(body) else loop.kind
        changed = tirx.For(loop.loop_var, loop.min, loop.extent, kind, body, None, loop.annotations)
        return _flat(*(tirx.AllocBuffer(buffer) for buffer in inner.allocated), changed)

    def _sequence(self, sequence: tirx.SeqStmt, mutator: StructuralMutator) -> tirx.Stmt:
        # A loop around one other has the work that this has: loops are asked where they are one of several.
        return _flat(*(self._rewritten(statement, mutator) for statement in sequence.seq))

    def _rewritten(self, statement: tirx.Stmt, mutator: StructuralMutator) -> tirx.Stmt:
        idle = not self.moved and isinstance(statement, tirx.For) and not self.has_work(statement)
        return statement if idle else mutator.mutate(statement)

    def _store(self, store: tirx.BufferStore, mutator: StructuralMutator) -> tirx.Stmt:
        # To ask takes a tenth of rewriting what stays as it is.
        moved = bool(self.moved) and contains(store, (tirx.Var, self.moved.__contains__))
        if not moved and not self.has_work(store):
            return store
        names = _Names(self.has_scalef, self)
        stored = store.value
        # Stored at once, a float32 cast to bfloat16 is rounded once.
        rounded = isinstance(stored, tirx.Cast) and str(stored.ty.dtype) == "bfloat16"
        value = tirx.Cast("bfloat16", names.rewrite(stored.value)) if rounded else names.rewrite(stored)
        indices = [self.rewrite(index) for index in store.indices]
        return self._after(names, tirx.BufferStore(store.buffer, value, indices))

    def _bind(self, bind: tirx.Bind, mutator: StructuralMutator) -> tirx.Stmt:
        names = _Names(self.has_scalef, self)
        value = names.rewrite(bind.value)
        if str(bind.var.ty) not in _FLOATS and not (self.has_bfloat16 and _has_bfloat16(bind.value)):
            if self.has_branches:
                self.moved[bind.var] = value
                return self._after(names, tirx.Evaluate(0))
            return self._after(names, bind if value.same_as(bind.value) else tirx.Bind(bind.var, value))
        buffer, lane = self.new_temporary(str(bind.var.ty))
        self.moved[bind.var] = tirx.BufferLoad(buffer, [lane])
        return self._after(names, tirx.BufferStore(buffer, value, [lane]))

    def _after(self, names: _Names, statement: tirx.Stmt) -> tirx.Stmt:
        if self.lane is not None:
            return _flat(*names.stores, statement)
        allocations = [tirx.AllocBuffer(buffer) for buffer in self.allocated]
        self.allocated.clear()
        return _flat(*allocations, *names.stores, statement)

    def _stray(self, call: Call, mutator: StructuralMutator) -> Expr:
        """Rewrite a call in a condition, a loop bound or an `Evaluate`."""
        return _in_lets(call, self.has_scalef, self.moved)


def _is_math(call: Call) -> bool:
    """Return whether a call computes a float. One that is not vectorised becomes a loop over the lanes of its statement
    alone, in which the variables of the statements before it are not known: buffers are."""
    return _computes(call, ("float", "bfloat")) and _operation(call) not in _ON_VECTORS


_ON_VECTORS = ("if_then_else", "reinterpret")


def _computes(call: Call, kinds: tuple[str, ...]) -> bool:
    return isinstance(call.ty, PrimType) and str(call.ty.dtype).startswith(kinds)


def _has_branches_of_lanes(loop: tirx.For) -> bool:
    """Return whether a condition in a vectorised loop follows from the lane, or from what the loop binds."""
    of_lanes = {loop.loop_var, *(bind.var for bind in find(loop.body, tirx.Bind))}

    def differs(call: Call) -> bool:
        condition, *_ = call.args if _operation(call) == "if_then_else" else (None,)
        return condition is not None and contains(condition, (tirx.Var, of_lanes.__contains__))

    return contains(loop.body, (Call, differs))


def _has_scalar_call(statement: tirx.Stmt) -> bool:
    """Return whether a call is left that has no form on vectors (sinh, float64's erf): TVM makes its statement a loop
    over the lanes, in which the variables of the vectorised loop around are unknown."""
    return contains(statement, (Call, _is_scalar))


def _is_scalar(call: Call) -> bool:
    if not _computes(call, ("float", "bfloat", "bool")) or not isinstance(call.op, Op):
        return False
    return _operation(call) not in _ON_VECTORS and not call.op.get_attr("TVectorizable")


def _has_bfloat16(value: Expr) -> bool:
    """Return whether a value is made of bfloat16: TVM computes that in float32, but does not look into a `Bind`."""
    return contains(value, ((TensorLoad, tirx.Cast, tirx.Var, tirx.FloatImm), _is_bfloat16))


def _is_bfloat16(leaf: Expr) -> bool:
    return isinstance(leaf.ty, PrimType) and bool(leaf.ty.dtype == "bfloat16")  # the text of a buffer's type takes long


def _is_float32(node: Any) -> bool:
    return isinstance(node.ty, PrimType) and str(node.ty.dtype) == "float32"


def _operation(call: Call) -> str:
    return str(call.op.name).rpartition(".")[2] if isinstance(call.op, Op) else ""  # TVM has tirx.exp and prim.log2


_FLOATS = ("float32", "float64", "float16")


def _flat(*statements: tirx.Stmt) -> tirx.Stmt:
    flat: list[tirx.Stmt] = []
    for statement in statements:
        flat.extend(statement.seq if isinstance(statement, tirx.SeqStmt) else [statement])
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


@dataclass
class _Names:
    """Intermediate values that are used more than once: stores to buffers, or `Let`s where there is no rewriter."""

    has_scalef: bool
    rewriter: _Rewriter | None = None
    moved: dict[tirx.Var, Expr] = field(default_factory=dict)
    stores: list[tirx.Stmt] = field(default_factory=list)
    lets: list[tuple[tirx.Var, Expr]] = field(default_factory=list)

    def bind(self, value: Expr) -> Expr:
        """Return a cheap expression that stands for `value`."""
        if self.rewriter is None:
            var = tirx.Var(f"m{len(self.lets)}", value.ty)
            self.lets.append((var, value))
            return var
        buffer, lane = self.rewriter.new_temporary(str(value.ty.dtype))
        self.stores.append(tirx.BufferStore(buffer, value, [lane]))
        return tirx.BufferLoad(buffer, [lane])

    def rewrite(self, value: Expr) -> Expr:
        """Return an expression with its math calls replaced, innermost first."""
        moved = self.moved if self.rewriter is None else self.rewriter.moved
        rules = [
            (Call, self._call),
            (tirx.Let, self._let),
            (tirx.Var, lambda var, mutator: moved.get(var, var)),
            (REWRITTEN, self._inexact),
            (tirx.Mod, self._remainder),
        ]
        return mutate(value, rules)

    def _inexact(self, node: Any, mutator: StructuralMutator) -> Expr:
        """`exact`, of the node with its operands rewritten."""
        found = is_inexact(node)
        rewritten = mutator.default_mutate(node)
        return exact(rewritten, self.bind) if found and is_inexact(rewritten) else rewritten

    def _remainder(self, node: Any, mutator: StructuralMutator) -> Expr:
        rewritten = mutator.default_mutate(node)
        return fmod(self.bind, self.bind(rewritten.a), rewritten.b) if _is_float32(node) else rewritten

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        if _operation(call) == "if_then_else":
            condition, *branches = call.args
            return tirx.if_then_else(mutator.mutate(condition), *(self._alone(branch) for branch in branches))
        call = mutator.default_mutate(call)
        if is_narrow_function(call):
            return approximate(widened(call), self).astype(call.ty.dtype)
        return approximate(call, self)

    def _let(self, let: tirx.Let, mutator: StructuralMutator) -> Expr:
        """What uses the variable of a `Let` cannot be computed before the statement."""
        return tirx.Let(let.var, mutator.mutate(let.value), self._alone(let.body))

    def _alone(self, value: Expr) -> Expr:
        return _in_lets(value, self.has_scalef, self.moved if self.rewriter is None else self.rewriter.moved)


def _in_lets(value: Expr, has_scalef: bool, moved: dict[tirx.Var, Expr]) -> Expr:
    names = _Names(has_scalef, None, moved)
    result = names.rewrite(value)
    for var, bound in reversed(names.lets):
        result = tirx.Let(var, bound, result)
    return result


def approximate(call: Call, names: _Names) -> Expr:
    """Return the polynomial form of one scalar float32 math call, or the call itself."""
    if not isinstance(call, Call) or not isinstance(call.op, Op):
        return call
    if _operation(call) == "nearbyint":
        return nearest(*call.args)
    # An address, as a prefetch takes it, has no dtype.
    if not isinstance(call.ty, PrimType) or str(call.ty.dtype) != "float32":
        return call
    operation = _operation(call)
    if operation == "pow":
        return power(names.bind, *call.args)
    if operation not in APPROXIMATIONS and operation not in ARC_FUNCTIONS:
        return call
    operand, *_ = call.args
    argument = names.bind(operand)
    if operation in ARC_FUNCTIONS:
        return ARC_FUNCTIONS[operation](names.bind, argument)
    if operation in WITHOUT_SCALEF and not names.has_scalef:
        return WITHOUT_SCALEF[operation](names.bind, argument)
    return APPROXIMATIONS[operation](names, argument)


def _scale_by_power_of_two(names: _Names, value: Expr, rounded: Expr) -> Expr:
    """Return value * 2^n in one instruction; n from `rounded`'s bits."""
    n = names.bind(bits(rounded) - i32(ROUND_BITS))
    return tirx.call_llvm_pure_intrin("float32", "llvm.ldexp", value, n)


def _exp_polynomial(names: _Names, r: Expr) -> Expr:
    """Return e^r for |r| <= ln(2)/2 within 3e-9 (minimax fit of the relative error, the first two coefficients 1)."""
    return horner(r, *EXP_BETWEEN_ROUNDED)


_EXP2 = tuple(coefficient * 0.6931471805599453 ** (6 - place) for place, coefficient in enumerate(EXP_BETWEEN_ROUNDED))
"""The coefficients of the polynomial that is 2^f for |f| <= 1/2."""


def exp(names: _Names, x: Expr) -> Expr:
    """e^x within 2 ulp everywhere, denormal results included; range reduction by Cody and Waite."""
    rounded, r = _reduce_by_ln2(names, names.bind(_limited(x, 90.0)))
    return _scale_by_power_of_two(names, _unless_vanishing(names, x, -105.0, _exp_polynomial(names, r)), rounded)


def _limited(x: Expr, high: float) -> Expr:
    """Return x limited from above; from below it need not be, as 0 * 2^n is 0 at any n."""
    return tirx.Select(x > f32(high), f32(high), x)


def _unless_vanishing(names: _Names, x: Expr, low: float, value: Expr) -> Expr:
    """Return the value that is scaled, or 0 where x < low and the result rounds to 0: to scale down to nothing takes an
    assist of Intel's cores. Attention with half of its keys masked took 3 to 9 times as long."""
    return names.bind(tirx.Select(x < f32(low), f32(0.0), value))


def _normal_exp(names: _Names, x: Expr) -> Expr:
    """e^x within 2 ulp for -87 < x < 88, where the result is neither denormal nor infinite."""
    rounded, r = _reduce_by_ln2(names, x)
    power = float_of_bits(tirx.shift_left(bits(rounded) - i32(ROUND_BITS - 127), i32(23)))
    return _exp_polynomial(names, r) * power


def _reduce_by_ln2(names: _Names, x: Expr) -> tuple[Expr, Expr]:
    """Return n in the low bits of a float, and r, with x = n ln 2 + r and |r| <= ln(2) / 2."""
    rounded = names.bind(x * f32(1.44269504088896341) + f32(ROUND))
    n = names.bind(rounded - f32(ROUND))
    return rounded, names.bind(n * f32(2.12194440e-4) + (x - n * f32(0.693359375)))


def exp2(names: _Names, x: Expr) -> Expr:
    """2^x within 2 ulp."""
    limited = names.bind(_limited(x, 130.0))
    rounded = names.bind(limited + f32(ROUND))
    f = names.bind(limited - (rounded - f32(ROUND)))
    return _scale_by_power_of_two(names, _unless_vanishing(names, x, -151.0, horner(f, *_EXP2)), rounded)


def softmax_weight(names: _Names, x: Expr) -> Expr:
    """e^x for x <= 0, where x is rounded already: 0 below 2^-126, NaN of NaN."""
    rounded, r = _reduce_by_ln2(names, x)
    kept = _unless_vanishing(names, x, LEAST_DISTANCE, _exp_polynomial(names, r))
    return _scale_by_power_of_two(names, kept, rounded)


def sigmoid(names: _Names, x: Expr) -> Expr:
    """1 / (1 + e^-x) within 4 ulp; results under 4e-39 come out as 0: there e^-x is 2^128, which is infinite."""
    return f32(1.0) / (f32(1.0) + _normal_exp(names, names.bind(clamp(f32(0.0) - x, -87.0, 88.72))))


def tanh(names: _Names, x: Expr) -> Expr:
    """tanh(x) within 2 ulp: an odd polynomial to |x| = 0.55, then 1 - 2 / (e^2|x| + 1) (N. Juffa, "tanhf", 2017)."""
    s = names.bind(x * x)
    near = horner(s, 1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1) * s * x + x
    t = names.bind(tirx.abs(x))
    double = t + t
    grown = _normal_exp(names, names.bind(tirx.Select(double > f32(40.0), f32(40.0), double)))
    far = with_sign_of(x, names.bind(f32(1.0) - f32(2.0) / (grown + f32(1.0))))
    return tirx.Select(t < f32(0.55), near, far)


def erf(names: _Names, x: Expr) -> Expr:
    """erf(x) within 2 ulp. Two minimax pieces, joined at |x| = 0.93 (N. Juffa, "erff", NVIDIA forums, 2014)."""
    t = names.bind(tirx.abs(x))
    s = names.bind(x * x)
    high = horner(t, -1.72853470e-5, 3.83197126e-4) * s + horner(t, -3.88396438e-3, 2.42546219e-2)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        high = high * t + f32(coefficient)
    # erf is 1 to the last bit past 4; past 10 the polynomial leaves the range of exp
    power = names.bind(tirx.Select(t > f32(6.0), f32(-60.0), high * t - t))
    bounded = names.bind(f32(1.0) - _normal_exp(names, power))
    return erf_in_two(x, s, t, bounded)


def gelu(names: _Names, x: Expr) -> Expr:
    """x Phi(x) within 2 ulp above 0, 1e-7 below, as max(x, 0) - t Phi(-t) with t = |x|.

    Phi(-t) = 2^p(t), p fitted to log2 Phi(-t) for the least absolute error of Phi (3e-9). These are 18 multiply-adds,
    minima and maxima where erf alone has 26: on two Zen 4 vCPUs 17.9 cycles for 16 elements, with erf 30.
    """
    magnitude = tirx.abs(x)
    t = names.bind(tirx.Select(magnitude > f32(6.5), f32(6.5), magnitude))
    power = names.bind(horner(
        t, 3.585500963e-7, -7.554746844e-6, 6.441922596e-5, -2.552664082e-4, -3.030801778e-5, 6.971312221e-3,
        -5.245421454e-2, -4.592168331e-1, -1.151104689, -1.0,
    ))  # fmt: skip
    rounded = names.bind(power + f32(ROUND))
    fraction = names.bind(power - (rounded - f32(ROUND)))
    # 2^-35 is far from denormal, so n may be added to the bits of the exponent
    shares = bits(names.bind(horner(fraction, *_EXP2))) + tirx.shift_left(bits(rounded), i32(23))
    return tirx.Select(x < f32(0.0), f32(0.0), x) - t * float_of_bits(shares)


def log(names: _Names, x: Expr) -> Expr:
    """ln(x) within 1 ulp, denormals included; -inf at 0, NaN below (N. Juffa, "logf", Stack Overflow 39821367)."""
    small = x < f32(1.1754943508222875e-38)  # no Let: VectorizeLoop cannot bind a vector of booleans
    scaled = names.bind(tirx.Select(small, x * f32(8388608.0), x))
    shift = tirx.Select(small, f32(-23.0), f32(0.0))
    exponent = names.bind(tirx.bitwise_and(bits(scaled) - i32(0x3F2AAAAB), i32(-0x00800000)))
    n = tirx.Cast("float32", exponent) * f32(1.1920928955078125e-7) + shift
    m = names.bind(float_of_bits(bits(scaled) - exponent) - f32(1.0))
    s = names.bind(m * m)
    even = horner(s, -0.130310059, -0.121483512, -0.166846126, -0.249996200)
    odd = horner(s, 0.140869141, 0.139814854, 0.200120345)
    r = horner_from(odd * m + even, m, 0.333331972, -0.5) * s + m
    finite = n * f32(0.693147182) + r
    special = tirx.Select(x == f32(0.0), f32(float("-inf")), tirx.Select(x < f32(0.0), f32(float("nan")), x))
    usual = tirx.And(x > f32(0.0), x < f32(float("inf")))
    return tirx.Select(usual, finite, special)


def horner_from(start: Expr, variable: Expr, *coefficients: float) -> Expr:
    """Return Horner's scheme continued from `start`."""
    for coefficient in coefficients:
        start = start * variable + f32(coefficient)
    return start


def log2(names: _Names, x: Expr) -> Expr:
    """log2(x) within 3 ulp."""
    return log(names, x) * f32(1.44269504088896341)


def log10(names: _Names, x: Expr) -> Expr:
    """log10(x) within 3 ulp."""
    return log(names, x) * f32(0.4342944819032518)


def log1p(names: _Names, x: Expr) -> Expr:
    """ln(1 + x) within 4 ulp: the rounding error of 1 + x is added back to first order."""
    u = names.bind(f32(1.0) + x)
    correction = names.bind((x - (u - f32(1.0))) / u)
    sum_ = names.bind(log(names, u))
    usual = tirx.And(u > f32(0.0), x < f32(float("inf")))
    return tirx.Select(usual, sum_ + correction, sum_)


def sin(names: _Names, x: Expr) -> Expr:
    """sin(x) within 2 ulp or 1e-7, for |x| up to 2^30; NaN at infinity."""
    return _sine(names, x, 0)


def cos(names: _Names, x: Expr) -> Expr:
    """cos(x) within 2 ulp or 1e-7, for |x| up to 2^30; NaN at infinity."""
    return _sine(names, x, 1)


def _sine(names: _Names, x: Expr, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2), reduced by multiples of pi/2 in float64; Cephes' sinf and cosf polynomials."""
    wide = names.bind(tirx.Cast("float64", x))
    rounding = tirx.const(6755399441055744.0, "float64")  # 1.5 * 2^52, as ROUND
    shifted = names.bind(wide * tirx.const(0.6366197723675814, "float64") + rounding)
    n = names.bind(shifted - rounding)
    low = n * tirx.const(6.123233995736766e-17, "float64")
    r = names.bind(tirx.Cast("float32", (wide - n * tirx.const(1.5707963267948966, "float64")) - low))
    quadrant = names.bind(tirx.Cast("int32", tirx.reinterpret("int64", shifted)) + i32(quarter))
    s = names.bind(r * r)
    sine = horner(s, -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1) * s * r + r
    cosine = horner(s, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2) * s * s
    swapped = tirx.bitwise_and(quadrant, i32(1)) == i32(1)
    value = names.bind(tirx.Select(swapped, cosine - f32(0.5) * s + f32(1.0), sine))
    return tirx.Select(tirx.bitwise_and(quadrant, i32(2)) == i32(2), f32(0.0) - value, value)


APPROXIMATIONS: dict[str, Approximation] = {
    make.__name__: make
    for make in (exp, exp2, softmax_weight, sigmoid, tanh, erf, gelu, log, log2, log10, log1p, sin, cos)
}
