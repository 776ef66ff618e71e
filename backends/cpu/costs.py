"""What a CPU takes for what kernels do: the table of numbers that estimates add up, each with its unit, what it was
measured on and by what. Those that one family of kernels alone adds up are a table of the same form, its `costs.py`.

None is looked up by name: a number is imported by those that use it, and its annotation says where it is from. What a
family leaves open, and how far (its tiles, its blocks), is no cost and stands in the family's `plan.py`. Where nobody
wrote down what a number was measured on, it is what all measurements of its commit were made on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

ZEN4 = "two vCPUs of Zen 4: AVX-512 in two halves, 32 KiB of L1 and 1 MiB of L2 a core"
WHOLE_UNITS = "two vCPUs with whole AVX-512 units, 48 KiB of L1 and 2 MiB of L2 a core"
EITHER = f"the slower of {ZEN4}; {WHOLE_UNITS}"
SKYLAKE = "two vCPUs of Skylake-X: whole AVX-512 units, 32 KiB of L1 and 1 MiB of L2 a core"
SOME = "two vCPUs with AVX-512; which of the two kinds was not written down"
VENDORS = "Intel's and AMD's server cores"
NOT_TOLD = "chosen with the kernels that use it; no measurement of it alone was written down"


@dataclass(frozen=True)
class Cost:
    """Where a number is from.

    Attributes:
        unit: Of the number.
        source: The measurement, or the document.
        machine: What it was measured on, or what the document is about.
    """

    unit: str
    source: str
    machine: str


# The core -------------------------------------------------------------------------------------------------------------

CLOCK_GHZ: Annotated[float, Cost("GHz", "data sheets: 2.7 to 3.7 with all cores busy", "Sapphire Rapids, Genoa")] = 3.0
"""The clock by which estimated cycles become microseconds."""

FMA_PER_CYCLE: Annotated[int, Cost("instructions/cycle", "port model of Agner Fog's tables", VENDORS)] = 2
"""The multiply-adds of whole vectors that one core begins."""

WEIGHT_VECTORS_PER_CYCLE: Annotated[
    float,
    Cost(
        "vectors/cycle",
        "2.4 MB of packed weights that pass once more in 17.5 us: 42 bytes a cycle; tiles of 2x8, 2x7, 3x7 and 3x6 "
        "vectors on Emerald Rapids: 32 to 35; with AVX2 a vector is half as long and takes as long",
        "one vCPU of Zen 5",
    ),
] = 0.656
"""The speed at which L2 gives a panel of weights to tiles of rows after the first."""

L1_WEIGHT_VECTORS: Annotated[int, Cost("vectors", "half of 32 KiB in vectors of 64 bytes", VENDORS)] = 256
"""The weights that L1 keeps beside the rows: of so few, no tile waits for L2."""

WEIGHTS_WAITED_FOR: Annotated[
    float,
    Cost(
        "share of their time",
        "GFLOP/s of tiles of 14x2, 9x3, 6x4, 5x5 and 4x6 vectors: 181 172 174 171 158 for 512x256x1024, "
        "174 172 174 166 163 for 256x480x480",
        "one vCPU of Emerald Rapids",
    ),
] = 0.12
"""How much of the time that weights take from L2 a tile waits for, though its products take longer; that keys take
which share the sets of L1, too."""

SHARED_ROWS_CYCLES: Annotated[
    float,
    Cost(
        "cycles/step of k and square of rows",
        "tiles of one vector by 10, 11, 12, 14, 16, 20 and 28 rows 4 KiB apart, times over those of rows 64 bytes "
        "further apart: 1.06 1.15 1.36 1.71 2.15 2.93 4.96; of two vectors by 10, 11, 12, 13 and 14: 1.02 1.06 1.14 "
        "1.24 1.35",
        ZEN4,
    ),
] = 0.35
"""What a step of k waits for lines of a tile's rows where these are more, by more than one, than the sets of L1 hold
that they share: times the square of how many more."""

TERMS_CYCLES: Annotated[
    float,
    Cost(
        "cycles/step of k, 32 rows and a vector",
        "twelve TDPBF16PS: 19 cycles each on an idle core, 36 where its other thread runs and L1 has the operands, 54 "
        "where L2 has them; of 2048x768x768 the whole kernel takes 0.71 to 0.84 of multiply-adds, by turns, on a host "
        "in between",
        "two vCPUs of Emerald Rapids",
    ),
] = 340.0
"""What the six products of terms take, in tiles, for which multiply-adds take 512 cycles."""

SPLIT_ROW_CYCLES: Annotated[
    float, Cost("cycles/vector", "2048x768x768 with and without, two blocks of vectors", "two vCPUs of Emerald Rapids")
] = 8.0
"""What the split of a vector of rows into terms takes, which each block of vectors makes anew."""

SPLIT_WEIGHT_CYCLES: Annotated[
    float,
    Cost(
        "cycles/vector",
        "64 rows in terms and in float32 by turns: of 768x3072, 3072x768 and 3 of 768x768 terms take 1.03 1.06 1.04 "
        "times as long, of 384x1536, 1536x384 and 3 of 384x384 1.01 1.11 1.06, by estimate 1.00 and 1.02 to 1.04",
        "two vCPUs of a Granite Rapids",
    ),
] = 9.0
"""What that of a vector of weights takes where each task makes it anew."""

WHOLE_TILES_CYCLES: Annotated[
    float,
    Cost(
        "cycles/step of k, 32 rows and a vector",
        "two TDPBUSD, as many TDPBF16PS take 56; whole kernels by turns, us in tiles and in vectors: 64x384x1536 46 "
        "85, 64x1536x384 32 76, 512x768x3072 1044 2527, of which the estimates are 39 69, 35 70, 661 1729 at 3 GHz",
        "two vCPUs of Emerald Rapids",
    ),
] = 64.0
"""What products of bytes take in tiles, for which VPDPBUSD takes 256 cycles; VDPBF16PS 512 for those of
bfloat16, which take as long."""

COPY_ROW_CYCLES: Annotated[float, Cost("cycles/line", "a load, a store and their loop, no measurement", VENDORS)] = 3.0
"""What the copy of a line of rows into a tile takes, which each block of vectors makes anew."""

TERM_SUM_CYCLES: Annotated[
    float, Cost("cycles/vector", "512x768x768 with and without: 18 ns unfetched", "two vCPUs of Emerald Rapids")
] = 10.0
"""What a vector of sums takes from tiles to the result."""

FIRST_TILES_CYCLES: Annotated[
    int,
    Cost(
        "cycles",
        "43 matmuls of float32, 32 to 1600 rows by matrices of 96 to 768 by 96 to 1536, weights from beyond L2, the "
        "least squares of what steps of k, sums, rows, weights and a kernel take: 14,100 for a kernel, of which "
        "`REGION_CYCLES` and `TASK_CYCLES` say 5,600",
        "two vCPUs of a Granite Rapids",
    ),
] = 8_500
"""The time until a kernel's threads multiply in tiles: each asks the system, which is a call of it, configures tiles,
wakes the units that multiply them, and reads code that is longer than that of vectors."""

BFLOAT16_DOTS_PER_CYCLE: Annotated[
    int, Cost("instructions/cycle", "uops.info: VDPBF16PS of 512 bits", "Zen 4, Sapphire Rapids")
] = 1
"""The products of pairs of bfloat16 vectors that one core begins."""

BYTE_DOTS_PER_CYCLE: Annotated[
    int, Cost("instructions/cycle", "uops.info: VPDPBUSD of 512 bits, as multiply-adds", VENDORS)
] = 2
"""The products of fours of bytes that one core begins."""

PAIR_DOTS_PER_CYCLE: Annotated[
    float,
    Cost(
        "instructions/cycle",
        "VPMADDWD and VPADDD in tiles of 6x2, 4x3, 5x2 and 3x3 vectors: 1.39 to 1.48 times float32's products a second",
        "one vCPU of Zen 3",
    ),
] = 1.45
"""The products of pairs of int16 that one core begins, each of which an addition follows."""

LOADS_PER_CYCLE: Annotated[int, Cost("instructions/cycle", "port model of Agner Fog's tables", VENDORS)] = 2
"""The vectors that one core begins to load from L1."""

FMA_LATENCY: Annotated[int, Cost("cycles", "Agner Fog's tables", VENDORS)] = 4
"""The time from the begin of a multiply-add to that of one which needs its result."""

ADD_LATENCY: Annotated[int, Cost("cycles", NOT_TOLD, VENDORS)] = 4
"""The time from the begin of an addition to that of one which needs its result."""

OPERATION_CYCLES: Annotated[
    float, Cost("cycles/vector", "a softmax has 34 simple operations and takes 17 cycles a vector in L1", ZEN4)
] = 0.5
"""The time that one core takes for one simple operation."""

# Memory ---------------------------------------------------------------------------------------------------------------

CACHE_BYTES: Annotated[
    Mapping[str, tuple[int, int, int]],
    Cost(
        "bytes of L1, L2 and L3",
        "x86_64: the smallest of current ones; aarch64: TRM 100095, without L3",
        "x86_64: server cores; aarch64: Cortex-A72",
    ),
] = {"x86_64": (32 << 10, 1 << 20, 16 << 20), "aarch64": (32 << 10, 1 << 20, 0)}
"""The caches assumed of a CPU that is not this machine's, so that a target gives the same code wherever it is compiled,
and of this machine's where the kernel tells none."""

