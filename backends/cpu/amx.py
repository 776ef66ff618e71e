"""Tiles of Intel's AMX: products of 32 rows by 16 columns, of bytes, of bfloat16, or of float32 as three terms of
bfloat16 each.

A float32 is the sum of three bfloat16 without a rest: its first eight bits, the next eight, and the last. Of the nine
products of two such sums the six largest are as exact as a product of float32 (Henry, Tang & Heinecke, "Leveraging the
bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019), and AMX makes them in less
time than AVX-512 the one.

A tile is 1 KiB that lies together. One of a left operand has 16 rows of 64 bytes, neighbouring elements of k; one of a
right operand has for 16 columns each what 4 bytes of a row are multiplied by (Intel SDM vol. 2, TDPBF16PS, TDPBUSD). A
step is as many elements of k as 64 bytes are, 32 of bfloat16 or 64 of bytes:

    left operand    [step][term][row / 16][row % 16][k % 32]        bytes and bfloat16 have one term
    right operand   [step][term][k % 32 / 2][column][k % 2]         bytes [step][k % 64 / 4][column][k % 4]
    sums            [row][column]                                   float32, of bytes int32

Five tiles are used, not eight. Where the other thread of a core runs, a core renames few more tiles than eight, so that
all but the live ones are what it has to work ahead with: cycles a TDPBF16PS with 8, 7, 6, 5 and 4 live tiles 70, 56,
50, 36 and 36, on an idle core 19 with each (Emerald Rapids, data that is not zero).

Linux grants tiles to a process that asks, or not: a kernel asks in each task, which takes a system call, and does
without where they are not granted. TVM has no type for tiles; a kernel that calls these needs
`nest.use_functions` of the `functions` of its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm import tirx

from backends.cpu.costs import CACHE_LINE
from backends.cpu.tile_permission import ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA
from backends.tensorir.emit import Expr, Nest, int64

ROWS, COLUMNS = 32, 16
"""Of a product."""

DEPTH, TERM_COUNT = 32, 3
"""Of float32: elements of k of a step, and terms of a number."""

TERM_BITS = 0xFFFF0000
"""Those of a float32 that are its first term."""

_BEGIN, _END = "fusion_amx_begin", "fusion_amx_end"
_FETCH, _SPLIT_ROW, _SPLIT_WEIGHTS = "fusion_amx_fetch", "fusion_amx_split_row", "fusion_amx_split_weights"

_TILE_BYTES, _USED = 1024, 5


@dataclass(frozen=True)
class Numbers:
    """A kind of numbers that are multiplied in tiles.

    Attributes:
        name: For functions.
        instruction: LLVM's, of a product of two tiles.
        depth: Elements of k of a step.
        terms: Of each number.
        products: Terms of both operands that are multiplied, in an order in which neighbours share one.
        others: The functions in LLVM's language that a kernel needs beside those of tiles.
        later_lines: Cache lines of weights for later that a step fetches. Each takes one of the few buffers in which a
            core waits for memory, so that they are spread over the products of a step: asked for behind these, all at
            once, they made 128 rows of 768x3072 take 1.08 times as long, spread 0.93 to 0.96.
    """

    name: str
    instruction: str
    depth: int
    terms: int
    products: tuple[tuple[int, int], ...]
    others: tuple[str, ...] = ()
    later_lines: int = 0

    @property
    def row_bytes(self) -> int:
        """Of a left operand's step."""
        return 2 * self.terms * _TILE_BYTES

    @property
    def weight_bytes(self) -> int:
        """Of a right operand's step."""
        return self.terms * _TILE_BYTES

    def use_tiles(self, nest: Nest) -> None:
        """Let the statements of `nest` call what multiplies these numbers."""
        nest.use_functions(_GRANTS)
        for text in (_FETCH_IR, *self.others, _multiply_function(self)):
            nest.call_functions(text, finished=True)

    def multiply(
        self, left: tirx.BufferLoad, right: tirx.BufferLoad, sums: tirx.BufferLoad, steps: Expr, clears: Expr,
        later: tirx.BufferLoad, apart: Expr,
    ) -> tirx.Stmt:  # fmt: skip
        """Return the statement that adds the product of operands to sums, or stores it.

        Args:
            left, right, sums: Their first elements.
            steps: Of k; one at least. TVM narrows what fits to 32 bits, so the function takes as many.
            clears: An int32: whether the sums begin with 0.
            later: The first of what is fetched into L2 meanwhile.
            apart: Bytes from one of its lines that are fetched to the next; 0 fetches nothing more.
        """
        left_at, right_at, sums_at, later_at = (tirx.address_of(load) for load in (left, right, sums, later))
        name, many = f"fusion_amx_multiply_{self.name}", tirx.Cast("int32", int64(steps))
        called = tirx.call_extern("int32", name, left_at, right_at, sums_at, many, clears, later_at, int64(apart))
        return tirx.Evaluate(called)


