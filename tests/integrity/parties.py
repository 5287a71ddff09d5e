"""A federation in one process, and a stage on which a round can be stopped and tampered with at any step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lrdp.errors import NotVerified
from lrdp.integrity import client, exact, fixed_point, server
from lrdp.integrity.fixed_point import FixedPoint
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import Accept, Publish, Tag, Tags
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.registry import NO_PREVIOUS, Registry, sign_registry
from lrdp.integrity.repeats import Repeats, same_roster
from lrdp.integrity.schemes import SketchServer, sketch_client
from lrdp.integrity.session import Parameters, ProofMethod, Session
from lrdp.integrity.verdicts import Verdict
from lrdp.integrity.wire import Wire

Whole = fixed_point.Whole


def secret(*words: object) -> bytes:
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def identity(name: str, generation: int = 0) -> Identity:
    return Identity(
        name=name,
        signing_secret=secret(name, "sign", generation),
        agreement_secret=secret(name, "agree", generation),
    )


CONSORTIUM = identity("consortium")
SERVER = identity("server")


def registry_of(members: Iterable[Identity]) -> Registry:
    unsigned = Registry(
        version=1,
        first_round=0,
        previous=NO_PREVIOUS,
        consortium=CONSORTIUM.member.signing_key,
        members=tuple(one.member for one in members),
    )
    return sign_registry(unsigned, CONSORTIUM)


@dataclass
class Federation:
    """Everybody, between rounds; ``number`` is that of the updates of the next stage."""

    idle: server.Idle
    clients: dict[str, client.Ready]
    rng: np.random.Generator
    number: int = 1

    @property
    def session(self) -> Session:
        return self.idle.position.session

    def update(self, scale: int = 1000) -> Whole:
        most = min(scale, self.session.parameters.point.most)
        return self.rng.integers(-most, most, self.session.parameters.point.size, endpoint=True).astype("<i4")


def federation(
    count: int,
    size: int = 37,
    method: ProofMethod = ProofMethod.SKETCH,
    seed: int = 0,
    session: str = "first",
    **options: Any,
) -> Federation:
    rng = options.pop("rng", None) or np.random.default_rng(seed)
    identifier = options.pop("identifier", None) or secret(session)
    letters = options.pop("name_letters", 4)
    identities = [identity(f"c{index:0{letters - 1}d}") for index in range(count)]
    bits = {key: options.pop(key) for key in ("update_bits", "fraction_bits") if key in options}
    parameters = Parameters(point=FixedPoint(size=size, **bits), method=method, **options)
    shared = Session(
        identifier=identifier,
        server_key=SERVER.member.signing_key,
        parameters=parameters,
        registry=registry_of(identities),
    )
    model = rng.standard_normal(size).astype("<f4")
    schemes = _schemes(identities, shared)
    return Federation(
        idle=server.start(
            SERVER, SketchServer() if method is ProofMethod.SKETCH else exact.ExactServer(), shared, model
        ),
        clients={one.name: client.start(one, schemes[one.name], shared, model) for one in identities},
        rng=rng,
    )


def _schemes(identities: list[Identity], session: Session) -> dict[str, Any]:
    if session.parameters.method is ProofMethod.SKETCH:
        return {one.name: sketch_client(one, session) for one in identities}
    hellos = [exact.session_key(one, session, secret(one.name, "ephemeral")) for one in identities]
    return {one.name: exact.exact_client(one, session, secret(one.name, "ephemeral"), hellos) for one in identities}


@dataclass
class Stage:
    """A round up to PUBLISH, with every party's state in hand."""

    federation: Federation
    committed: dict[str, client.Committed]
    gathering: server.Gathering
    published: server.Published
    publish: Publish

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.committed))

    @property
    def wire(self) -> Wire:
        return Wire(self.published.idle.position)

    @property
    def point(self) -> FixedPoint:
        return self.federation.session.parameters.point

    def resign(self, aggregate: Whole | None = None, by: Identity = SERVER, **changes: Any) -> Publish:
        """What a competent cheat publishes: every hash recomputed, everything signed anew."""
        values = self.publish.aggregate if aggregate is None else aggregate
        header = replace(self.publish.header, **{key: value for key, value in changes.items() if key != "relayed"})
        if values.size == self.point.size and "next_model" not in changes:
            step = fixed_point.inspect(self.federation.idle.model, values, len(header.roster), self.point)
            header = replace(header, next_model=step.next_model_hash)
        header = replace(header, aggregate=fixed_point.aggregate_hash(values))
        relayed = changes.get("relayed", self.publish.relayed)
        signature = by.sign(b"server/v1", header.digest)
        return Publish(header=header, signature=signature, aggregate=values, relayed=relayed)


