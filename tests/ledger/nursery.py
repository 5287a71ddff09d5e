"""Raises clients and kills them: run as a program, it prints one JSON object of what it saw.

Imports are done once, then each client is a fork that works on a real ledger until SIGKILL. A *release* is a line that
a client writes, durably, to a file of its own after `ready` has returned: what has left the machine.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from hashlib import sha256
from pathlib import Path

from ledger.worlds import World, policy, request, trained
from lrdp.accounting import Adjacency, RenyiAccountant
from lrdp.errors import AlreadyAnswered, LrdpError, Refused
from lrdp.ledger import Reply, State

ACCOUNTANT = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)


def release(log: int, reply: Reply) -> None:
    os.write(log, f"{reply.charge} {sha256(reply.body).hexdigest()}\n".encode())
    os.fsync(log)


def client(world: World, log: int, name: str, die_at: int | None) -> None:
    """Take part in rounds for ever; with ``die_at``, die at that write point."""
    points = itertools.count(1)

    def probe(_point: str) -> None:
        if next(points) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    with world.open(probe=probe) as ledger:
        for reply in ledger.unsent():
            release(log, reply)
            ledger.sent(reply)
        for number in itertools.count(int(time.time_ns() % 10**15)):
            try:
                reply = trained(ledger, ledger.charge(request(number, run=name, steps=1)))
            except (AlreadyAnswered, Refused):
                continue
            release(log, reply)
            ledger.sent(reply)


def born(world: World, name: str, die_at: int | None) -> int:
    child = os.fork()
    if child:
        return child
    log = os.open(world.folder / "released", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        client(world, log, name, die_at)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(3)


def checked(world: World, seen: dict[str, float]) -> None:
    """Open the ledger as any restart does, and compare it with what left."""
    with world.open() as ledger:
        books = ledger.books
        answer = ledger.answer()
    log = world.folder / "released"
    lines = log.read_text().splitlines() if log.exists() else []
    for line in lines:
        charge, digest = line.split()
        paid = books.charges.states.get(int(charge)) in (State.READY, State.SENT)
        if not paid or books.charges.replies[int(charge)] != digest:
            seen["released_but_uncharged"] += 1
    if books.charges.history and answer.spent != ACCOUNTANT.epsilon(books.charges.history, 1e-6):
        seen["wrong_epsilon"] += 1
    if answer.spent.epsilon < seen["epsilon"] or books.seq < seen["entries"]:
        seen["dropped"] += 1
    seen.update(
        epsilon=answer.spent.epsilon, entries=books.seq, charges=len(books.charges.states), releases=len(set(lines))
    )


def main(folder: Path, at_points: int, at_random: int, clients: int) -> None:
    """``at_points`` kills, one at each write point in turn; ``at_random`` times kill ``clients`` at once."""
    world = World(folder=folder, rules=policy(epsilon="1000.0", per_run_epsilon="1000.0"))
    world.create().close()
    seen: dict[str, float] = dict.fromkeys(
        ["kills", "released_but_uncharged", "wrong_epsilon", "dropped", "epsilon", "entries", "charges", "releases"], 0
    )
    chance = random.Random(20261115)
    for trial in range(at_points):
        child = born(world, "run-0", die_at=1 + trial % 29)
        _, status = os.waitpid(child, 0)
        seen["kills"] += os.WIFSIGNALED(status)
        checked(world, seen)
    for _ in range(at_random):
        children = [born(world, f"run-{number}", None) for number in range(clients)]
        time.sleep(chance.uniform(0.0, 0.2))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            _, status = os.waitpid(child, 0)
            seen["kills"] += os.WIFSIGNALED(status)
        checked(world, seen)
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
    except LrdpError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")
