"""Public architectures in tiny configurations, each with what the gate has to say about it."""

from __future__ import annotations

from training.zoo.adapters import ENTRIES_OF_ADAPTERS
from training.zoo.entry import Entry
from training.zoo.layers import ENTRIES_OF_LAYERS
from training.zoo.sight_and_sound import ENTRIES_OF_SIGHT
from training.zoo.text import ENTRIES_OF_TEXT

ZOO: dict[str, Entry] = {
    one.name: one for one in (*ENTRIES_OF_TEXT, *ENTRIES_OF_SIGHT, *ENTRIES_OF_ADAPTERS, *ENTRIES_OF_LAYERS)
}