def stage(
    world: Federation,
    names: Iterable[str] | None = None,
    updates: Mapping[str, Whole] | None = None,
    dropped: Iterable[str] = (),
) -> Stage:
    """Honest parties until the server publishes; ``dropped`` are invited and send nothing."""
    gathering, train = server.open_round(world.idle, tuple(names or world.clients))
    committed = {}
    for name in train.invited:
        if name not in dropped:
            values = updates[name] if updates else world.update()
            nonce = world.rng.bytes(32)
            committed[name] = client.commit(
                client.begin(world.clients[name], train), values, nonce, update=world.number
            )
            gathering = server.enlist(gathering, committed[name].pledge)
    for name, bound in list(committed.items()):
        committed[name], update = client.reveal(bound, gathering.pledges)
        gathering = server.admit(gathering, update)
    published, publish = server.publish(gathering)
    return Stage(world, committed, gathering, published, publish)


@dataclass
class Played:
    """What each client concluded."""

    verdicts: dict[str, Verdict]
    tagged: dict[str, client.Tagged]
    ready: dict[str, client.Ready]
    tags: list[Tag]
    accepts: list[Accept]

    @property
    def worst(self) -> Verdict:
        """The first verdict in the order of checks: what the alarm says."""
        return min(self.verdicts.values(), key=list(Verdict).index)


def play_out(
    scene: Stage,
    publish: Publish | Mapping[str, Publish] | None = None,
    tamper: Callable[[list[Tag]], list[Tag]] = lambda tags: tags,
    lies: Mapping[str, Callable[[client.Tagged, Tag], Tag]] | None = None,
    repeats: Repeats = same_roster,
) -> Played:
    """PUBLISH to the end; ``tamper`` is the server's hand on the tags, ``lies`` those of corrupted clients."""
    shown = publish if isinstance(publish, Mapping) else dict.fromkeys(scene.names, publish or scene.publish)
    played = Played({}, {}, {}, [], [])
    for name in scene.names:
        try:
            played.tagged[name], tag = client.answer(scene.committed[name], shown[name], repeats)
        except NotVerified as alarm:
            played.verdicts[name] = said(alarm)
        else:
            played.tags.append(lies[name](played.tagged[name], tag) if lies and name in lies else tag)
    tags = Tags(tags=tuple(tamper(list(played.tags))))
    for name, tagged in played.tagged.items():
        try:
            played.ready[name], accept = client.settle(tagged, tags)
        except NotVerified as alarm:
            played.verdicts[name] = said(alarm)
        else:
            played.verdicts[name] = Verdict.VERIFIED
            played.accepts.append(accept)
    return played


def conclude(scene: Stage, played: Played) -> RoundReceipt:
    """Everybody moves on; the receipt of the round."""
    published = scene.published
    for tag in played.tags:
        published = server.collect(published, tag)
    scene.federation.idle, receipt = server.conclude(published, played.accepts)
    scene.federation.clients.update(played.ready)
    scene.federation.number += 1
    return receipt


def honest_round(world: Federation, names: Iterable[str] | None = None, dropped: Iterable[str] = ()) -> RoundReceipt:
    scene = stage(world, names, dropped=dropped)
    played = play_out(scene)
    assert set(played.verdicts.values()) == {Verdict.VERIFIED}
    return conclude(scene, played)


def said(alarm: NotVerified) -> Verdict:
    assert isinstance(alarm.verdict, Verdict)
    return alarm.verdict


def verdict_of(step: Callable[[], object]) -> Verdict:
    try:
        step()
    except NotVerified as alarm:
        return said(alarm)
    return Verdict.VERIFIED
