import copy
import multiprocessing
import pickle
from dataclasses import replace

import pytest

from ledger.worlds import STEP, World, request
from lrdp.errors import ReceiptRefused
from lrdp.ledger import Receipt


def test_a_receipt_names_what_was_paid_for(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request(steps=37))
    assert (receipt.mechanism, receipt.steps, receipt.clip_norm) == (STEP, 37, 1.0)
    assert receipt.request_key == request(steps=37).key
    assert not receipt.redeemed


def test_a_receipt_is_redeemed_once(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
    receipt.redeem()
    assert receipt.redeemed
    with pytest.raises(ReceiptRefused, match="redeemed before"):
        receipt.redeem()


def test_a_receipt_made_by_hand_is_refused() -> None:
    with pytest.raises(ReceiptRefused, match="paid for nothing"):
        Receipt(mechanism=STEP, steps=1, clip_norm=1.0, request_key="0" * 64, entry=3)


def test_a_receipt_cannot_be_copied(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, replace):
        with pytest.raises(ReceiptRefused):
            duplicate(receipt)


def _redeem(receipt: Receipt, result: "multiprocessing.Queue[str]") -> None:
    try:
        receipt.redeem()
        result.put("redeemed")
    except ReceiptRefused as problem:
        result.put(str(problem))


def test_a_forked_process_cannot_redeem_its_parents_receipt(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
    fork = multiprocessing.get_context("fork")
    result = fork.Queue()
    child = fork.Process(target=_redeem, args=(receipt, result))
    child.start()
    assert "another process" in result.get(timeout=30)
    child.join()


def test_a_reply_needs_a_redeemed_receipt(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
        with pytest.raises(ReceiptRefused, match="not redeemed"):
            ledger.ready(receipt, b"bytes")
