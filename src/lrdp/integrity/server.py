"""The server as a machine of pure steps. It admits only what it could prove to an auditor, and adds nothing of its own.

Idle ─open_round→ Gathering ─enlist, admit→ … ─publish→ Published ─collect→ … ─conclude→ Idle
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lrdp.errors import InvalidInput
from lrdp.integrity import checks
from lrdp.integrity.commitments import opens, pledged
from lrdp.integrity.fixed_point import Model, Room, Whole, combine, model_hash
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.receipts import RoundReceipt, endorse
from lrdp.integrity.registry import Registry
from lrdp.integrity.schemes import ServerScheme
from lrdp.integrity.session import Position, Session, genesis
from lrdp.integrity.verdicts import Verdict, rejection


@dataclass(frozen=True, kw_only=True, eq=False)
class Idle:
    """Between rounds."""

    identity: Identity
    scheme: ServerScheme
    position: Position
    model: Model
    attempt: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Gathering:
    """A round is open: pledges and updates come in."""

    idle: Idle
    train: Train
    pledges: tuple[Pledge, ...] = ()
    updates: tuple[CommittedUpdate, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """The aggregate is out: tags come in. Updates are kept, for blame."""

    idle: Idle
    header: Header
    signature: bytes
    aggregate: Whole
    next_model: Model
    updates: tuple[CommittedUpdate, ...]
    tags: tuple[Tag, ...] = ()


def start(identity: Identity, scheme: ServerScheme, session: Session, model: Model) -> Idle:
    """Before the first round."""
    if scheme.method != session.parameters.method:
        raise InvalidInput(f"the session's method is {session.parameters.method}, got {scheme.method}.")
    return Idle(identity=identity, scheme=scheme, position=genesis(session, model_hash(model)), model=model)


def open_round(idle: Idle, invited: Sequence[str]) -> tuple[Gathering, Train]:
    """M1: invite members to the next round of the history."""
    place = idle.position
    unsigned = Train(
        session=place.session.digest,
        round=place.round,
        attempt=idle.attempt,
        tip=place.tip,
        invited=tuple(sorted(invited)),
    )
    train = replace(unsigned, signature=idle.identity.sign(b"train/v1", unsigned.unsigned))
    return Gathering(idle=idle, train=train), train


def enlist(gathering: Gathering, pledge: Pledge) -> Gathering:
    """Take a pledge of an invited member, one each; raises NotVerified otherwise."""
    if pledge.name not in gathering.train.invited or pledge.name not in _registry(gathering).by_name:
        raise rejection(Verdict.ROSTER_UNKNOWN, pledge.name)
    if any(known.name == pledge.name for known in gathering.pledges):
        raise rejection(Verdict.ROSTER_MALFORMED, f"{pledge.name} pledged before")
    if not pledged(gathering.idle.position, pledge):
        raise rejection(Verdict.PEER_UPDATE_SIG, pledge.name)
    return replace(gathering, pledges=(*gathering.pledges, pledge))


def admit(gathering: Gathering, update: CommittedUpdate) -> Gathering:
    """Take an update whose pledge was enlisted, if it is what was pledged and can be summed."""
    if update.pledge not in gathering.pledges or any(update.pledge == known.pledge for known in gathering.updates):
        raise rejection(Verdict.ROSTER_MALFORMED, f"{update.pledge.name} did not pledge this, or sent it before")
    point = gathering.idle.position.session.parameters.point
    if not gathering.idle.scheme.admissible(update.values, gathering.train, point):
        raise rejection(Verdict.RANGE, update.pledge.name)
    if not opens(gathering.idle.position, update):
        raise rejection(Verdict.OWN_COMMIT_ALTERED, update.pledge.name)
    return replace(gathering, updates=(*gathering.updates, update))


def _registry(gathering: Gathering) -> Registry:
    return gathering.idle.position.session.registry


def publish(gathering: Gathering, room: Room | None = None) -> tuple[Published, Publish]:
    """M3: sum the admitted updates and announce the roster, the aggregate and the model that follows.

    Aggregate and model lie in ``room``, which reuses the memory of earlier rounds once nobody refers to it.
    """
    idle, position = gathering.idle, gathering.idle.position
    parameters = position.session.parameters
    updates = tuple(sorted(gathering.updates, key=lambda update: update.pledge.name))
    if len(updates) < parameters.min_roster:
        raise rejection(Verdict.ROSTER_TOO_SMALL, f"{len(updates)} updates, {parameters.min_roster} needed")
    made = combine([update.values for update in updates], idle.model, parameters.point, room)
    header = Header(
        session=position.session.digest,
        round=position.round,
        attempt=idle.attempt,
        previous=position.tip,
        model=position.model,
        next_model=made.next_model_hash,
        aggregate=made.aggregate_hash,
        roster=tuple(update.pledge for update in updates),
    )
    signature = idle.identity.sign(b"server/v1", header.digest)
    published = Published(
        idle=idle,
        header=header,
        signature=signature,
        aggregate=made.aggregate,
        next_model=made.next_model,
        updates=updates,
    )
    relayed = idle.scheme.relayed(updates)
    return published, Publish(header=header, signature=signature, aggregate=made.aggregate, relayed=relayed)


def collect(published: Published, tag: Tag) -> Published:
    """Take a participant's tag, once, if it signed it."""
    if tag.name not in published.header.names or any(known.name == tag.name for known in published.tags):
        raise rejection(Verdict.TAGS_INCOMPLETE, f"{tag.name} is not a participant, or sent its tag before")
    if not checks.tag_signed(published.idle.position, published.header, tag):
        raise rejection(Verdict.TAG_SIG, tag.name)
    return replace(published, tags=(*published.tags, tag))


def all_tags(published: Published) -> Tags:
    """M5: the tags that came in, for everybody."""
    return Tags(tags=published.tags)


def proved(published: Published) -> bool:
    """Whether the tags add up, as every participant will find."""
    expected = published.idle.scheme.expected(published.header, published.aggregate)
    tally = checks.TagTally(
        position=published.idle.position, header=published.header, tags=published.tags, expected=expected
    )
    return checks.tags_add_up(tally)


def conclude(published: Published, accepts: Sequence[Accept]) -> tuple[Idle, RoundReceipt]:
    """The round is over: the next model, and the receipt with every ACCEPT that holds; ``endorse`` adds later ones."""
    idle, header = published.idle, published.header
    bare = RoundReceipt(header=header, signature=published.signature, tags=published.tags, accepts=())
    receipt = endorse(idle.position, bare, accepts)
    position = idle.position.after(header.digest, header.next_model)
    return replace(idle, position=position, model=published.next_model, attempt=0), receipt


def retry(idle: Idle) -> Idle:
    """The next attempt of the same round, from the same model."""
    return replace(idle, attempt=idle.attempt + 1)


def rotate(idle: Idle, registry: Registry) -> Idle:
    """At a round boundary, under the consortium's next registry."""
    return replace(idle, position=idle.position.rotated(registry), attempt=0)