L1_WAYS: Annotated[
    Mapping[str, int],
    Cost("lines", "x86_64: of 32 KiB; aarch64: TRM 100095", "x86_64: server cores; aarch64: Cortex-A72"),
] = {"x86_64": 8, "aarch64": 2}
"""The lines of a set of L1 that are assumed where `CACHE_BYTES` are."""

CACHE_LINE: Annotated[int, Cost("bytes", "Intel's and AMD's optimisation manuals, TRM 100095", "all of them")] = 64
"""The bytes that move between caches and memory together."""

L2_BYTES_PER_CYCLE: Annotated[
    float, Cost("bytes/cycle", "half of what the vendors' manuals give as the peak", VENDORS)
] = 32.0
"""What one core loads from L2."""

KEPT_L2_SHARE: Annotated[
    float,
    Cost(
        "share of L2",
        "loads of half of 2 MiB at 151 to 169 GB/s, of three quarters at 118 to 140, of all at 65 to 81, of one and a "
        "half, from L3, at 32 to 38",
        "a core of Granite Rapids",
    ),
] = 0.75
"""How much of L2 holds what is read again and again."""

MEMORY_BYTES_PER_CYCLE: Annotated[float, Cost("bytes/cycle", "streams from L3 and from memory", EITHER)] = 8.0
"""What one core loads from L3 or from memory, whichever has it."""

