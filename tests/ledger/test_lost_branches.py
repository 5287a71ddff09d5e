"""Theorem 6 (b) of docs/accounting.md, its counting: where the books fit the slots, so do the steps really taken.

Kinds of step are numbers. 0, 1 and 2 are adopted kinds, each dominating those before it; the
others are dominated by some of them and not comparable with each other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

CHAIN = (0, 1, 2)
LEAST = {0: 0, 1: 1, 2: 2, 3: 0, 4: 0, 5: 1, 6: 2}  # the least of the chain that dominates each kind
Pick = Callable[[list[int]], int]


def a_story(chance: random.Random) -> tuple[Counter[int], Counter[int], list[int]]:
    """Slots, the steps in the books, and the steps really taken, in a random order of time."""
    slots = Counter({kind: chance.randint(0, 4) for kind in LEAST})
    own = Counter({kind: chance.randint(0, slots[kind]) for kind in LEAST})
    books, taken = Counter(own), list(own.elements())
    for _ in range(chance.randint(0, 6)):
        lost = chance.choice([kind for kind in LEAST if slots[kind]] or [0])
        books[chance.choice(CHAIN[LEAST[lost] :])] += 1
        taken.append(lost)
    chance.shuffle(taken)
    return slots, books, taken


def all_find_a_slot(slots: Counter[int], taken: list[int], pick: Pick) -> bool:
    """Each step takes a slot of its own kind, or else the one picked among those that dominate it."""
    left = Counter(slots)
    for step in taken:
        free = [step] if left[step] else [kind for kind in CHAIN[LEAST[step] :] if left[kind]]
        if not free:
            return False
        left[pick(free)] -= 1
    return True


def stories(count: int) -> list[tuple[Counter[int], list[int]]]:
    chance = random.Random(20261116)
    found: list[tuple[Counter[int], list[int]]] = []
    while len(found) < count:
        slots, books, taken = a_story(chance)
        if all(books[kind] <= slots[kind] for kind in LEAST):
            found.append((slots, taken))
    return found


def test_steps_of_lost_branches_find_slots_whenever_the_books_fit_them() -> None:
    assert all(all_find_a_slot(slots, taken, min) for slots, taken in stories(3_000))


def test_taking_the_dearest_slot_first_would_run_out() -> None:
    assert not all(all_find_a_slot(slots, taken, max) for slots, taken in stories(3_000))