def begin() -> Expr:
    """Return an int32, 1 where this thread may use tiles from here to `end`, 0 where it may not."""
    return tirx.call_extern("int32", _BEGIN)


def end() -> tirx.Stmt:
    """Return the statement that gives the tiles back, where they were granted."""
    return tirx.Evaluate(tirx.call_extern("int32", _END))


def fetch(first: tirx.BufferLoad, size: int) -> tirx.Stmt:
    """Return the statement that asks for the cache lines of `size` bytes from `first` on ahead of their use; addresses
    past the end of a buffer are harmless."""
    lines = tirx.const(size // CACHE_LINE, "int32")
    return tirx.Evaluate(tirx.call_extern("int32", _FETCH, tirx.address_of(first), lines))


def split_row(first: tirx.BufferLoad, terms: tirx.BufferLoad, seen: tirx.BufferLoad) -> tirx.Stmt:
    """Return the statement that splits a row's 32 elements of a step into terms of a left operand.

    Args:
        first: The first element.
        terms: Where its first term is put.
        seen: 16 uint32, each the largest of what it was and the bits, without signs, of the elements.
    """
    addresses = (tirx.address_of(load) for load in (first, terms, seen))
    return tirx.Evaluate(tirx.call_extern("int32", _SPLIT_ROW, *addresses))


def split_weights(
    weights: tirx.BufferLoad, terms: tirx.BufferLoad, seen: tirx.BufferLoad, pairs: Expr
) -> tirx.Stmt:
    """Return the statement that splits the weights of 16 columns, of neighbouring elements of k, into terms of a right
    operand; see `split_row`.

    Args:
        weights: The first of [k][16].
        pairs: Of elements of k, one at least; as in `Numbers.multiply`.
    """
    addresses = (tirx.address_of(load) for load in (weights, terms, seen))
    return tirx.Evaluate(tirx.call_extern("int32", _SPLIT_WEIGHTS, *addresses, tirx.Cast("int32", int64(pairs))))


def _configuration() -> str:
    """Return the 64 bytes of a tile configuration, palette 1, in LLVM's language."""
    columns = b"".join((64 if tile < _USED else 0).to_bytes(2, "little") for tile in range(16))
    rows = bytes(16 if tile < _USED else 0 for tile in range(16))
    return "".join(f"\\{byte:02X}" for byte in bytes([1, *[0] * 15]) + columns + rows)


def _load(tile: int, base: str, at: int, step: str) -> list[str]:
    """Return the load of the tile `at` places of a tile behind `base`, under names that end in `step`."""
    return [
        f"  %{step} = getelementptr i8, ptr %{base}, i64 {at * _TILE_BYTES}",
        f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %{step}, i64 64)",
    ]


def _products(numbers: Numbers) -> str:
    """Return the products of a step, among them the fetches of the right operand's next one, and of lines for later."""
    lines, later = list[str](), "%later.here"
    held: tuple[int | None, int | None] = None, None
    fetched, fetched_later = (
        many // (2 * len(numbers.products)) for many in (numbers.weight_bytes // CACHE_LINE, numbers.later_lines)
    )
    for number, (left, right) in enumerate(numbers.products):
        if left != held[0]:
            lines += _load(2, "left", 2 * left, f"l0.{number}") + _load(3, "left", 2 * left + 1, f"l1.{number}")
        if right != held[1]:
            lines += _load(4, "right", right, f"r.{number}")
        held = left, right
        for sums in (0, 1):
            lines.append(f"  call void @{numbers.instruction}(i8 {sums}, i8 {2 + sums}, i8 4)")
            for place in range(fetched):
                line = (2 * number + sums) * fetched + place
                lines.append(f"  %line.{line} = getelementptr i8, ptr %right.next, i64 {line * CACHE_LINE}")
                lines.append(f"  call void @llvm.prefetch.p0(ptr %line.{line}, i32 0, i32 3, i32 1)")
            for place in range(fetched_later):
                line = (2 * number + sums) * fetched_later + place
                lines.append(f"  call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 2, i32 1)")
                lines.append(f"  %later.{line} = getelementptr i8, ptr {later}, i64 %apart")
                later = f"%later.{line}"
    lines.append(f"  %later.next = getelementptr i8, ptr {later}, i64 0")
    return "\n".join(lines)


