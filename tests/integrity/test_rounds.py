"""Honest parties are never alarmed, and all end with the model that the arithmetic says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from integrity.parties import Federation, federation, honest_round, stage
from lrdp.integrity import checks, client, keys, schemes, server
from lrdp.integrity.fixed_point import model_hash
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.rounds import Contribution, run_round
from lrdp.integrity.session import ProofMethod

METHODS = list(ProofMethod)


def contributions(world: Federation, names: list[str]) -> dict[str, Contribution]:
    return {
        name: Contribution(update=world.idle.position.round + 1, values=world.update(), nonce=world.rng.bytes(32))
        for name in names
    }


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
    tips = set()
    for _ in range(4):
        outcome = run_round(world.idle, world.clients, contributions(world, list(world.clients)))
        world.idle, world.clients = outcome.server, outcome.clients
        tips.add(outcome.server.position.tip)
    assert len(tips) == 4
    assert world.idle.position.round == 4


@dataclass
class Story:
    """A history among honest parties, of whom some are away, drop out, fall silent after PUBLISH, or join late."""

    world: Federation
    receipts: list[RoundReceipt] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    rosters: list[int] = field(default_factory=list)

    def round(self, invited: int) -> None:
        rng, names = self.world.rng, sorted(self.world.clients)
        chosen = sorted(rng.permutation(names)[:invited].tolist())
        for name in chosen:
            self.join(name)
        dropped = set(rng.permutation(chosen)[: rng.integers(0, max(1, invited - 2))].tolist())
        dropped = dropped if rng.random() < 0.5 else set()
        if rng.random() < 0.2 and invited - len(dropped) > 3:
            chosen.remove(self.silence(chosen, dropped))
        self.seen["dropouts"] += invited - len(chosen) + len(dropped)
        self.rosters.append(len(chosen) - len(dropped))
        self.receipts.append(honest_round(self.world, chosen, dropped))

    def join(self, name: str) -> None:
        ready = self.world.clients[name]
        missed = self.receipts[ready.position.round :]
        if missed:
            self.seen["late joiners"] += 1
            self.world.clients[name] = client.catch_up(ready, missed, self.world.idle.model)

    def silence(self, chosen: list[str], dropped: set[str]) -> str:
        """An attempt in which one participant never answers PUBLISH: everybody goes back, and the silent one is out."""
        scene = stage(self.world, chosen, dropped=dropped)
        *others, silent = scene.names
        for name in others:
            tagged, _ = client.answer(scene.committed[name], scene.publish)
            self.world.clients[name] = client.roll_back(tagged)
        self.world.clients[silent] = client.abandon(scene.committed[silent])
        self.world.idle = server.retry(scene.published.idle)
        self.world.number += 1  # another roster is shown other updates
        self.seen["attempts rolled back"] += 1
        return silent


def tell(world: Federation, rounds: int) -> Story:
    """Rosters of three up to everybody, small ones as likely as ten times larger ones; the extremes come first."""
    story, most = Story(world), len(world.clients)
    for invited in [3, most]:
        story.round(invited)
    while len(story.receipts) < rounds:
        story.round(int(np.exp(world.rng.uniform(np.log(3), np.log(most + 1)))))
    return story


def remember(monkeypatch: pytest.MonkeyPatch, *places: object) -> None:
    """Let verification, a pure function, be computed once for all clients: each still asks, about what *it* saw."""
    known = cache(keys.verifies)
    for place in places:
        monkeypatch.setattr(place, "verifies", known)
    monkeypatch.setattr(schemes, "transcript_challenge", cache(schemes.transcript_challenge))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(10))
def test_honest_rounds_with_dropouts_and_late_joiners_raise_no_alarm(seed):
    story = tell(federation(3 + 3 * seed, size=5, seed=seed), rounds=14)
    assert len(story.receipts) == 14
    assert seed < 2 or (story.seen["dropouts"] and story.seen["late joiners"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_thousand_honest_rounds_of_three_to_three_hundred_raise_no_alarm(seed, monkeypatch):
    remember(monkeypatch, keys, checks)
    story = tell(federation(300, size=5, seed=seed), rounds=101)
    assert len(story.receipts) == 101
    assert max(story.rosters) > 100
    assert min(story.rosters) == 3
    assert all(story.seen[kind] > 5 for kind in ("dropouts", "late joiners", "attempts rolled back"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 300])
def test_hundreds_of_participants_raise_no_alarm(count):
    honest_round(federation(count, size=5, seed=count))
