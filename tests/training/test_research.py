"""Seeded randomness is for studies: the same keys give the same update, and no real client can be made to use them."""

import ast
import dataclasses
import inspect
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import lrdp
from ledger.worlds import World, request
from lrdp import training
from lrdp.errors import InvalidInput, ReceiptRefused
from lrdp.federation import LocalTask, Order
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.paying import Payer
from lrdp.ledger.receipt import Receipt
from lrdp.training import Execution, PublicConstants, Task, private_update, unaccounted_private_update
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness
from lrdp.training.research import seeded_randomness, seeded_update
from training.cases import fixed, noise_only, silent, task, vector

SOURCE = Path(lrdp.__file__).parent
FORBIDDEN = {"research", "unaccounted_private_update", "seeded_update", "seeded_randomness", "Randomness", "Keystream"}


def words(randomness):
    return np.concatenate([randomness.sampling.words(8), randomness.noise.words(8)])


def test_the_same_numbers_give_the_same_update_and_any_other_does_not():
    def made(*numbers):
        return vector(unaccounted_private_update(fixed(), 2, task(), seeded_randomness(*numbers)).delta)

    assert torch.equal(made(5, 1, 3), made(5, 1, 3))
    for other in ((6, 1, 3), (5, 2, 3), (5, 1, 4)):
        assert not torch.equal(made(5, 1, 3), made(*other))


def test_no_two_streams_of_a_study_are_the_same():
    drawn = [words(seeded_randomness(*numbers)).tobytes() for numbers in np.ndindex(3, 4, 5)]
    assert len(set(drawn)) == len(drawn)
    one = seeded_randomness(0, 0, 0)
    assert not np.array_equal(one.sampling.words(8), one.noise.words(8))


def test_a_seeded_update_is_paid_for_like_any_other(tmp_path):
    of_the_policy = noise_only(dataset=silent(5000), constants={"clip_norm": 1.0})
    with World(folder=tmp_path).create() as ledger:
        receipt = ledger.charge(request(0, steps=1))
        seeded_update(receipt, of_the_policy, seeded_randomness(0, 0, 0))
        with pytest.raises(ReceiptRefused):
            seeded_update(receipt, of_the_policy, seeded_randomness(0, 0, 1))
        with pytest.raises(ReceiptRefused):
            seeded_update("no receipt", of_the_policy, seeded_randomness(0, 0, 1))  # type: ignore[arg-type]
        assert sum(ledger.books.charges.history.values()) == 1


# ------------------------------------------------------------------------------------------- and never for real clients
def test_without_randomness_every_update_differs_whatever_is_seeded():
    def made():
        torch.manual_seed(4)
        np.random.seed(4)  # noqa: NPY002
        random.seed(4)
        return vector(unaccounted_private_update(fixed(), 1, task()).delta)

    assert not torch.equal(made(), made())


def mentions(annotation):
    return any(name in str(annotation) for name in ("Keystream", "Randomness", "seed"))


def test_no_parameter_of_a_private_update_holds_randomness():
    """Neither its own, nor those of anything that it is given, nor those of a client's app, order and participant."""
    assert set(inspect.signature(private_update).parameters) == {"receipt", "task"}
    for kind in (Task, PublicConstants, Execution, Receipt, LocalTask, Order):
        for field in dataclasses.fields(kind):
            assert not mentions(field.name)
            assert not mentions(field.type)
    assert set(inspect.signature(Participant).parameters) == {"home", "bench", "update"}


@pytest.mark.parametrize("room", ["federation", "commands"])
def test_clients_make_updates_by_the_private_update_alone(room):
    """Another may be put in its place for studies: nobody who serves real clients does."""
    for kind in (Participant, Payer):
        assert inspect.signature(kind).parameters["update"].default is private_update
    calls = [
        call
        for path in (SOURCE / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Participant"
    ]
    assert calls
    assert all(len(call.args) == 2 and not call.keywords for call in calls)


def test_control_the_search_finds_randomness_where_it_is():
    fields = {field.name: field.type for field in dataclasses.fields(Randomness)}
    assert all(mentions(kind) for kind in fields.values())
    assert mentions(inspect.signature(unaccounted_private_update).parameters["randomness"].annotation)


def test_an_order_with_a_seed_is_refused():
    with pytest.raises(InvalidInput):
        Order.decode(b'{"seed":4}')
    with pytest.raises(InvalidInput):
        Order().with_config({"seed": 4})


def named_in(path):
    """Every name that a file imports or uses."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.parametrize("room", ["federation", "commands", "report", "ledger", "integrity"])
def test_no_room_that_serves_clients_names_what_is_seeded(room):
    found = {name for path in (SOURCE / room).rglob("*.py") for name in named_in(path)}
    assert not found & FORBIDDEN


def test_control_the_study_does_name_it():
    found = {name for path in (SOURCE / "experiments" / "utility").rglob("*.py") for name in named_in(path)}
    assert {"seeded_randomness", "seeded_update", "unaccounted_private_update"} <= found


def test_a_participant_asks_the_operating_system(monkeypatch):
    """What it makes updates by, unless a study says otherwise, has streams that are born by ``from_system`` alone."""
    born = []
    monkeypatch.setattr(Keystream, "from_system", classmethod(lambda cls: born.append(1) or cls(bytes(32))))
    unaccounted_private_update(fixed(), 1, task())
    assert len(born) == 2
    assert inspect.signature(Participant).parameters["update"].default is private_update
    assert "seeded_update" not in training.__all__
