"""Honest parties are never alarmed, and all end with the model that the arithmetic says."""

from __future__ import annotations

import numpy as np
import pytest

from integrity.parties import Federation, federation, honest_round
from lrdp.integrity import client
from lrdp.integrity.fixed_point import model_hash
from lrdp.integrity.rounds import Contribution, run_round
from lrdp.integrity.session import Method

METHODS = list(Method)


def contributions(world: Federation, names: list[str]) -> dict[str, Contribution]:
    return {name: Contribution(values=world.update(), nonce=world.rng.bytes(32)) for name in names}


@pytest.mark.parametrize("method", METHODS)
def test_a_round_of_the_specification_gives_everybody_the_mean_update(method):
    world = federation(4, size=1500, method=method)
    brought = contributions(world, list(world.clients))
    outcome = run_round(world.idle, world.clients, brought)
    mean = np.mean([one.values for one in brought.values()], axis=0) / 2**20
    assert np.allclose(outcome.server.model, world.idle.model + mean, atol=1e-6)
    for ready in outcome.clients.values():
        assert ready.model.tobytes() == outcome.server.model.tobytes()
        assert ready.position == outcome.server.position
        assert ready.position.model == model_hash(ready.model)


@pytest.mark.parametrize("method", METHODS)
def test_rounds_chain(method):
    world = federation(3, method=method)
    heads = set()
    for _ in range(4):
        outcome = run_round(world.idle, world.clients, contributions(world, list(world.clients)))
        world.idle, world.clients = outcome.server, outcome.clients
        heads.add(outcome.server.position.head)
    assert len(heads) == 4
    assert world.idle.position.round == 4


def _history(count: int, rounds: int, seed: int) -> int:
    """Rounds in which some are away, some drop out after M1, and the absent join again with receipts."""
    world = federation(count, size=5, seed=seed)
    receipts = []
    for _ in range(rounds):
        names = sorted(world.clients)
        away = set(world.rng.permutation(names)[: world.rng.integers(0, max(1, count - 4))])
        dropped = set(
            world.rng.permutation(sorted(set(names) - away))[: world.rng.integers(0, max(1, count - 2 - len(away)))]
        )
        receipts.append(honest_round(world, [name for name in names if name not in away], dropped))
        for name, ready in world.clients.items():
            missed = receipts[ready.position.round :]
            if missed and world.rng.random() < 0.8:
                world.clients[name] = client.catch_up(ready, missed, world.idle.model)
        behind = [name for name, ready in world.clients.items() if ready.position.round < len(receipts)]
        for name in behind:
            world.clients[name] = client.catch_up(
                world.clients[name], receipts[world.clients[name].position.round :], world.idle.model
            )
    return rounds


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_honest_rounds_with_dropouts_and_late_joiners_raise_no_alarm(seed):
    assert _history(count=3 + seed % 6, rounds=51, seed=seed) * 20 >= 1000


@pytest.mark.parametrize("count", [30, 64])
def test_larger_rosters_raise_no_alarm(count):
    _history(count, rounds=2, seed=count)


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 300])
def test_hundreds_of_participants_raise_no_alarm(count):
    honest_round(federation(count, size=5, seed=count))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_thousand_more_honest_rounds_raise_no_alarm(seed):
    _history(count=3 + seed % 17, rounds=51, seed=seed)
