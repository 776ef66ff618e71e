"""How persistent blocks share the steps of all tiles: stream-K (Osama et al. 2023, arXiv 2301.03598).

    tiles of 4 steps |0 0 0 0|1 1 1 1|2 2 2 2|        3 tiles, 12 steps
    2 blocks         |0 0 0 0 0 0|1 1 1 1 1 1|        tile 1 is begun by block 0 and ended by block 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from backends.tensorir.emit import int64

Expr = Any


@dataclass(frozen=True)
class StepShares:
    """Shares that differ by one step at most.

    Attributes:
        steps: Of all tiles, one after another.
        blocks: Among which they are shared, in order.
        of_tile: Steps of one tile.
    """

    steps: int
    blocks: int
    of_tile: int

    @property
    def most(self) -> int:
        """Steps of a block, at most."""
        return -(-self.steps // self.blocks)

    @property
    def are_tiles(self) -> bool:
        """Whether each share is of whole tiles."""
        least, more = divmod(self.steps, self.blocks)
        return not any((block * least + min(block, more)) % self.of_tile for block in range(1, self.blocks))

    def begin(self, block: Expr) -> Expr:
        """Return the first step of a block, where the one before it ends."""
        least, more = divmod(self.steps, self.blocks)
        return block * least + tirx.min(block, int64(more)) if more else block * least

    def block_of(self, step: Expr) -> Expr:
        """Return the block whose share has a step."""
        least, more = divmod(self.steps, self.blocks)
        if not more:
            return tirx.floordiv(step, int64(least))
        longer = more * (least + 1)
        later = more + tirx.floordiv(step - longer, int64(least))
        return tirx.Select(step < longer, tirx.floordiv(step, int64(least + 1)), later)
