"""The ledger against a model that is three dictionaries."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ledger.worlds import STEP, World, policy, request
from lrdp.accounting import Adjacency, Filter, Mechanism, RenyiOrders
from lrdp.errors import AlreadyAnswered, BudgetExceeded, PolicyRefused
from lrdp.ledger import Receipt, Reply, State, void
from lrdp.ledger.choice import decode_choice

EPSILON = 2.2
rounds = st.integers(0, 5)
models = st.sampled_from(["m1", "m2"])
noises = st.sampled_from([2.3, 3.7])


@dataclass
class Held:
    """What a client process holds between the calls: lost when it dies."""

    receipt: Receipt
    noise: float


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        rules = policy(epsilon=str(EPSILON), per_run_epsilon=str(EPSILON), max_steps_per_round="400")
        self.world = World(folder=Path(self.folder.name), rules=rules)
        self.steps: dict[float, int] = {}
        self.charges: dict[tuple[int, str], list[tuple[int, State]]] = {}
        self.bytes: dict[int, bytes] = {}
        self.held: list[Held] = []
        self.ready: list[Reply] = []

    @initialize()
    def create(self) -> None:
        self.ledger = self.world.create()
        self.filter = decode_choice(self.ledger.books.opened.filter)

    @rule(number=rounds, model=models, noise=noises, steps=st.integers(1, 200))
    def charge(self, number: int, model: str, noise: float, steps: int) -> None:
        asked = request(number, model=model, mechanism=STEP.with_noise(noise), steps=steps)
        made = self.charges.setdefault((number, model), [])
        in_round = sum(len(self.charges.get((number, each), [])) for each in ("m1", "m2"))
        if any(state in (State.READY, State.SENT) for _, state in made):
            with pytest.raises(AlreadyAnswered):
                self.ledger.charge(asked)
        elif in_round >= 2:
            with pytest.raises(PolicyRefused):
                self.ledger.charge(asked)
        elif not self.fits(noise, steps):
            with pytest.raises(BudgetExceeded):
                self.ledger.charge(asked)
        else:
            receipt = self.ledger.charge(asked)
            self.steps[noise] = self.steps.get(noise, 0) + steps
            made.append((receipt.entry, State.RESERVED))
            self.held.append(Held(receipt, noise))

    def fits(self, noise: float, steps: int) -> bool:
        """An independent filter, charged with the model's own sum; the run's share is the whole budget."""
        budget = self.world.rules.budget.total
        history: dict[Mechanism, int] = {STEP.with_noise(key): count for key, count in self.steps.items() if count}
        orders = RenyiOrders(weights=self.filter.weights)  # type: ignore[attr-defined]
        before = Filter(rule=orders, budget=budget, adjacency=Adjacency.ADD_REMOVE, history=history)
        return before.charge(STEP.with_noise(noise), steps)[1].admitted

    @rule()
    def train(self) -> None:
        if self.held:
            held = self.held.pop(0)
            held.receipt.redeem()
            body = f"noise for {held.receipt.entry}".encode()
            self.ready.append(self.ledger.ready(held.receipt, body))
            self.bytes[held.receipt.entry] = body
            self.move(held.receipt.entry, State.READY)

    @rule()
    def send(self) -> None:
        if self.ready:
            reply = self.ready.pop(0)
            self.ledger.sent(reply)
            self.move(reply.charge, State.SENT)

    @rule()
    def void_one(self) -> None:
        if self.held:
            held = self.held.pop()
            void(self.ledger, held.receipt.entry, "nothing left", self.world.administrator)
            self.steps[held.noise] -= held.receipt.steps
            self.move(held.receipt.entry, State.VOID)

    @rule()
    def restart(self) -> None:
        """A crash: receipts are lost, charges and stored replies are not."""
        self.ledger.close()
        self.ledger = self.world.open()
        self.held = []
        self.ready = self.ledger.unsent()

    @rule(number=rounds, model=models)
    def ask_again(self, number: int, model: str) -> None:
        reply = self.ledger.reply_to(request(number, model=model))
        made = self.charges.get((number, model), [])
        if reply is None:
            kept = [entry for entry, state in made if state is State.READY]
            assert not kept, "what was not sent is always kept"
        else:
            assert reply.body == self.bytes[reply.charge]
            assert reply.charge in [entry for entry, _ in made]

    def move(self, entry: int, state: State) -> None:
        for key, made in self.charges.items():
            self.charges[key] = [(each, state if each == entry else now) for each, now in made]

    @invariant()
    def books_and_model_agree(self) -> None:
        books = self.ledger.books
        assert books.charges.history == {STEP.with_noise(noise): count for noise, count in self.steps.items() if count}
        assert books.charges.states == {entry: state for made in self.charges.values() for entry, state in made}
        assert self.ledger.answer().guaranteed.epsilon <= EPSILON

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
        self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
