"""A model of the allocator through which torch uses a CUDA card: which bytes it reserves for which requests.

What ``nvidia-smi`` shows of a training is what this allocator reserved. It never gives anything back while there is
room, so a run's figure is the most it ever needed, with all that could not be used again for a batch of another size.

The rules, as in ``c10/cuda/CUDACachingAllocator.cpp``: requests are rounded up to 512 bytes; up to 1 MiB they are
served from segments of 2 MiB, below 10 MiB from segments of 20 MiB, and above from a segment of their own, rounded up
to 2 MiB. The smallest free block that is large enough is taken, and split where more than 1 MiB (among the small ones
512 bytes) would be left over. A freed block is merged with its free neighbours in the same segment. Where a card is
full, segments that are wholly free are given back. With *expandable segments* each kind has one segment that grows at
its end, and every block is split.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

from lrdp.errors import OutOfReach

_MIB: Final = 1 << 20
SMALLEST: Final = 512
SMALL: Final = _MIB
SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT_FROM, ROUNDED_TO = 2 * _MIB, 20 * _MIB, 10 * _MIB, 2 * _MIB
UNLIMITED: Final = 1 << 62


@dataclass(eq=False)
class Block:
    """A stretch of a segment, with its neighbours there."""

    pool: Pool
    address: int
    size: int
    free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False)
class Pool:
    """Blocks of one kind: the free ones by size, then address."""

    small: bool
    free: list[tuple[int, int, Block]] = field(default_factory=list)
    end: Block | None = None  # of its expandable segment


@dataclass(eq=False)
class CachingAllocator:
    """``reserved`` is what the card has lost to it; a ``capacity`` is the card's own memory."""

    expandable: bool = False
    capacity: int = UNLIMITED
    reserved: int = 0
    allocated: int = 0
    _small: Pool = field(default_factory=lambda: Pool(small=True))
    _large: Pool = field(default_factory=lambda: Pool(small=False))
    _next_address: int = 0

    def take(self, size: int) -> Block:
        """A block for a request of ``size`` bytes.

        Raises:
            OutOfReach: where the card is full.
        """
        wanted = -(-max(1, size) // SMALLEST) * SMALLEST
        pool = self._small if wanted <= SMALL else self._large
        block = self._found(pool, wanted) or (self._grown if self.expandable else self._segment)(pool, wanted)
        block.free = False
        self._split(block, wanted)
        self.allocated += block.size
        return block

    def give_back(self, block: Block) -> None:
        """Free a block."""
        self.allocated -= block.size
        block.free = True
        if block.before is not None and block.before.free:
            block = _merged(_unlisted(block.before), block)
        if block.after is not None and block.after.free:
            block = _merged(block, _unlisted(block.after))
        insort(block.pool.free, (block.size, block.address, block))

    def _found(self, pool: Pool, wanted: int) -> Block | None:
        place = bisect_left(pool.free, (wanted, -1))
        while place < len(pool.free) and pool.free[place][2] is pool.end:
            place += 1  # the end of an expandable segment counts as being as large as it can become
        if place < len(pool.free):
            return pool.free.pop(place)[2]
        return None

    def _segment(self, pool: Pool, wanted: int) -> Block:
        own = -(-wanted // ROUNDED_TO) * ROUNDED_TO
        size = SMALL_SEGMENT if pool.small else LARGE_SEGMENT if wanted < OWN_SEGMENT_FROM else own
        if self.reserved + size > self.capacity:
            self._release()
        return self._reserve(pool, size)

    def _grown(self, pool: Pool, wanted: int) -> Block:
        """The free end of the pool's only segment, with as many more pages as are needed."""
        end, page = pool.end, SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        there = end.size if end is not None and end.free else 0
        missing = -(-max(0, wanted - there) // page) * page
        fresh = self._reserve(pool, missing) if missing else None
        if end is not None and end.free:
            _unlisted(end).size += missing
            return end
        if fresh is None:
            raise OutOfReach("an expandable segment has neither a free end nor a new page.")  # cannot happen
        fresh.before = end
        if end is not None:
            fresh.address, end.after = end.address + end.size, fresh
        pool.end = fresh
        return fresh

    def _reserve(self, pool: Pool, size: int) -> Block:
        if self.reserved + size > self.capacity:
            raise OutOfReach(
                f"the card has {self.capacity} bytes, and {self.reserved} of them are reserved: {size} more do not fit."
            )
        self.reserved += size
        self._next_address += size
        return Block(pool, self._next_address - size, size)

    def _split(self, block: Block, wanted: int) -> None:
        left, pool = block.size - wanted, block.pool
        if not (left >= SMALLEST if pool.small or self.expandable else left > SMALL):
            return
        rest = Block(pool, block.address + wanted, left, free=True, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = wanted, rest
        pool.end = rest if pool.end is block else pool.end
        insort(pool.free, (rest.size, rest.address, rest))

    def _release(self) -> None:
        """Give wholly free segments back to the card."""
        for pool in (self._small, self._large):
            whole = [entry for entry in pool.free if entry[2].before is None and entry[2].after is None]
            for size, _, block in whole:
                _unlisted(block)
                self.reserved -= size


def _unlisted(block: Block) -> Block:
    """Taken out of the free ones."""
    free = block.pool.free
    free.pop(bisect_left(free, (block.size, block.address)))
    return block


def _merged(first: Block, second: Block) -> Block:
    """Two neighbours as one."""
    first.size, first.after, pool = first.size + second.size, second.after, first.pool
    pool.end = first if pool.end is second else pool.end
    if first.after is not None:
        first.after.before = first
    return first
