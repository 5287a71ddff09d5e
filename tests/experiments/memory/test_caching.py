"""The model of a CUDA card's allocator: cases worked by hand, and a slow one that keeps nothing but intervals."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.errors import OutOfReach
from lrdp.experiments.memory.caching import CachingAllocator

KIB, MIB = 1 << 10, 1 << 20


def reserved(*moves, **kinds):
    """After taking so many bytes, or giving back the block that was taken as number −n, counted from 1."""
    allocator, taken = CachingAllocator(**kinds), []
    for move in moves:
        if move > 0:
            taken.append(allocator.take(move))
        else:
            allocator.give_back(taken[-move - 1])
    return allocator.reserved


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([1], 2 * MIB),  # small ones share 2 MiB
        ([1] * 4096, 2 * MIB),  # 512 bytes each: the 4096th is the last that fits
        ([1] * 4097, 4 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB + 1], 20 * MIB),  # not small any more
        ([10 * MIB - 512, 10 * MIB - 512], 20 * MIB),  # 1 KiB is left over
        ([10 * MIB], 10 * MIB),  # its own segment
        ([10 * MIB + 1], 12 * MIB),
        ([10 * MIB, -1, 10 * MIB], 10 * MIB),  # used again
        ([10 * MIB, -1, 10 * MIB + 1], 22 * MIB),  # too small by a byte: kept, and of no use
        ([30 * MIB, -1, 12 * MIB, 12 * MIB], 30 * MIB),  # split, and split again
        ([30 * MIB, -1, 29 * MIB, MIB + 512], 50 * MIB),  # 1 MiB left over is not split off
        ([31 * MIB, -1, 29 * MIB, MIB + 512], 32 * MIB),  # 3 MiB are
        ([16 * MIB, 40 * MIB, -1, -2, 12 * MIB, 40 * MIB], 56 * MIB),  # the smallest that is large enough
        ([30 * MIB, -1, 12 * MIB, 12 * MIB, -2, -3, 30 * MIB], 30 * MIB),  # merged again
        ([30 * MIB, -1, 12 * MIB, 12 * MIB, -2, 30 * MIB], 60 * MIB),  # not while one of them is in use
    ],
)
def test_cases_worked_by_hand(moves, expected):
    assert reserved(*moves) == expected


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([10 * MIB], 20 * MIB),  # pages of 20 MiB
        ([10 * MIB, -1, 12 * MIB], 20 * MIB),  # within the page
        ([20 * MIB, -1, 20 * MIB + 1], 40 * MIB),  # the free end grows, where a segment of its own would come beside it
        ([20 * MIB, 20 * MIB, -1, 30 * MIB], 80 * MIB),  # what is free before the end does not help a larger one
        ([20 * MIB, 20 * MIB, -1, 15 * MIB, 5 * MIB], 40 * MIB),  # but a smaller one
        ([20 * MIB, 20 * MIB, 20 * MIB, -1, -3, 10 * MIB], 60 * MIB),
        ([512, 512], 2 * MIB),
        ([MIB, MIB, 512], 4 * MIB),
    ],
)
def test_expandable_segments_by_hand(moves, expected):
    assert reserved(*moves, expandable=True) == expected


def test_the_end_that_can_grow_is_the_last_to_be_used():
    """A free block of 25 MiB before the end is taken for 5 MiB, though the end has 10 and would be the better fit."""
    moves = [25 * MIB, 25 * MIB, -1, 5 * MIB, 20 * MIB, 10 * MIB]
    assert reserved(*moves, expandable=True) == 60 * MIB


def test_a_full_card_gives_wholly_free_segments_back_and_then_gives_up():
    assert reserved(30 * MIB, -1, 40 * MIB, capacity=50 * MIB) == 40 * MIB
    with pytest.raises(OutOfReach, match="do not fit"):
        reserved(30 * MIB, -1, 12 * MIB, 40 * MIB, capacity=50 * MIB)


class Slow:
    """Segments as lists of (size, is free), looked through from the front for each request."""

    def __init__(self, best=True):
        self.segments, self.best = [], best

    def take(self, size):
        size = (max(size, 1) + 511) // 512 * 512
        small = size <= MIB
        fits = [
            (block[0], number, place)
            for number, (kind, blocks) in enumerate(self.segments)
            for place, block in enumerate(blocks)
            if kind == small and block[1] and block[0] >= size
        ]
        if not fits:
            new = 2 * MIB if small else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            self.segments.append((small, [[new, True]]))
            fits = [(new, len(self.segments) - 1, 0)]
        _, number, place = min(fits) if self.best else min(fits, key=lambda fit: fit[1:])
        blocks = self.segments[number][1]
        left = blocks[place][0] - size
        if left >= 512 if small else left > MIB:
            blocks[place : place + 1] = [[size, False], [left, True]]
        blocks[place][1] = False
        return blocks, blocks[place]

    def give_back(self, taken):
        blocks, block = taken
        block[1] = True
        place = next(place for place, one in enumerate(blocks) if one is block)
        if place + 1 < len(blocks) and blocks[place + 1][1]:
            block[0] += blocks.pop(place + 1)[0]
        if place and blocks[place - 1][1]:
            block[0] += blocks.pop(place - 1)[0]

    @property
    def reserved(self):
        return sum(block[0] for _, blocks in self.segments for block in blocks)


def follow(allocator, moves):
    """Positive: take; else give back one of those still held, whichever the number picks."""
    held, seen = [], []
    for move in moves:
        if move > 0:
            held.append(allocator.take(move))
        elif held:
            allocator.give_back(held.pop(-move % len(held)))
        seen.append(allocator.reserved)
    return seen


SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 3 * MIB), st.integers(9 * MIB, 45 * MIB))
MOVES = st.lists(st.one_of(SIZES, SIZES, st.integers(-1000, 0), st.integers(-1000, 0)), max_size=120)


@settings(max_examples=150, deadline=None)
@given(MOVES)
def test_every_sequence_reserves_what_the_slow_one_reserves(moves):
    assert follow(CachingAllocator(), moves) == follow(Slow(), moves)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_blocks_never_overlap_and_all_bytes_are_accounted_for(moves):
    for expandable in (False, True):
        allocator, held = CachingAllocator(expandable=expandable), []
        for move in moves:
            if move > 0:
                held.append(allocator.take(move))
                assert held[-1].size >= move
            elif held:
                allocator.give_back(held.pop(-move % len(held)))
            spans = sorted((id(block.pool), block.address, block.address + block.size) for block in held)
            assert all(one[0] != next_[0] or one[2] <= next_[1] for one, next_ in pairwise(spans))
            free = sum(size for pool in (allocator._small, allocator._large) for size, _, _ in pool.free)
            assert allocator.allocated == sum(block.size for block in held)
            assert allocator.reserved == allocator.allocated + free


def test_a_model_that_takes_the_first_block_that_fits_is_told_apart():
    """The control of the comparison above."""
    moves = [40 * MIB, 16 * MIB, 0, 0, 12 * MIB, 40 * MIB]
    assert follow(CachingAllocator(), moves)[-1] == 56 * MIB
    assert follow(Slow(best=False), moves)[-1] == 96 * MIB
