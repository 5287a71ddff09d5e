"""What verification costs a client and the server, compared with hashing the update once and with plain averaging.

    python benchmarks/integrity.py [--quick] [--case 9.2M:10] [--json]

One core; process CPU time; best of a few. Of a hundred participants one is played, and the others' signatures are made
for it: its work is the same. Exact rounds relay one buffer in place of everybody's, since the vectors of a hundred
participants would not fit in memory: the same bytes are hashed and summed as often. With ``--json`` the last line of
stdout is one object; docs/results/integrity.md names its keys.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lrdp.federation.server.archive import Archive
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.wire.layout import Layout, pack_values
from lrdp.federation.wire.questions import Contributed, Hello
from lrdp.integrity import client, server
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.exact import ExactClient, ExactServer, exact_client, session_key
from lrdp.integrity.fixed_point import FixedPoint, Model, Room, Whole, aggregate_hash, inspect, quantise
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.registry import NO_PREVIOUS, Registry, sign_registry
from lrdp.integrity.schemes import SketchClient, SketchServer, sketch_client, transcript_challenge
from lrdp.integrity.session import Parameters, Position, ProofMethod, Session
from lrdp.integrity.wire import Wire

SIZES = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000, "9.2M": 9_200_000, "110M": 110_000_000}
FULL = [("1M", 10), ("1M", 100), ("1M", 1000), ("9.2M", 10), ("9.2M", 100), ("110M", 10), ("110M", 100)]
QUICK = [("1M", 10), ("9.2M", 10)]


def secret(*words: object) -> bytes:
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def identities(count: int) -> list[Identity]:
    names = [f"a-hospital-with-a-long-name-{index:05d}" for index in range(count)]
    return [Identity(name=name, signing_secret=secret(name), agreement_secret=secret(name, 2)) for name in names]


@dataclass
class Scene:
    """A round of which one client is played, the first of ``people``."""

    session: Session
    people: list[Identity]
    server: Identity
    model: Model
    update: np.ndarray[Any, np.dtype[np.float32]]

    @property
    def point(self) -> FixedPoint:
        return self.session.parameters.point


def scene(size: int, count: int, method: ProofMethod) -> Scene:
    people = identities(count)
    owner = Identity(name="server", signing_secret=secret("server"), agreement_secret=secret("server", 2))
    registry = Registry(
        version=1,
        first_round=0,
        previous=NO_PREVIOUS,
        consortium=owner.member.signing_key,
        members=tuple(one.member for one in people),
    )
    parameters = Parameters(point=FixedPoint(size=size), method=method)
    session = Session(
        identifier=bytes(32),
        server_key=owner.member.signing_key,
        parameters=parameters,
        registry=sign_registry(registry, owner),
    )
    rng = np.random.default_rng(1)
    model = rng.standard_normal(size, dtype=np.float32)
    update = rng.standard_normal(size, dtype=np.float32)
    update *= np.float32(0.01)
    return Scene(session, people, owner, model, update)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@dataclass
class Cost:
    """A client's CPU seconds, bytes beyond the vectors that plain averaging sends too, and peak memory besides them."""

    client: float = 0.0
    extra: int = 0
    up: int = 0
    down: int = 0
    memory: int = 0

    def run(self, work: Callable[[], Any]) -> Any:
        seconds, result = timed(work)
        self.client += seconds
        return result


@dataclass
class Said:
    """One client's messages of a round, in both directions."""

    position: Position
    train: Train
    update: CommittedUpdate
    publish: Publish
    tag: Tag
    tags: Tags
    accept: Accept

    @property
    def size(self) -> int:
        """Bytes besides the vectors."""
        wire = Wire(self.position)
        down = wire.train(self.train), wire.publish(self.publish), wire.tags(self.tags, self.publish.header)
        up = wire.update(self.update), wire.tag(self.tag), wire.accept(self.accept)
        return sum(map(len, (*down, *up)))