L2_STRIDED_BYTES_PER_CYCLE: Annotated[
    float,
    Cost(
        "bytes/cycle",
        "one thread, 1024 rows by a matrix of 1024x196 as it lies: 19 in tiles of 6x4 and of 5x5 vectors, 25 of 3x7",
        WHOLE_UNITS,
    ),
] = 20.0
"""What one core loads from L2 where it loads short parts of a matrix's rows."""

STRIDED_ROW_CYCLES: Annotated[
    float,
    Cost(
        "cycles/row",
        "rows by matrices of 1024x1024 as they lie, beside the products: 23 to 29 for 128 bytes of each row, 27 for 64",
        WHOLE_UNITS,
    ),
] = 26.0
"""The time until a part of a matrix's row is there, from L3 or memory, where the part read before is of another row, so
that no hardware fetches ahead; of 208 bytes and more `MEMORY_BYTES_PER_CYCLE` takes longer."""

SPLIT_CYCLES: Annotated[
    float,
    Cost(
        "cycles/vector",
        "1x1 convolutions, whose image's rows lie as they come or are copied first, two threads, us: 256 to 1024 "
        "channels over 14x14 604 499, 160 to 960 over 7x7 124 112, 960 to 160 141 124: 2.7, 1.5 and 2.6",
        SKYLAKE,
    ),
] = 1.5
"""What a tile of rows waits, beside its products, for a vector of weights as long as a cache line that lies in two and
comes from L2: of matrices that L1 keeps, copies were 5% slower."""