def _split(order: Iterable[int], apart: int) -> str:
    """Return the split of %value.0.0 and %value.1.0, vectors of float32, into terms at %terms.here: a term of both are
    the high halves of their words, in an `order` that counts all halves, and terms are `apart` elements apart. %largest
    is in each lane the largest of %before and of the bits, without signs, of both."""
    halves = ", ".join(f"i32 {place}" for place in order)
    lines: list[str] = []
    for term in range(TERM_COUNT):
        for half in (0, 1):
            here = f"{half}.{term}"
            lines += [
                f"  %bits.{here} = bitcast <16 x float> %value.{here} to <16 x i32>",
                f"  %halves.{here} = bitcast <16 x i32> %bits.{here} to <32 x i16>",
                f"  %high.{here} = and <16 x i32> %bits.{here}, splat (i32 {TERM_BITS})",
                f"  %term.{here} = bitcast <16 x i32> %high.{here} to <16 x float>",
                f"  %value.{half}.{term + 1} = fsub <16 x float> %value.{here}, %term.{here}",
            ]
        lines += [
            f"  %both.{term} = shufflevector <32 x i16> %halves.0.{term}, <32 x i16> %halves.1.{term}, "
            f"<{DEPTH} x i32> <{halves}>",
            f"  %to.{term} = getelementptr i16, ptr %terms.here, i64 {term * apart}",
            f"  store <{DEPTH} x i16> %both.{term}, ptr %to.{term}, align 2",
        ]
    for half in (0, 1):
        before = "%larger" if half else "%before"
        lines += [
            f"  %size.{half} = and <16 x i32> %bits.{half}.0, splat (i32 {0x7FFFFFFF})",
            f"  %{'largest' if half else 'larger'} = call <16 x i32> @llvm.umax.v16i32"
            f"(<16 x i32> {before}, <16 x i32> %size.{half})",
        ]
    return "\n".join(lines)


_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"

_FETCH_IR = f"""
{_PREFETCH}

define i32 @{_FETCH}(ptr %first, i32 %lines) {{
all:
  br label %line
line:
  %place = phi i32 [ 0, %all ], [ %next, %line ]
  %here = phi ptr [ %first, %all ], [ %behind, %line ]
  call void @llvm.prefetch.p0(ptr %here, i32 0, i32 3, i32 1)
  %behind = getelementptr i8, ptr %here, i64 {CACHE_LINE}
  %next = add nuw nsw i32 %place, 1
  %more = icmp ult i32 %next, %lines
  br i1 %more, label %line, label %done
done:
  ret i32 0
}}
"""

_LARGEST = "declare <16 x i32> @llvm.umax.v16i32(<16 x i32>, <16 x i32>)"

_SPLIT_ROW_IR = f"""
{_LARGEST}

define i32 @{_SPLIT_ROW}(ptr %first, ptr %terms.here, ptr %seen) {{
  %second = getelementptr float, ptr %first, i64 16
  %value.0.0 = load <16 x float>, ptr %first, align 4
  %value.1.0 = load <16 x float>, ptr %second, align 4
  %before = load <16 x i32>, ptr %seen, align 4
{_split(range(1, 64, 2), apart=ROWS * DEPTH)}
  store <16 x i32> %largest, ptr %seen, align 4
  ret i32 0
}}
"""

_BY_COLUMN = tuple(half for column in range(1, 32, 2) for half in (column, column + 32))
"""The high halves of both words of each column after each other."""