def announce(
    setting: Scene, position: Position, pledges: list[Pledge], relayed: tuple[CommittedUpdate, ...], total: Whole
) -> Publish:
    step = inspect(setting.model, total, len(pledges), setting.point)
    header = Header(
        session=setting.session.digest,
        round=0,
        attempt=0,
        previous=position.tip,
        model=position.model,
        next_model=step.next_model_hash,
        aggregate=aggregate_hash(total),
        roster=tuple(pledges),
    )
    return Publish(
        header=header, signature=setting.server.sign(b"server/v1", header.digest), aggregate=total, relayed=relayed
    )


def ready_client(setting: Scene, scheme: SketchClient | ExactClient) -> client.Ready:
    return client.start(setting.people[0], scheme, setting.session, setting.model)


def open_round(
    setting: Scene, ready: client.Ready, scheme: SketchServer | ExactServer
) -> tuple[server.Gathering, Train]:
    idle = server.Idle(identity=setting.server, scheme=scheme, position=ready.position, model=setting.model)
    return server.open_round(idle, [one.name for one in setting.people])


def sketch_round(setting: Scene, values: Whole, cost: Cost, trace: bool) -> None:
    """One client's round; the aggregate is m times its own update, so that every check and the sum hold."""
    count, room = len(setting.people), setting.model.copy()
    scheme = sketch_client(setting.people[0], setting.session)
    ready = ready_client(setting, scheme)
    _, train = open_round(setting, ready, SketchServer())
    begun = cost.run(lambda: client.begin(ready, train))
    with Peak(cost, trace):
        cost.run(lambda: quantise(setting.update, setting.point, values))
    total = values * setting.point.sum_type(count).type(count)
    with Peak(cost, trace):
        committed = cost.run(lambda: client.commit(begun, values, bytes(32), update=1))
    pledges = [committed.pledge, *(pledge(ready.position, one, secret(one.name)) for one in setting.people[1:])]
    publish = announce(setting, ready.position, pledges, (), total)
    with Peak(cost, trace):
        tagged, own = cost.run(lambda: client.answer(committed, publish))
    tags = others_tags(setting, publish.header, own, tagged.expected)
    with Peak(cost, trace):
        _, accept = cost.run(lambda: client.settle(tagged, tags, room))
    _, update = client.reveal(committed)
    said = Said(ready.position, train, update, publish, own, tags, accept)
    cost.extra = said.size
    cost.up, cost.down = values.nbytes, total.nbytes


def others_tags(setting: Scene, header: Header, own: Tag, expected: int) -> Tags:
    """Signed by each of the others, with values that make the sum hold."""
    rest = [client.sign_tag(one, header, 1) for one in setting.people[1:-1]]
    missing = (expected - own.value - len(rest)) % ((1 << 127) - 1)
    return Tags(tags=(own, *rest, client.sign_tag(setting.people[-1], header, missing)))


def exact_round(setting: Scene, values: Whole, cost: Cost, trace: bool) -> None:
    count, room = len(setting.people), setting.model.copy()
    hellos = [session_key(one, setting.session, secret(one.name, 3)) for one in setting.people]
    own_secret = secret(setting.people[0].name, 3)
    scheme = exact_client(setting.people[0], setting.session, own_secret, hellos)
    ready = ready_client(setting, scheme)
    _, train = open_round(setting, ready, ExactServer())
    cost.run(lambda: quantise(setting.update, setting.point, values))
    with Peak(cost, trace, besides=values.size * setting.point.sum_type(count).itemsize):
        committed = cost.run(lambda: client.commit(client.begin(ready, train), values, bytes(32), update=1))
    # Everybody sends this one buffer: all that its hash and the sum cost, in the memory of one.
    shared = np.ones(setting.point.size, setting.point.sum_type(count))
    pledges, relayed = [], []
    for one in setting.people:
        pledges.append(pledge(ready.position, one, commitment(ready.position, one.name, bytes(32), shared)))
        relayed.append(CommittedUpdate(pledge=pledges[-1], nonce=bytes(32), values=shared))
    publish = announce(setting, ready.position, pledges, tuple(relayed), shared * shared.dtype.type(count))
    mine = replace(committed, pledge=pledges[0], pledges=tuple(pledges))
    cost.run(lambda: scheme.require_openable(ready.position, train, tuple(pledges)))
    with Peak(cost, trace):
        tagged, own = cost.run(lambda: client.answer(mine, publish))
    tags = Tags(tags=tuple(client.sign_tag(one, publish.header, 0) for one in setting.people))
    with Peak(cost, trace):
        _, accept = cost.run(lambda: client.settle(tagged, tags, room))
    said = Said(ready.position, train, relayed[0], publish, own, tags, accept)
    others = sum(len(Wire(ready.position).pledge(one)) for one in pledges)
    cost.extra = said.size + others + (count - 1) * shared.nbytes
    cost.up, cost.down = shared.nbytes, count * shared.nbytes


