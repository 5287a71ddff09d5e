"""Raises the cast and kills it: run as a program, with a folder and a schedule. What happened is left in the folder.

Imports are done once; then every server, node and guard is a fork that dies of SIGKILL and is born again.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from federation.rotations import newcomer, replace_key, rotate
from federation.worlds import TRAINING, World, model, records, reopened
from lrdp.federation import CommonRules, LocalTask, found
from lrdp.federation.client.guard import Ward, inspected
from lrdp.integrity import Identity, Registry, new_identity
from lrdp.ledger import Scheme
from lrdp.training import CrossEntropy

from . import cast
from .diary import note
from .schedule import ABRUPT, SERVER, Change, Schedule
from .server_files import could_do_without, in_force, participants, rounds_verified

PR_SET_PDEATHSIG = 1
STEP_SECONDS = 0.05
LISTED_SECONDS = 1.0
"""So long a killed node is listed still."""
MOST_ATTEMPTS = 3
"""For each round that is wanted: a chaos that needs more does not come to its end."""
FIRST = 1
"""The version of the registry that a consortium is founded with."""
TASK = "task_of_the_chaos:task"


def die_with_parent() -> None:
    """Whatever ends the director, nobody is left behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Director:
    """Who lives, how often each was born, and which changes are due."""

    folder: Path
    schedule: Schedule
    world: World = field(init=False)
    living: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    births: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    gone: dict[int, float] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    due: list[Change] = field(init=False)
    attempts: int = field(init=False)
    moments: dict[int, float] = field(default_factory=dict)
    waiting: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    calm: bool = False

    def __post_init__(self) -> None:
        self.due, self.attempts = self.schedule.days, self.schedule.rounds
        for name in ("sockets", "passed", "logs"):
            (self.folder / name).mkdir()
        names = [f"hospital-{number}" for number in range(self.schedule.founders)]
        plans = dict(zip(names, self.schedule.budgets, strict=False))
        trainings = {name: replace(TRAINING, rounds=rounds, local_steps=1) for name, rounds in plans.items()}
        rules = CommonRules(scheme=Scheme(self.schedule.scheme))
        found(self.folder / "consortium", trainings, min_roster=3, task=TASK, rules=rules)
        self.world = reopened(self.folder, self.schedule.founders)
        self.load()
        for number in range(self.schedule.founders):
            self.settle_in(number)
        self.await_guards(range(self.schedule.founders))

    def load(self) -> None:
        """What a guard loads when it first looks at a task, so that those that are forked have it."""
        task = LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2))
        inspected(Ward(home=self.world.consortium.client("hospital-0"), task=task, settings={"partition-id": 0}))

    def await_guards(self, numbers: Iterable[int]) -> None:
        deadline = time.monotonic() + 600
        while not all(self.says_it_guards(number) for number in numbers):
            if time.monotonic() > deadline:
                raise TimeoutError("guards do not listen.")
            time.sleep(STEP_SECONDS)

    def says_it_guards(self, number: int) -> bool:
        log = self.folder / "logs" / f"guard-{number}"
        return log.exists() and "guarding" in log.read_text()

    def settle_in(self, number: int) -> None:
        """A hospital's code, its guard and its node."""
        home = self.world.consortium.client(f"hospital-{number}").folder
        (home / "task_of_the_chaos.py").write_text(cast.TASK, encoding="utf-8")
        home.chmod(0o700)
        self.bear("guard", number)
        self.bear("node", number)

    # ------------------------------------------------------------------------------------------------ birth and death
    def bear(self, kind: str, number: int = 0) -> None:
        """One life more of a process."""
        name = f"{kind}-{number}"
        birth, self.births[name] = self.births[name], self.births[name] + 1
        mortal = not self.calm and self.deaths[kind] < self.mortality(kind)
        calls = self.schedule.lifetime(kind, name, birth) if mortal else 0
        attempts = self.attempts
        acts: dict[str, Callable[[], None]] = {
            "guard": lambda: cast.guard(self.folder, number, calls),
            "node": lambda: cast.node(self.folder, number, birth, calls),
            SERVER: lambda: cast.server(self.folder, self.schedule, birth, calls, attempts),
        }
        child = os.fork()
        if child:
            self.living[child] = kind, name, birth
            return
        code = 3
        try:
            die_with_parent()
            log = os.open(self.folder / "logs" / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            acts[kind]()
            code = 0
        except BaseException:  # noqa: BLE001 — it is a fork: nothing of it may go on into the director's own code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def mortality(self, kind: str) -> int:
        given = self.schedule.mortality.get(kind)
        return 0 if given is None else given.deaths

    def bury(self) -> int | None:
        """Those who died are born again, but for a server that came to its end: its exit code."""
        while self.living:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return None
            kind, name, birth = self.living.pop(child)
            number = int(name.partition("-")[2])
            if not os.WIFSIGNALED(status):
                if kind == SERVER:
                    return os.waitstatus_to_exitcode(status)
                raise RuntimeError(f"{name} ended by itself: {(self.folder / 'logs' / name).read_text()}")
            self.deaths[kind] += 1
            if kind == "node":
                self.gone[cast.node_id(number, birth)] = time.monotonic() + LISTED_SECONDS
            if kind == SERVER or number not in self.left:
                self.bear(kind, number)
        return None

    @property
    def round(self) -> int:
        return rounds_verified(self.folder)

    @contextmanager
    def noted(self, **what: object) -> Iterator[None]:
        """What comes to somebody from outside, between these two looks at the round."""
        before = self.round
        yield
        note(self.folder, **what, round=before, until=self.round)

    def kill(self, child: int) -> None:
        with self.noted(dead=self.living[child][1]):
            os.kill(child, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------------- the days
    def has_come(self, given: Change) -> bool:
        """Some time after the round that it is to follow; whoever goes abruptly does so where a round can bear it."""
        if self.round < given.after:
            return False
        moment = self.moments.setdefault(given.after, time.monotonic() + self.schedule.delay(given))
        return time.monotonic() > moment and (given.act not in ABRUPT or self.could_bear(given))

    def could_bear(self, given: Change) -> bool:
        """One at a time: a round that can do without either of two members may not be able to do without both."""
        made = len(self.schedule.changes) - len(self.due)
        settled = max(in_force(self.folder), FIRST) == FIRST + made
        return settled and could_do_without(self.folder, f"hospital-{given.hospital}")

    def change(self, given: Change) -> None:
        """What the consortium's office and the hospital do on such a day."""
        note(self.folder, change=given.act, hospital=given.hospital, round=self.round)
        name, fresh = f"hospital-{given.hospital}", new_identity(f"hospital-{given.hospital}")
        acts: dict[str, Callable[[], object]] = {
            "join": lambda: self.join(given.hospital, fresh),
            "replace key": lambda: self.once_in_force(
                rotate(self.world, having={name: fresh}), partial(replace_key, self.world, name, fresh)
            ),
            "lose key": lambda: self.lose_key(name, fresh),
            "leave": lambda: self.once_in_force(
                rotate(self.world, without=[name]), partial(self.see_off, given.hospital)
            ),
            "vanish": lambda: (self.see_off(given.hospital), rotate(self.world, without=[name])),
            "exclude": lambda: rotate(self.world, without=[name]),
        }
        acts[given.act]()

    def join(self, number: int, fresh: Identity) -> None:
        following = rotate(self.world, having={fresh.name: fresh})
        training = replace(TRAINING, rounds=self.schedule.budgets[number], local_steps=1)
        newcomer(self.world, number, fresh, following, Scheme(self.schedule.scheme), training=training, task=TASK)
        self.settle_in(number)

    def lose_key(self, name: str, fresh: Identity) -> None:
        """The office hears of it at once; what the old key would have signed is never signed."""
        with self.noted(lost=name):
            replace_key(self.world, name, fresh)
        rotate(self.world, having={name: fresh})

    def once_in_force(self, registry: Registry, act: Callable[[], object]) -> None:
        """As docs/runbook.md says: until then a round may wait for the confirmation that only this member can give."""
        self.waiting.append((registry.version, act))

    def see_off(self, number: int) -> None:
        self.left.add(number)
        for child, (kind, known, _) in self.living.items():
            if kind != SERVER and known == f"{kind}-{number}":
                self.kill(child)

    def wants_more(self) -> bool:
        """Whether rounds are left to be made once all attempts were, or days to come: then so many more are."""
        missing = self.schedule.rounds + self.calm - self.round
        missing = max(missing, 0 if self.calm or self.all_has_come() else 1)
        over = json.loads((self.folder / "ended").read_text())["reason"]
        if missing <= 0 or over or self.attempts > MOST_ATTEMPTS * self.schedule.rounds:
            return False
        self.attempts += missing
        return True

    def all_has_come(self) -> bool:
        """Every registry is in force, and whoever joined has been in a round."""
        joined = {f"hospital-{each.hospital}" for each in self.schedule.changes if each.act == "join"}
        everything = not self.due and in_force(self.folder) == FIRST + len(self.schedule.changes)
        return everything and joined <= participants(self.folder)

    def run(self, seconds: float) -> int:
        """Until the server's run is over: its exit code."""
        deadline, source = time.monotonic() + seconds, self.schedule.chance("outside")
        strike = time.monotonic() + source.uniform(0, 2 * self.schedule.seconds)
        while time.monotonic() < deadline:
            code = self.bury()
            if code == 0 and self.wants_more():
                self.bear(SERVER)
            elif code is not None:
                return code
            while self.due and self.has_come(self.due[0]):
                self.change(self.due.pop(0))
            while self.waiting and in_force(self.folder) >= self.waiting[0][0]:
                self.waiting.pop(0)[1]()
            for identity in [each for each, until in self.gone.items() if time.monotonic() > until]:
                del self.gone[identity]
                cast.node_path(self.folder, identity).unlink(missing_ok=True)
            if self.schedule.seconds and not self.calm and time.monotonic() > strike:
                self.strike(source.random())
                strike = time.monotonic() + source.uniform(0, 2 * self.schedule.seconds)
            time.sleep(STEP_SECONDS)
        raise TimeoutError(f"the run was not over in {seconds} seconds, and stands at round {self.round}.")

    def strike(self, where: float) -> None:
        """Kill one of those who may still die, whatever it is doing: each kind is as likely, however many it has."""
        kinds = sorted({kind for kind, _, _ in self.living.values() if self.deaths[kind] < self.mortality(kind)})
        if kinds:
            kind, among = kinds[int(where * len(kinds))], where * len(kinds) % 1
            mortal = sorted(child for child, (other, _, _) in self.living.items() if other == kind)
            self.kill(mortal[int(among * len(mortal))])

    def end(self) -> None:
        for child in self.living:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def main(folder: Path, schedule: Schedule, seconds: float) -> None:
    """All rounds in chaos; then one more of a server that lives on, which brings home what is open."""
    director = Director(folder, schedule)
    try:
        director.bear(SERVER)
        code = director.run(seconds)
        director.calm = True
        if code == 0:
            director.attempts += 1
            director.bear(SERVER)
            code = director.run(seconds)
        note(folder, ended=code, deaths=dict(director.deaths))
    finally:
        director.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Schedule.decode(sys.argv[2]), float(sys.argv[3]))