_SPLIT_WEIGHTS_IR = f"""
{_LARGEST}

define i32 @{_SPLIT_WEIGHTS}(ptr %weights, ptr %terms, ptr %seen, i32 %pairs) {{
all:
  %known = load <16 x i32>, ptr %seen, align 4
  br label %pair
pair:
  %place = phi i32 [ 0, %all ], [ %next, %pair ]
  %first = phi ptr [ %weights, %all ], [ %first.next, %pair ]
  %terms.here = phi ptr [ %terms, %all ], [ %terms.next, %pair ]
  %before = phi <16 x i32> [ %known, %all ], [ %largest, %pair ]
  %second = getelementptr float, ptr %first, i64 16
  %value.0.0 = load <16 x float>, ptr %first, align 4
  %value.1.0 = load <16 x float>, ptr %second, align 4
{_split(_BY_COLUMN, apart=DEPTH * COLUMNS)}
  %first.next = getelementptr float, ptr %first, i64 32
  %terms.next = getelementptr i16, ptr %terms.here, i64 32
  %next = add nuw nsw i32 %place, 1
  %more = icmp ult i32 %next, %pairs
  br i1 %more, label %pair, label %done
done:
  store <16 x i32> %largest, ptr %seen, align 4
  ret i32 0
}}
"""

_GRANTS = f"""
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()

@fusion_amx_configuration = private constant [64 x i8] c"{_configuration()}", align 64

define i32 @{_BEGIN}() {{
  %result = call i64 asm sideeffect "syscall", "={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 {ARCH_PRCTL}, i64 {REQUEST_PERMISSION}, i64 {TILE_DATA})
  %granted = icmp eq i64 %result, 0
  br i1 %granted, label %configure, label %done
configure:
  call void @llvm.x86.ldtilecfg(ptr @fusion_amx_configuration)
  br label %done
done:
  %may = zext i1 %granted to i32
  ret i32 %may
}}

define i32 @{_END}() {{
  call void @llvm.x86.tilerelease()
  ret i32 0
}}
"""


def _multiply_function(numbers: Numbers) -> str:
    """Return the function of `Numbers.multiply`."""
    return f"""
{_PREFETCH}
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @{numbers.instruction}(i8, i8, i8)

define i32 @fusion_amx_multiply_{numbers.name}(
  ptr %lefts, ptr %rights, ptr %sums, i32 %steps, i32 %clears, ptr %later, i64 %apart
) {{
  %lower = getelementptr i8, ptr %sums, i64 {_TILE_BYTES}
  %begins = icmp ne i32 %clears, 0
  br i1 %begins, label %clear, label %load
clear:
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilezero(i8 1)
  br label %step
load:
  call void @llvm.x86.tileloadd64(i8 0, ptr %sums, i64 64)
  call void @llvm.x86.tileloadd64(i8 1, ptr %lower, i64 64)
  br label %step
step:
  %k = phi i32 [ 0, %clear ], [ 0, %load ], [ %k.next, %step ]
  %left = phi ptr [ %lefts, %clear ], [ %lefts, %load ], [ %left.next, %step ]
  %right = phi ptr [ %rights, %clear ], [ %rights, %load ], [ %right.next, %step ]
  %later.here = phi ptr [ %later, %clear ], [ %later, %load ], [ %later.next, %step ]
  %left.next = getelementptr i8, ptr %left, i64 {numbers.row_bytes}
  %right.next = getelementptr i8, ptr %right, i64 {numbers.weight_bytes}
{_products(numbers)}
  %k.next = add nuw nsw i32 %k, 1
  %more = icmp ult i32 %k.next, %steps
  br i1 %more, label %step, label %store
store:
  call void @llvm.x86.tilestored64(i8 0, ptr %sums, i64 64)
  call void @llvm.x86.tilestored64(i8 1, ptr %lower, i64 64)
  ret i32 0
}}
"""


TERMS = Numbers(
    name="terms", instruction="llvm.x86.tdpbf16ps", depth=DEPTH, terms=TERM_COUNT,
    products=((0, 2), (0, 0), (2, 0), (1, 0), (1, 1), (0, 1)), others=(_SPLIT_ROW_IR, _SPLIT_WEIGHTS_IR),
    later_lines=24,
)  # fmt: skip
"""Float32; the six largest products of their terms."""

BYTES = Numbers(name="bytes", instruction="llvm.x86.tdpbusd", depth=64, terms=1, products=((0, 0),))
"""uint8 by int8."""

BFLOAT16 = Numbers(
    name="bfloat16", instruction="llvm.x86.tdpbf16ps", depth=32, terms=1, products=((0, 0),), later_lines=4
)
"""bfloat16, summed in float32."""