class Peak:
    """Peak memory of a step, from Python's own and numpy's allocations; ``besides`` is what the step hands back."""

    def __init__(self, cost: Cost, trace: bool, besides: int = 0) -> None:
        self.cost, self.trace, self.besides = cost, trace, besides

    def __enter__(self) -> None:
        if self.trace:
            tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        if self.trace:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.cost.memory = max(self.cost.memory, peak - self.besides)


def server_ns(setting: Scene, scheme: SketchServer | ExactServer, count: int, room: Room) -> float:
    """Nanoseconds per coordinate and client: admission, sum, model step, hashes and conclusion of a round."""
    people = setting.people[:count]
    idle = server.start(setting.server, scheme, setting.session, setting.model)
    gathering, _ = server.open_round(idle, [one.name for one in people])
    values = np.ones(setting.point.size, "<i4")
    updates = []
    for one in people:
        bound = pledge(idle.position, one, commitment(idle.position, one.name, bytes(32), values))
        updates.append(CommittedUpdate(pledge=bound, nonce=bytes(32), values=values))

    def serve() -> None:
        state = gathering
        for update in updates:
            state = server.admit(server.enlist(state, update.pledge), update)
        server.conclude(server.publish(state, room)[0], [])

    return timed(serve)[0] / count / values.size * 1e9


def coordinator_ns(setting: Scene, count: int, repeats: int) -> float:
    """The same through a federation's coordinator, which also unpacks what travelled and proves the sum."""
    people, values = setting.people[:count], np.ones(setting.point.size, "<i4")
    idle = server.start(setting.server, SketchServer(), setting.session, setting.model)
    body, position, times = pack_values(values, setting.point), idle.position, []
    with tempfile.TemporaryDirectory() as folder:
        archive, hello = Archive(Path(folder), setting.session), Hello(session=b"", nonce=b"", layout=b"")
        served = Coordinator(idle, hello, Layout(()), archive)
        for turn in range(2 + repeats):  # after two rounds no more memory is needed
            served.invite([one.name for one in people], None)
            wire, dones = Wire(position), []
            for one in people:
                bound = pledge(position, one, commitment(position, one.name, bytes(32), values))
                update = wire.update(CommittedUpdate(pledge=bound, nonce=bytes(32), values=values))
                dones.append(Contributed(trained_from=turn, head="", update=update, values=body))
            taken, _ = timed(partial(list, map(served.take, dones)))
            announced, (announcement, _) = timed(served.announce)
            publish = wire.read_publish(announcement.publish, announcement.aggregate or b"")
            expected = transcript_challenge(publish.header, values.size).tag(publish.aggregate)
            for one in people:
                served.tag(wire.tag(client.sign_tag(one, publish.header, expected if one is people[0] else 0)))
            ended, _ = timed(lambda: served.proved() and served.conclude())
            position = position.after(publish.header.digest, publish.header.next_model)
            times.append(taken + announced + ended)
            del announcement, publish  # otherwise their memory could not be used again
    return min(times[2:]) / count / values.size * 1e9


def baselines(setting: Scene) -> dict[str, float]:
    """Hashing the update once, and adding one float update to an average."""
    total = np.zeros(setting.model.size, np.float32)
    total += 1
    hashed = min(timed(lambda: hashlib.sha256(setting.update.data).digest())[0] for _ in range(2))
    averaged = min(timed(lambda: np.add(total, setting.update, out=total))[0] for _ in range(2))
    return {"sha256_s": hashed, "average_s": averaged}


