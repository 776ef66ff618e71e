"""How results of a convolution in groups are divided among blocks and threads, and what that takes of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from backends.cuda.devices import STATIC_SHARED, WARP, CudaDevice
from backends.cuda.kernels.fastest import waves_s
from backends.cuda.kernels.reductions.groups.read import GroupedSum
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from backends.tensorir.stages import item_bytes_of

_PIXELS = (1, 2, 4, 8)
"""Of a thread."""
_ROWS, _COLUMNS = (1, 2, 4, 8), (1, 2, 4, 7, 8, 14, 16, 28, 32, 64)
"""Of the pixels of a block."""
_THREADS = (64, 512)
"""Of a block, at least and at most."""
_SUMS = 32
"""Of a thread, at most."""
_OTHER_REGISTERS = 40
"""Of a thread, for addresses, beside sums and what they are made of."""
_PASS_BYTES = 128
"""What one pass over all banks moves."""


@dataclass(frozen=True)
class Run:
    """Runs of memory that warps ask for.

    Attributes:
        many: How many there are.
        length: Bytes of each.
        aligned: Bytes of which where one begins is a multiple.
        access: Bytes of a lane.
    """

    many: int
    length: int
    aligned: int
    access: int

    def joined(self, is_one: bool) -> Run:
        """Return the same bytes as one run, if they are one."""
        return Run(1, self.many * self.length, self.aligned, self.access) if is_one else self

    @property
    def used(self) -> int:
        """Bytes that are asked for; `moved` are those of their sectors, about."""
        return self.many * self.length

    @property
    def moved(self) -> float:
        request = min(self.length, WARP * self.access)
        return self.used * (request + SECTOR_BYTES - gcd(self.aligned, SECTOR_BYTES)) / request


@dataclass(frozen=True)
class GroupTile:
    """The results of a block: `rows` times `columns` pixels of the channels that `groups` make.

    Attributes:
        pixels: Of a thread, those of each turn next to each other among threads.
        many: Neighbouring channels of a thread, of one group.
        deep: Channels of the image that one access takes from shared memory.
        holds_weights: Whether all weights are in shared memory too, brought as one run.
        stored_bytes: Of a result in memory.
    """

    sum: GroupedSum
    rows: int
    columns: int
    groups: int
    pixels: int
    many: int
    deep: int
    holds_weights: bool
    stored_bytes: int

    @property
    def of_pixel(self) -> int:
        """Threads of a pixel; `at_once` are pixels that the threads of a block have in one turn."""
        return self.groups * self.sum.width // self.many

    @property
    def at_once(self) -> int:
        return self.rows * self.columns // self.pixels

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.of_pixel * self.at_once

    @property
    def grid(self) -> tuple[int, ...]:
        """Images, tiles of rows and of columns, and parts of the channels."""
        rows, columns = -(-self.sum.rows.made // self.rows), -(-self.sum.columns.made // self.columns)
        return self.sum.images, rows, columns, self.sum.groups // self.groups

    @property
    def patch(self) -> tuple[int, int]:
        """Rows and columns of the image that a block brings."""
        return self.sum.rows.read(self.rows), self.sum.columns.read(self.columns)

    @property
    def line(self) -> int:
        """Elements of a pixel of the patch."""
        return self.groups * self.sum.depth

    @property
    def aligned(self) -> int:
        """Bytes of which where a line begins is a multiple."""
        item = self.sum.item_bytes
        return gcd(SECTOR_BYTES, gcd(self.line, self.sum.channels) * item)

    @property
    def vectors(self) -> int:
        """Accesses of a line, from where a sector begins."""
        return -(-(SECTOR_BYTES - self.aligned + self.line * self.sum.item_bytes) // ACCESS_BYTES)

    @property
    def pitch(self) -> int:
        """Elements from a line to the next in shared memory, which lie in different banks."""
        before = 0 if self.aligned % ACCESS_BYTES == 0 else ACCESS_BYTES - self.aligned
        vectors = -(-(before + self.line * self.sum.item_bytes) // ACCESS_BYTES)
        vectors += vectors * ACCESS_BYTES % _PASS_BYTES == 0
        return vectors * ACCESS_BYTES // self.sum.item_bytes

    @property
    def patch_bytes(self) -> int:
        """Of the patch in shared memory; `shared_bytes` of all that a block has there."""
        return prod(self.patch) * self.pitch * self.sum.item_bytes

    @property
    def shared_bytes(self) -> int:
        held = -(-self.sum.weight_bytes // ACCESS_BYTES) * ACCESS_BYTES
        return self.patch_bytes + held * self.holds_weights

    @property
    def registers(self) -> int:
        """Of a thread, about."""
        return self.pixels * self.many + self.deep * (self.pixels + self.many) + _OTHER_REGISTERS

    @property
    def runs(self) -> tuple[Run, Run, Run]:
        """What the threads of a block ask for of the image, the weights and the results."""
        found, item, made = self.sum, item_bytes_of(self.sum.weights), self.groups * self.sum.width
        is_whole = self.groups == found.groups
        image = Run(prod(self.patch), self.line * found.item_bytes, self.aligned, ACCESS_BYTES)
        steps = gcd(made, found.weight_start, *found.weight_steps)
        weights = Run(found.taps * found.depth * self.turns, made * item, steps * item, self.many * item)
        if self.holds_weights:
            weights = Run(1, found.weight_bytes, SECTOR_BYTES, ACCESS_BYTES)
        aligned = gcd(found.made * (self.columns if is_whole else 1), made * (self.at_once if is_whole else 1))
        stored = self.stored_bytes
        results = Run(self.rows * self.columns, made * stored, aligned * stored, self.many * stored)
        return image.joined(is_whole and found.columns.unit == 1), weights, results.joined(is_whole)

    @property
    def turns(self) -> int:
        """How many times the warps of a block ask memory for the same weights."""
        return 1 if self.holds_weights else max(1, min(self.at_once, self.threads // WARP))

    @property
    def share(self) -> float:
        """Of the bytes of sectors, those that are used."""
        return sum(run.used for run in self.runs) / sum(run.moved for run in self.runs)

    def seconds(self, device: CudaDevice) -> float | None:
        """Return the time of all blocks; None where none fits."""
        at_once = device.blocks_at_once(self.threads, self.registers, self.shared_bytes)
        return waves_s(prod(self.grid), at_once, device, lambda many: self._wave_s(device, many)) if at_once else None

    def _wave_s(self, device: CudaDevice, blocks: int) -> float:
        """Return how long an SM takes for so many blocks at once."""
        steps, warps = self.sum.taps * self.sum.depth, -(-self.threads // WARP)
        busy = min(1.0, warps * blocks / device.schedulers)
        operations = 2 * self.rows * self.columns * self.groups * self.sum.width * steps
        weights = self.many * item_bytes_of(self.sum.weights)
        taken = warps * steps * (self.pixels * _PASS_BYTES / self.deep + WARP * weights)
        image, own, results = self.runs
        moved = image.moved + own.moved / self.turns + results.moved
        units = device.float32_gflops / device.sms * busy
        return blocks * 1e-9 * max(operations / units, taken / device.shared_gbs, moved / device.l2_gbs)


def choose_tile(found: GroupedSum, widest: int, stored_bytes: int, device: CudaDevice) -> GroupTile | None:
    """Return the tile that is estimated to be fastest, of those that use the sectors which they ask for as well as any;
    None where none has room.

    Args:
        widest: Neighbours that a thread may have.
        stored_bytes: Of a result in memory.
    """
    timed = [(tile.seconds(device), tile) for tile in _tiles(found, widest, stored_bytes)]
    fitting = [(seconds, tile) for seconds, tile in timed if seconds is not None]
    most = min(GOOD_SHARE, max((tile.share for _, tile in fitting), default=0.0))
    good = ((seconds, -tile.pixels, tile) for seconds, tile in fitting if tile.share >= most)
    return min(good, key=lambda each: each[:2], default=(0.0, 0, None))[2]


def _tiles(found: GroupedSum, widest: int, stored_bytes: int) -> Iterator[GroupTile]:
    """Yield what shared memory and a block's threads hold."""
    flat = as_line(found)
    many = _divisor(widest, flat.made, flat.width, *flat.weight_steps, flat.weight_start)
    per_access = ACCESS_BYTES // flat.item_bytes
    whole = flat.rows.made * flat.columns.made
    for groups, pixels, holds_weights in product(range(1, flat.groups + 1), _PIXELS, (False, True)):
        deep = _divisor(min(4, per_access), flat.depth, groups * flat.depth, flat.channels)
        if flat.groups % groups or pixels * many > _SUMS:
            continue
        if holds_weights and (groups < flat.groups or not flat.reads_all_weights):
            continue
        for rows, columns in product(_ROWS, _COLUMNS):
            tile = GroupTile(
                flat, rows, columns, groups=groups, pixels=pixels, many=many, deep=deep, holds_weights=holds_weights,
                stored_bytes=stored_bytes,
            )  # fmt: skip
            if rows > flat.rows.made or rows * columns % pixels or rows * columns > 2 * whole:
                continue
            if tile.shared_bytes <= STATIC_SHARED and _THREADS[0] <= tile.threads <= _THREADS[1]:
                yield tile


def as_line(found: GroupedSum) -> GroupedSum:
    """Return a sum whose results have a pixel each with all pixels as one row of one image."""
    rows, columns = found.rows, found.columns
    is_own = found.taps == 1 and all(
        each.step == 1 and each.before == 0 and each.made == each.size for each in (rows, columns)
    )
    if not is_own:
        return found
    pixels = found.images * rows.made * columns.made
    line = replace(columns, made=pixels, size=pixels)
    return replace(found, images=1, rows=replace(rows, made=1, size=1), columns=line)


def _divisor(many: int, *numbers: int) -> int:
    """Return the largest power of two up to `many`, one itself, that divides all numbers."""
    while any(number % many for number in numbers):
        many //= 2
    return many
