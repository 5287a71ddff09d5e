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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from federation.rotations import newcomer, replace_key, rotate
from federation.worlds import TRAINING, World, model, records, reopened
from lrdp.federation import LocalTask, found
from lrdp.federation.client.guard import Ward, inspected
from lrdp.federation.server.saved_state import read_state
from lrdp.integrity import Registry, new_identity, read_step
from lrdp.training import CrossEntropy

from . import cast
from .schedule import SERVER, Change, Schedule

PR_SET_PDEATHSIG = 1
STEP_SECONDS = 0.05
LISTED_SECONDS = 1.0
"""So long a killed node is listed still."""


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
    waiting: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    calm: bool = False

    def __post_init__(self) -> None:
        self.due = sorted(self.schedule.changes, key=lambda change: change.after)
        for name in ("sockets", "passed", "logs"):
            (self.folder / name).mkdir()
        names = [f"hospital-{number}" for number in range(self.schedule.founders)]
        plans = dict(zip(names, self.schedule.budgets, strict=False))
        trainings = {name: replace(TRAINING, rounds=rounds, local_steps=1) for name, rounds in plans.items()}
        found(self.folder / "consortium", trainings, min_roster=3, task="task_of_the_chaos:task")
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
        attempts = self.schedule.attempts
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
            self.note(dead=name, birth=birth, round=self.round, at=time.time())
            if kind == "node":
                self.gone[cast.node_id(number, birth)] = time.monotonic() + LISTED_SECONDS
            if kind == SERVER or number not in self.left:
                self.bear(kind, number)
        return None

    def note(self, **what: object) -> None:
        with (self.folder / "director.jsonl").open("a") as file:
            file.write(json.dumps(what) + "\n")

    @property
    def round(self) -> int:
        state = read_state(self.world.consortium.server_folder)
        return 0 if state is None else state.round

    # ------------------------------------------------------------------------------------------------------- the days
    def change(self, given: Change) -> None:
        """What the consortium's office and the hospital do on such a day."""
        self.note(change=given.act, hospital=given.hospital, round=self.round, at=time.time())
        number, name = given.hospital, f"hospital-{given.hospital}"
        if given.act == "join":
            fresh = new_identity(name)
            following = rotate(self.world, having={name: fresh})
            training = replace(TRAINING, rounds=self.schedule.budgets[number], local_steps=1)
            newcomer(self.world, number, fresh, following, training=training, task="task_of_the_chaos:task")
            self.settle_in(number)
        elif given.act == "replace key":
            fresh = new_identity(name)
            self.once_in_force(rotate(self.world, having={name: fresh}), partial(replace_key, self.world, name, fresh))
        else:
            following = rotate(self.world, without=[name])
            if given.act == "leave":
                self.once_in_force(following, partial(self.see_off, number))

    def once_in_force(self, registry: Registry, act: Callable[[], object]) -> None:
        """As docs/runbook.md says: until then a round may wait for the confirmation that only this member can give."""
        self.waiting.append((registry.version, act))

    def see_off(self, number: int) -> None:
        self.left.add(number)
        for child, (kind, known, _) in self.living.items():
            if kind != SERVER and known == f"{kind}-{number}":
                os.kill(child, signal.SIGKILL)

    @property
    def in_force(self) -> int:
        """The version of the registry that the server took up last: its state has what its receipts have not yet."""
        folder = self.world.consortium.server_folder
        texts = [path.read_text() for path in folder.glob("receipts-*.txt")]
        whole = [bytes.fromhex(line) for text in texts for line in text[: text.rfind("\n") + 1].split()[1:]]
        state = read_state(folder)
        steps = map(read_step, [*whole, *(() if state is None else state.receipts)])
        return max((step.version for step in steps if isinstance(step, Registry)), default=0)

    def run(self, seconds: float) -> int:
        """Until the server's run is over: its exit code."""
        deadline, source = time.monotonic() + seconds, self.schedule.chance("outside")
        strike = time.monotonic() + source.uniform(0, 2 * self.schedule.seconds)
        while time.monotonic() < deadline:
            code = self.bury()
            if code is not None:
                return code
            while self.due and self.round >= self.due[0].after:
                self.change(self.due.pop(0))
            while self.waiting and self.in_force >= self.waiting[0][0]:
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
            os.kill(mortal[int(among * len(mortal))], signal.SIGKILL)

    def end(self) -> None:
        for child in self.living:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def main(folder: Path, schedule: Schedule, seconds: float) -> None:
    """All attempts in chaos; then one server's life more, in peace, which brings home what is open."""
    director = Director(folder, schedule)
    try:
        director.bear(SERVER)
        code = director.run(seconds)
        director.calm = True
        if code == 0:
            director.schedule = replace(schedule, attempts=schedule.attempts + 1)
            director.bear(SERVER)
            code = director.run(seconds)
        director.note(ended=code, deaths=dict(director.deaths))
    finally:
        director.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Schedule.decode(sys.argv[2]), float(sys.argv[3]))