def measure(size: int, count: int, method: ProofMethod, repeats: int) -> dict[str, float]:
    setting = scene(size, count, method)
    values = np.ones(size, "<i4")
    run = sketch_round if method is ProofMethod.SKETCH else exact_round
    costs = [Cost() for _ in range(repeats)]
    for cost in costs:
        run(setting, values, cost, False)
    traced = Cost()
    run(setting, values, traced, True)  # watching memory makes it slow
    seconds = min(cost.client for cost in costs)
    bases = baselines(setting)
    found = {
        "client_cpu_s": round(seconds, 4),
        "extra_bytes": traced.extra,
        "extra_bytes_per_client": round(traced.extra / count, 1),
        "bytes_up": traced.up,
        "bytes_down": traced.down,
        "extra_memory_mb": round(traced.memory / 2**20, 1),
        "sha256_ratio": round(seconds / bases["sha256_s"], 2),
        "average_ratio": round(seconds / bases["average_s"], 1),
    }
    scheme = SketchServer() if method is ProofMethod.SKETCH else ExactServer()
    served = Room()
    fresh = server_ns(setting, scheme, 3, served)  # the first round pays for the memory that later ones use again
    for key, people in {"": min(10, count), "_of_three": 3}.items():
        times = [server_ns(setting, scheme, people, served) for _ in range(repeats)]
        found["server_ns_per_coordinate" + key] = round(min(times), 2)
    found["server_ns_per_coordinate_of_three_fresh"] = round(fresh, 2)
    del served
    if method is ProofMethod.SKETCH:
        for key, people in {"": min(10, count), "_of_three": 3}.items():
            found["coordinator_ns_per_coordinate" + key] = round(coordinator_ns(setting, people, repeats), 2)
    return found


def goals(found: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Which goals of the specification are missed."""
    missed = []
    for key, row in found["sketch"].items():
        count = int(key.partition("_m")[2])
        limits = {
            "client_cpu_s": {"9.2M_m10": 0.25, "9.2M_m100": 0.25, "110M_m10": 2.5}.get(key, float("inf")),
            "extra_bytes": 300 * count,
            "extra_memory_mb": 32,
            "server_ns_per_coordinate": 10,
            "server_ns_per_coordinate_of_three": 10,
            "coordinator_ns_per_coordinate": 10,
            "coordinator_ns_per_coordinate_of_three": 10,
        }
        missed += [f"{key} {name}: {row[name]} > {most}" for name, most in limits.items() if row[name] > most]
    return missed


def on_one_core() -> None:
    """Start over with libraries held to one thread each, which they read when they are loaded."""
    held = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if any(os.environ.get(name) != value for name, value in held.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **held})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="d = 1M and 9.2M with m = 10 only")
    parser.add_argument("--case", action="append", metavar="SIZE:COUNT", help="only this size and roster, as in 1M:100")
    parser.add_argument("--method", choices=[method.value for method in ProofMethod], help="only this method")
    parser.add_argument("--json", action="store_true", help="one object on the last line of stdout")
    options = parser.parse_args()
    on_one_core()
    found: dict[str, dict[str, dict[str, float]]] = {"sketch": {}, "exact": {}}
    chosen = [(label, int(count)) for label, _, count in (case.partition(":") for case in options.case or [])]
    for label, count in chosen or (QUICK if options.quick else FULL):
        for method in [ProofMethod(options.method)] if options.method else list(ProofMethod):
            repeats = 3 if SIZES[label] < 10**8 and count <= 100 else 1
            row = measure(SIZES[label], count, method, repeats)
            found[method.value][f"{label}_m{count}"] = row
            print(f"{method.value:7s} d={label:>5s} m={count:<5d} {row}", file=sys.stderr, flush=True)
    for sentence in goals(found):
        print("Goal missed:", sentence, file=sys.stderr)
    print(json.dumps(found) if options.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