TRANSPOSE_BYTES_PER_CYCLE: Annotated[float, Cost("bytes/cycle", "transposes of images: 2.5 to 5", ZEN4)] = 3.0
"""What two cores together read and write where they transpose."""

PREFETCH_STEPS: Annotated[
    int, Cost("steps of k", "matmuls of cold weights, GFLOP/s without and with: 128x768x3072 261 323", SOME)
] = 48
"""How far ahead of their use weights are fetched: about 700 cycles, twice the latency of memory."""

UNROLLED_STEPS: Annotated[
    int,
    Cost(
        "steps of k",
        "24 to 2400 rows by 384 to 3072 channels, any number of rows over a known one: 1.17 to 1.23 with each vector "
        "fetched ahead and no step unrolled, 1.13 without fetches, 1.05 unrolled too",
        "two vCPUs of Zen 3",
    ),
] = 4
"""How many steps lie between branches in tiles of any height whose vectors are less than a line: one with 6x2 of them
takes 6 cycles."""

FEW_TILES: Annotated[
    int,
    Cost(
        "tiles",
        "MiniLM of 12, 20 and 36 tokens, tiles of six rows, times with each vector fetched ahead over those with the "
        "next block: 0.95 to 1.04 in three runs, 1.14, 1.09",
        "two vCPUs of Zen 3",
    ),
] = 2
"""How many tiles of rows fetch their weights a vector at a time: nobody fetches the first block of a task."""

LINES_AT_ONCE: Annotated[
    int,
    Cost(
        "lines",
        "what a core of any CPU since Skylake waits for at once; of 6 rows of 8 lanes 1920x480x480 takes 1.06 of the "
        "static kernel's time with all lines fetched before the first step of k, 1.26 with one a step",
        "two vCPUs of Zen 3",
    ),
] = 12
"""How many lines of a tile's result are fetched before its sums are made; of more, each of the first steps
of k fetches one."""

FETCHED_TILES: Annotated[
    int,
    Cost(
        "tiles",
        "GFLOP/s of 8, 20 and 32 tiles of rows by weights in memory, looking ahead, without fetches, and with the next "
        "block fetched: 48x512x2048 138 140 164, 120x768x3072 141 155 163, 192x1024x256 125 141 142",
        "two vCPUs of Zen 3",
    ),
] = 32
"""The most tiles of rows of a task that fetch the next block of weights while they pass one."""

FETCHED_SHARE: Annotated[
    float,
    Cost(
        "memory's time for the rows of a matmul over its products'",
        "GFLOP/s of two threads without and with fetches by turns: 12544x128x32 276 354, 12544x64x64 313 341, "
        "44160x240x240 296 324, 3136x256x64 334 352, 784x512x128 352 355; 1024x512x512 354 352, 2048x1024x1024 339 329",
        "two vCPUs of Emerald Rapids",
    ),
] = 0.04
"""The share from which on the rows of the next tile are fetched while one is computed."""

# Starting work --------------------------------------------------------------------------------------------------------

TASK_CYCLES: Annotated[int, Cost("cycles", NOT_TOLD, SOME)] = 600
"""The time to hand a task to a worker and leave it."""

REGION_CYCLES: Annotated[int, Cost("cycles", "1.5 us: wake the workers and wait for the last one", ZEN4)] = 5_000
"""The time to enter and leave a parallel region around register tiles."""

