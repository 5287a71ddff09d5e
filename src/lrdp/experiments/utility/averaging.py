"""A federation without ledgers: Flower's messages within one process, and the very sums of verified rounds.

Updates are rounded to whole numbers, added up, and the model moves by the sum as :mod:`lrdp.integrity` moves it: so a
study's models are those that clients with ledgers and tags would have got, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lrdp.codec import NUMBER
from lrdp.errors import InvalidInput
from lrdp.experiments.utility.engines import Desk, UpdateEngine
from lrdp.federation.local.exchanges import exchanged
from lrdp.federation.local.in_process import InProcessGrid, Node
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout, as_model, pack_values, raw, unpack_values
from lrdp.integrity import FixedPoint, Model, combine, quantise


@dataclass
class Researcher:
    """A client of a study: trains what it is sent. ``clipped`` counts the coordinates that the fixed point cut."""

    desk: Desk
    engine: UpdateEngine
    layout: Layout
    clipped: int = 0
    problem: Exception | None = None

    def handle(self, given: Frame, _context: Any) -> Frame:
        """The rounded update of the round that the prefix names, from the model in the body."""
        point = FixedPoint(size=self.layout.size)
        try:
            self.layout.write(as_model(given.bodies[0], point.size), self.desk.task.model)
            moved = self.engine(self.desk, NUMBER.read(given.prefix))
            whole = quantise(self.layout.flat(moved), point)
        except Exception as problem:
            self.problem = problem  # a reply would say nothing of it
            raise
        self.clipped += whole.clipped
        return Frame(given.prefix, (pack_values(whole.values, point),))


Turns = Callable[[int], Iterable[int]]
"""The places of those clients whose updates make the round of this number."""


def averaged(clients: Sequence[Researcher], first: Model, rounds: int, turns: Turns | None = None) -> Iterator[Model]:
    """The model after each round, to which all whose turn it is contribute equally; without ``turns``, everybody.

    A round that nobody contributes to leaves the model as it was.

    Raises:
        InvalidInput: where a client did not answer, with what stood in its way.
    """
    everybody = {1 + number: Node(answering(client.handle)) for number, client in enumerate(clients)}
    grid, point, model = InProcessGrid(everybody), FixedPoint(size=first.size), first
    for number in range(rounds):
        nodes = list(everybody) if turns is None else [1 + place for place in turns(number)]
        if not nodes:
            yield model
            continue
        asked = Frame(NUMBER.write(number), (raw(model),))
        answers = exchanged(grid, dict.fromkeys(nodes, asked), str(number))
        for problem in (client.problem for client in clients):
            if problem is not None:
                raise InvalidInput(f"a client of the study failed in round {number}: {problem}") from problem
        updates = [unpack_values(answers[node].bodies[0], point) for node in nodes]
        model = combine(updates, model, point).next_model
        yield model
