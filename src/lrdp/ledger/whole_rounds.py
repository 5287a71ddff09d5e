"""Whole rounds, read by columns: almost all of a ledger is RESERVED, READY, SENT of one charge after another.

Python spends more time between values than on them, so a stretch of rounds is split at once and checked a column at a
time. What is accepted here is accepted entry by entry, too. What is wrong is never said here: where anything is unusual
there is no answer, and the books read those entries one by one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from itertools import chain
from typing import Final, NamedTuple

Entry = tuple[bytes, bytes]
"""A line and its hash."""

_LIKELY: Final = re.compile(b"(?:SAN){4,}")  # the third letters of RESERVED, READY, SENT; fewer rounds are not worth it
_WIDTH: Final = 22  # the fields of the three lines, and the end of each
_FIXED: Final = {0: "RESERVED", 11: "\n", 12: "READY", 17: "\n", 18: "SENT", 21: "\n"}


class Rounds(NamedTuple):
    """Charges that were answered and sent, in their order; ``seqs`` are the numbers of their RESERVED entries."""

    seqs: range
    keys: list[str]
    runs: list[str]
    numbers: list[int]
    terms: list[str]
    replies: list[str]
    newest: list[str]
    clock: int


def stretches(batch: list[Entry]) -> Iterator[tuple[bool, list[Entry]]]:
    """The batch in parts, and whether each looks like whole rounds: a guess, on which nothing rests but time."""
    try:
        letters = b"".join([line[2:3] for line, _ in batch])
    except TypeError:  # a line that is not even bytes
        letters = b""
    done = 0
    for found in _LIKELY.finditer(letters):
        yield False, batch[done : found.start()]
        yield True, batch[found.start() : found.end()]
        done = found.end()
    yield False, batch[done:]


def read_rounds(entries: list[Entry], *, seq: int, digest: bytes, clock: int) -> Rounds:
    """The rounds that follow entry ``seq``, which has this hash and clock.

    Guarantees: every hash was checked and every field read as entry by entry, but for what the charges are for and the
    names of their runs; each reply is to the charge before it; the clock never fell.

    Raises:
        ValueError, TypeError, OverflowError: if anything is unusual; it need not be wrong.
    """
    for line, stated in entries:
        if sha256(digest + line).digest() != stated:
            raise ValueError("an entry does not match its hash")
        digest = stated
    lines, seqs = [line for line, _ in entries], range(seq + 1, seq + 1 + len(entries), 3)
    _, charged_at, keys, runs, numbers, *terms, guaranteed, spent, _ = (columns := _columns(lines))[:12]
    _, ready_at, ready, replies, sizes, _, _, sent_at, sent, _ = columns[12:]
    clocks = [clock, *map(int, chain.from_iterable(zip(charged_at, ready_at, sent_at, strict=True)))]
    if not ready == sent == list(map(str, seqs)) or clocks != sorted(clocks):
        raise ValueError("a reply is to another charge, or the clock fell")
    deque(chain(map(int, sizes), map(float.fromhex, guaranteed), map(float.fromhex, spent)), maxlen=0)
    return Rounds(
        seqs=seqs,
        keys=keys,
        runs=runs,
        numbers=list(map(int, numbers)),
        terms=list(map("\t".join, zip(*terms, strict=True))),
        replies=replies,
        newest=lines[-3].decode().split("\t", 5),
        clock=clocks[-1],
    )


def _columns(lines: list[bytes]) -> list[list[str]]:
    text = (b"\t\n\t".join(lines) + b"\t\n").decode()
    fields = text.split("\t")
    columns = [fields[at::_WIDTH] for at in range(_WIDTH)]
    # No line holds a line's end, and all ends are in the columns of ends: so each line has its own number of fields.
    if text.count("\n") != len(lines) or any(columns[at] != [word] * (len(lines) // 3) for at, word in _FIXED.items()):
        raise ValueError("these are not whole rounds")
    return columns