STITCHED_REGION_CYCLES: Annotated[int, Cost("cycles", "about 2 us", ZEN4)] = 6_600
"""The time to enter and leave a parallel region around stitched stages."""

LAUNCH_CYCLES: Annotated[int, Cost("cycles", "about 2.5 us", ZEN4)] = 8_000
"""The time that one kernel more takes: its start on all threads and the wait for the last."""

TRANSPOSE_LAUNCH_CYCLES: Annotated[int, Cost("cycles", NOT_TOLD, ZEN4)] = 10_000
"""The time that one kernel more takes which moves an image: its start on all threads and the wait for the last."""

LAUNCH_BYTES: Annotated[
    int, Cost("bytes", "`LAUNCH_CYCLES` at `MEMORY_BYTES_PER_CYCLE`: what a core gets meanwhile", ZEN4)
] = round(LAUNCH_CYCLES * MEMORY_BYTES_PER_CYCLE)
"""The traffic that is worth one kernel less."""

RUN_BYTES: Annotated[int, Cost("bytes", "a cache line: with fewer, vectors are mostly empty", VENDORS)] = CACHE_LINE
"""The fewest bytes that lie together where a memory-bound kernel reads or writes a part of a tensor in place."""

ANCHORED_RUN_BYTES: Annotated[int, Cost("bytes", NOT_TOLD, ZEN4)] = 16
"""The fewest bytes that lie together where a matmul or a convolution writes a part of a tensor in place: fewer than for
other kernels, as it writes each of its rows by itself in any case."""

CALL_BYTES: Annotated[int, Cost("bytes", "a call takes 3 us", ZEN4)] = 64 << 10
"""The bytes that two cores move in the time that one call more takes."""

SERIAL_OPERATIONS: Annotated[
    int,
    Cost(
        "simple operations",
        "two threads pay from 45,000 elements of relu, 24,000 of exp, 12,000 of softmax, 25,000 of layer_norm on: "
        "180,000 to 560,000 of the operations that `StitchedWork` counts",
        ZEN4,
    ),
] = 18 << 14
"""The fewest operations of stages that are split over threads."""

# Starting a tile ------------------------------------------------------------------------------------------------------

TILE_CYCLES: Annotated[int, Cost("cycles", "register tiles with K = 0", SOME)] = 24
"""The time to set up, store and leave a register tile of a contraction."""

STITCHED_TILE_CYCLES: Annotated[int, Cost("cycles", NOT_TOLD, ZEN4)] = 20
"""The time to begin a tile of stages, and the loops in it."""

PACK_CYCLES: Annotated[
    float, Cost("cycles/vector", "3.4 of 64x64 matrices in L2, 4.2 of 1024x1024", WHOLE_UNITS)
] = 4.0
"""The time to copy a vector of a right operand from where it lies to where a panel of it lies together, beside the
time to load it from beyond L2."""

# In simple operations, of which stages have so many an element --------------------------------------------------------

COPY_OPERATIONS: Annotated[int, Cost("simple operations", "a copy takes as long as a relu", ZEN4)] = 4
"""What an element that is only moved counts as."""

STRIDED_OPERATIONS: Annotated[
    int, Cost("simple operations", "of 100,000 elements every second one took 64 us, a transpose 28, one thread", ZEN4)
] = 8
"""What an access that is strided along the axis of the vectors counts as, beside its stage's own operations."""

UNROLLED_OPERATIONS: Annotated[int, Cost("simple operations", NOT_TOLD, ZEN4)] = 12
"""The most operations of a map that is unrolled, as the loop's own instructions count there."""

EPILOGUE_OPERATIONS: Annotated[
    int, Cost("simple operations", "a sigmoid over 28 registers compiled in 0.7 s unrolled, in 0.1 as a loop", SOME)
] = 12
"""The most operations of an epilogue that is written once per register; a longer one is a loop over the tile."""

CALL_OPERATIONS: Annotated[int, Cost("simple operations", "the polynomials of `vector_math`", "none: a count")] = 12
"""What a call of a mathematical function in an epilogue counts as."""
