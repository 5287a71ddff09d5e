from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ledger.worlds import POLICY, STEP, World, digest, exhaust, policy, request, round_trip, trained
from lrdp.accounting import FixedSizeGaussian, RenyiOrders, ReservedSlots
from lrdp.errors import AlreadyAnswered, BudgetExceeded, InvalidInput, LedgerUnwritable, PolicyRefused, ReceiptRefused
from lrdp.ledger import Ledger, Refusal, Reply, Request, SigningKey, State, parse_policy, void
from lrdp.ledger.store import Store


def test_a_charge_is_on_disk_before_the_receipt_is_handed_out(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
        with world.open() as another:
            assert another.books.charges.states == {receipt.entry: State.RESERVED}
            assert another.books.charges.history == {STEP: 39}


def test_the_states_follow_the_round(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
        assert ledger.books.charges.states[receipt.entry] is State.RESERVED
        reply = trained(ledger, receipt)
        assert ledger.books.charges.states[receipt.entry] is State.READY
        assert [waiting.body for waiting in ledger.unsent()] == [reply.body]
        ledger.sent(reply)
        assert ledger.books.charges.states[receipt.entry] is State.SENT
        assert ledger.unsent() == []
        seq = ledger.books.seq
        ledger.sent(reply)
        assert ledger.books.seq == seq


@pytest.mark.parametrize("asked", ["unsent", "reply_to", "reply_of"])
def test_a_reply_that_another_process_sends_meanwhile_is_not_taken_for_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Between the books and the outbox another process would send it, and drop it after some newer ones."""
    with world.create() as ledger:
        reply = trained(ledger, ledger.charge(request()))
        another = Ledger(store=Store(world.path, patience=0.05), policy=world.rules, key=world.key)
        found = Store.reply

        def busy(store: Store, charge: int) -> tuple[str, bytes] | None:
            with suppress(LedgerUnwritable), monkeypatch.context() as calm:
                calm.setattr(Store, "reply", found)
                another.sent(reply)
                for number in range(2, 9):
                    round_trip(another, request(number))
            return found(store, charge)

        monkeypatch.setattr(Store, "reply", busy)
        questions = {
            "unsent": lambda: ledger.unsent()[0],
            "reply_to": lambda: ledger.reply_to(request()),
            "reply_of": lambda: ledger.reply_of(reply.charge),
        }
        assert questions[asked]() == reply
        another.close()


def test_the_same_request_gets_the_same_bytes_for_free(world: World) -> None:
    with world.create() as ledger:
        first = round_trip(ledger, request())
        spent = ledger.answer()
    with world.open() as ledger:
        with pytest.raises(AlreadyAnswered, match="sent again, at no cost"):
            ledger.charge(request())
        assert ledger.reply_to(request()) == first
        assert ledger.answer() == spent


def test_a_crash_after_charging_still_counts_and_asking_again_is_a_new_charge(world: World) -> None:
    with world.create() as ledger:
        ledger.charge(request())
    with world.open() as ledger:
        assert ledger.reply_to(request()) is None
        assert ledger.books.charges.history == {STEP: 39}
        ledger.charge(request())
        assert ledger.books.charges.history == {STEP: 78}
        with pytest.raises(PolicyRefused, match="charged 2 times already") as caught:
            ledger.charge(request())
        assert caught.value.refusal is Refusal.RECHARGE


def test_another_model_in_the_same_round_is_a_new_charge(world: World) -> None:
    with world.create() as ledger:
        round_trip(ledger, request())
        round_trip(ledger, request(model="another"))
        assert ledger.books.charges.history == {STEP: 78}
        with pytest.raises(PolicyRefused):
            ledger.charge(request(model="a third"))


def test_old_replies_are_forgotten_but_never_charged_or_noised_again(world: World) -> None:
    with world.create() as ledger:
        for number in range(8):
            round_trip(ledger, request(number))
        assert ledger.reply_to(request(0)) is None
        assert ledger.reply_to(request(7)) is not None
        with pytest.raises(AlreadyAnswered):
            ledger.charge(request(0))


def test_the_budget_is_never_exceeded_and_the_refusal_costs_nothing(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(epsilon="1.5", per_run_epsilon="1.5"))
    with world.create() as ledger:
        for number in range(100):
            try:
                ledger.charge(request(number))
            except BudgetExceeded as problem:
                refused = problem
                break
        before = ledger.answer()
        assert refused.refusal is Refusal.BUDGET
        assert "nothing was trained and nothing was spent" in str(refused)
        assert "policy.toml line 7" in str(refused)
        assert before.guaranteed.epsilon <= 1.5
        assert ledger.books.refusals.by_reason == {Refusal.BUDGET: 1}
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(number))
        assert ledger.books.refusals.by_reason == {Refusal.BUDGET: 1}, "the same refusal is recorded once"
        assert ledger.answer() == before


def test_one_run_cannot_spend_anothers_share(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(epsilon="8.0", per_run_epsilon="1.5"))
    with world.create() as ledger:
        with pytest.raises(BudgetExceeded) as caught:
            exhaust(ledger)
        assert caught.value.refusal is Refusal.RUN_QUOTA
        ledger.charge(request(run="run-2"))


def test_a_stricter_policy_is_put_in_force_and_a_looser_budget_is_not(world: World) -> None:
    with world.create() as ledger:
        round_trip(ledger, request())
    lowered = World(folder=world.folder, key=world.key, rules=policy(epsilon="0.1", per_run_epsilon="0.1"))
    with lowered.open() as ledger, pytest.raises(BudgetExceeded, match=r"of 0\.1"):
        ledger.charge(request(2))
    raised = World(folder=world.folder, key=world.key, rules=policy(epsilon="80.0", per_run_epsilon="80.0"))
    with raised.open() as ledger:
        assert [len(ledger.books.policies), ledger.books.budget.epsilon] == [3, 8.0]
        with pytest.raises(BudgetExceeded, match=r"of 8\.0 "):
            exhaust(ledger, steps=400)


@pytest.mark.parametrize(
    "change",
    [
        {"client": '"hospital-b"'},
        {"unit": '"visit"'},
        {"max_rows_per_unit": "2"},
        {"max_rows_per_unit": '1\nclipped = "units"'},
        {"delta": "1e-5"},
        {"adjacency": '"replace-one"'},
    ],
)
def test_a_policy_for_other_data_is_refused(world: World, change: dict[str, str]) -> None:
    world.create().close()
    other = World(folder=world.folder, key=world.key, rules=policy(**change))
    with pytest.raises(PolicyRefused, match="open a new ledger") as caught:
        other.open()
    assert caught.value.refusal is Refusal.OTHER_LEDGER


def test_what_was_opened_for_units_stays_so_and_a_policy_that_says_as_much_is_taken(
    world: World,
) -> None:
    """Else rows that were charged one by one would read as units, whose ε has no group factor."""
    as_units = 'max_rows_per_unit = 1\nclipped = "units"'
    by_unit = replace(world, rules=policy(max_rows_per_unit='1\nclipped = "units"'))
    by_unit.create().close()
    with pytest.raises(PolicyRefused, match="what is clipped"):
        replace(world, rules=policy()).open()
    other = POLICY.replace("max_rows_per_unit = 1", as_units).replace("epsilon = 8.0", "epsilon = 7.0")
    with replace(world, rules=parse_policy(other, source="policy.toml")).open() as ledger:
        assert ledger.charge(request(1)).by_unit
    with pytest.raises(PolicyRefused, match="what is clipped"):
        replace(world, rules=policy()).open()


def test_leaving_the_key_out_means_rows(world: World) -> None:
    world.create().close()
    said = policy(max_rows_per_unit='1\nclipped = "rows"')
    with replace(world, rules=said).open() as ledger:
        assert not ledger.charge(request(1)).by_unit


def test_another_key_is_refused(world: World) -> None:
    world.create().close()
    with pytest.raises(PolicyRefused, match="not the one that signs for this ledger"):
        World(folder=world.folder).open()


def test_an_administrator_voids_a_charge_and_history_stays(world: World) -> None:
    with world.create() as ledger:
        kept = ledger.charge(request(1))
        lost = ledger.charge(request(2))
        void(ledger, lost.entry, "the machine lost power before training", world.administrator)
        assert ledger.books.charges.history == {STEP: 39}
        assert ledger.books.charges.voided == {STEP: 39}
        assert ledger.books.charges.steps == 78
        lost.redeem()
        with pytest.raises(ReceiptRefused, match="is void"):
            ledger.ready(lost, b"too late")
        reply = trained(ledger, kept)
        for entry in (lost.entry, kept.entry, 1, 999):
            with pytest.raises(InvalidInput, match="never voided"):
                void(ledger, entry, "again", world.administrator)
        ledger.sent(reply)
        with pytest.raises(InvalidInput, match="administrator"):
            void(ledger, lost.entry, "by a stranger", SigningKey.generate())
    with world.open() as ledger:
        assert ledger.books.charges.states[lost.entry] is State.VOID


def test_slots_are_used_up_and_nothing_beyond_them(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(per_run_epsilon="8.0"))
    with world.create(rule=ReservedSlots(slots={STEP: 100})) as ledger:
        reserved = ledger.answer().guaranteed.epsilon
        round_trip(ledger, request(1, steps=60))
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(2, steps=41))
        round_trip(ledger, request(3, steps=40))
        assert ledger.answer().guaranteed.epsilon == reserved
        assert ledger.answer().spent.epsilon == pytest.approx(reserved)
    with world.open() as ledger, pytest.raises(BudgetExceeded):
        ledger.charge(request(4, steps=1))


def test_slots_above_the_budget_are_not_opened(world: World) -> None:
    with pytest.raises(InvalidInput, match="nothing was opened"):
        world.create(rule=ReservedSlots(slots={STEP: 10**6}))
    assert not world.path.exists()


def test_a_committed_order_is_kept_for_good(world: World) -> None:
    rule = world.rules.budget
    choice = RenyiOrders.committed(rule.total, rule.adjacency, {STEP: 2000})
    world.create(rule=choice).close()
    with world.open() as ledger:
        ledger.charge(request())
        assert [ledger.answer().guaranteed.order] == list(choice.weights)


def test_a_ledger_is_never_overwritten(world: World) -> None:
    world.create().close()
    with pytest.raises(InvalidInput, match="never overwritten"):
        world.create()
    assert world.path.stat().st_mode & 0o777 == 0o600


def test_a_receipt_of_another_ledger_stores_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = World(folder=tmp_path / "a"), World(folder=tmp_path / "b")
    with one.create() as first, two.create() as second:
        receipt = first.charge(request())
        receipt.redeem()
        with pytest.raises(ReceiptRefused, match="another ledger"):
            second.ready(receipt, b"bytes")
        own = second.charge(request(2))
        assert own.entry == receipt.entry
        with pytest.raises(ReceiptRefused, match="another ledger"):
            second.ready(receipt, b"bytes")


def test_the_key_of_a_request_binds_run_round_model_and_config() -> None:
    keys = {
        request().key,
        request(2).key,
        request(run="r").key,
        request(model="m").key,
        replace(request(), config_digest=digest("c")).key,
    }
    assert len(keys) == 5
    assert isinstance(request(), Request)


def test_what_was_never_stored_was_never_sent(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
        for entry in (receipt.entry, 1, 99):
            with pytest.raises(InvalidInput, match="no reply that could have been sent"):
                ledger.sent(Reply(charge=entry, body=b"", head=""))
        assert ledger.books.charges.states == {receipt.entry: State.RESERVED}


def test_numbers_of_numpy_are_written_as_numbers(world: World) -> None:
    with world.create() as ledger:
        step = FixedSizeGaussian(
            dataset_size=np.int64(5000),  # type: ignore[arg-type]
            batch_size=np.int32(128),  # type: ignore[arg-type]
            noise_multiplier=np.float64(3.7),
        )
        ledger.charge(request(mechanism=step, steps=np.int64(39)))  # type: ignore[arg-type]
    with world.open() as ledger:
        assert ledger.books.charges.history == {STEP: 39}
