"""A client as a machine of pure steps: each takes a state and a message, and gives the next state or raises.

    Ready ─begin→ Begun ─commit→ Committed ─answer→ Tagged ─settle→ Ready (verified, one round on)
                                     └─abandon→ Ready    └─roll_back→ Ready (same round, same model, next attempt)

Every state knows which updates it showed in which sums (``repeats``), so that no two sums differ by a single update.
Only Ready trains, and only ``settle``, ``resume`` and ``catch_up`` lead to another model: what is not verified fails
closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lrdp.errors import InvalidInput
from lrdp.integrity import checks
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.fixed_point import Model, Whole, aggregate_hash, model_hash, next_model
from lrdp.integrity.history import HistoryStep, follow_all
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import TAG_VALUE, Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.registry import Registry
from lrdp.integrity.repeats import NOTHING_SHOWN, Repeats, Stands, same_roster
from lrdp.integrity.schemes import ClientScheme, sketch_client, small_vector
from lrdp.integrity.session import Position, Session, genesis
from lrdp.integrity.verdicts import Verdict, rejection, require

MakeScheme = Callable[[Identity, Session], ClientScheme]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ready:
    """Everything up to here is verified; ``attempt`` is the first that this round may still have."""

    identity: Identity
    scheme: ClientScheme
    position: Position
    model: Model
    attempt: int = 0
    stands: Stands = NOTHING_SHOWN

    def __post_init__(self) -> None:
        if self.model.size != self.position.session.parameters.point.size:
            raise InvalidInput(f"the session is for {self.position.session.parameters.point.size} coordinates.")
        if self.scheme.method != self.position.session.parameters.method:
            raise InvalidInput(f"the session's method is {self.position.session.parameters.method}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Begun:
    """Invited to a round of the verified history: training may start."""

    ready: Ready
    train: Train


@dataclass(frozen=True, kw_only=True, eq=False)
class Committed:
    """Bound to an update, which its owner has numbered; ``pledge`` goes to the server."""

    begun: Begun
    update: int
    pledge: Pledge
    nonce: bytes
    values: Whole
    sent: Whole
    pledges: tuple[Pledge, ...] = ()

    @property
    def hidden(self) -> bytes | None:
        """The hash of the values if they were sent under a mask, otherwise None."""
        return None if self.sent is self.values else aggregate_hash(self.values)

    @property
    def attempt(self) -> int:
        """The attempt that this update is for."""
        return max(self.begun.train.attempt, self.begun.ready.attempt)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tagged:
    """Satisfied with PUBLISH, waiting for everybody else's tag; ``waited`` is 0, and stands in the saved bytes."""

    committed: Committed
    header: Header
    aggregate: Whole
    expected: int
    waited: int = 0

    @property
    def ready(self) -> Ready:
        return self.committed.begun.ready


def start(identity: Identity, scheme: ClientScheme, session: Session, model: Model) -> Ready:
    """Before the first round."""
    return Ready(identity=identity, scheme=scheme, position=genesis(session, model_hash(model)), model=model)


def resume(
    identity: Identity, scheme: ClientScheme, position: Position, model: Model, stands: Stands = NOTHING_SHOWN
) -> Ready:
    """At a position that was verified before, by this client or by receipts; ``model`` must be the one it stands on."""
    if model_hash(model) != position.model:
        raise rejection(Verdict.MODEL_MISMATCH)
    return Ready(identity=identity, scheme=scheme, position=position, model=model, stands=stands)


def begin(ready: Ready, train: Train) -> Begun:
    """M1: train only on the history and model that were verified here."""
    name, position = ready.identity.name, ready.position
    require(checks.TRAIN, checks.Invitation(name=name, position=position, attempt=ready.attempt, train=train))
    ready.stands.require_open(train.invited)
    return Begun(ready=ready, train=train)


def commit(begun: Begun, values: Whole, nonce: bytes, *, update: int) -> Committed:
    """M2: bind oneself to an update; ``nonce`` is 32 fresh random bytes.

    ``update`` is a number greater than that of every update noised before, and the same for the same values.
    """
    ready = begun.ready
    sent = ready.scheme.conceal(begun.train, small_vector(values, ready.position.session.parameters.point))
    bound = commitment(ready.position, ready.identity.name, nonce, sent)
    own = pledge(ready.position, ready.identity, bound)
    return Committed(begun=begun, update=update, pledge=own, nonce=nonce, values=values, sent=sent)


def reveal(
    committed: Committed, pledges: Sequence[Pledge] = (), repeats: Repeats = same_roster
) -> tuple[Committed, CommittedUpdate]:
    """M2: the update itself; exact rounds show it only once everybody is bound, and hold everybody to it.

    Raises NotVerified with UPDATE_SPENT if it was shown before in a roster after which ``repeats`` does not allow this
    one, and with SHARE_ALTERED if others were bound to something else when it was shown before.
    """
    ready, train = committed.begun.ready, committed.begun.train
    if ready.scheme.sums_all_invited and committed.pledges not in ((), tuple(pledges)):
        raise rejection(Verdict.SHARE_ALTERED, "these are not the pledges that it was shown for before")
    ready.scheme.require_openable(ready.position, train, tuple(pledges))
    leaves = ready.stands.show if ready.scheme.sums_all_invited else ready.stands.reveal
    kept = _standing(committed, leaves(committed.update, train.invited, repeats))
    update = CommittedUpdate(pledge=committed.pledge, nonce=committed.nonce, values=committed.sent)
    return replace(kept, pledges=tuple(pledges)), update


def _standing(committed: Committed, stands: Stands) -> Committed:
    ready = replace(committed.begun.ready, stands=stands)
    return replace(committed, begun=replace(committed.begun, ready=ready))


def answer(committed: Committed, publish: Publish, repeats: Repeats = same_roster) -> tuple[Tagged, Tag]:
    """M3 → M4: check what the server announces, and sign one's tag for it."""
    ready = committed.begun.ready
    seen = checks.Seen(
        position=ready.position,
        attempt=committed.attempt,
        model=ready.model,
        own=committed.pledge,
        publish=publish,
        pledges=committed.pledges,
    )
    require((*checks.PUBLISH, *ready.scheme.checks), seen)
    kept = _standing(committed, ready.stands.show(committed.update, publish.header.names, repeats))
    own = ready.scheme.answer(seen, committed.values)
    tagged = Tagged(committed=kept, header=publish.header, aggregate=publish.aggregate, expected=own.expected)
    return tagged, sign_tag(ready.identity, publish.header, own.value)


def answer_again(tagged: Tagged, publish: Publish, repeats: Repeats = same_roster) -> Tag:
    """The same tag for the same PUBLISH, if it was lost on the way. An attempt never gets a second one."""
    if publish.header.digest != tagged.header.digest:
        raise rejection(Verdict.STALE_CONTEXT, "another PUBLISH of this attempt was answered before")
    return answer(tagged.committed, publish, repeats)[1]


def sign_tag(identity: Identity, header: Header, value: int) -> Tag:
    """The client's tag, signed for exactly this header."""
    claim = (identity.name.encode(), header.digest, TAG_VALUE.write(value))
    return Tag(name=identity.name, value=value, signature=identity.sign(b"tag/v1", *claim))


def settle(tagged: Tagged, tags: Tags, out: Model | None = None) -> tuple[Ready, Accept]:
    """M5: VERIFIED, the next model and the client's ACCEPT; or NotVerified, and the state is as it was.

    The next model is written to ``out`` if given, which may be the old one: nobody goes back beyond a verified round.
    """
    ready, header = tagged.ready, tagged.header
    tally = checks.TagTally(position=ready.position, header=header, tags=tags.tags, expected=tagged.expected)
    require(checks.TAGS, tally)
    position = ready.position.after(header.digest, header.next_model)
    point = position.session.parameters.point
    model = next_model(ready.model, tagged.aggregate, len(header.roster), point, out)
    name = ready.identity.name
    signature = ready.identity.sign(b"accept/v1", name.encode(), header.digest, position.tip)
    following = replace(ready, position=position, model=model, attempt=0, stands=ready.stands.next_round())
    return following, Accept(name=name, signature=signature)


def roll_back(tagged: Tagged) -> Ready:
    """To the last verified model, in the same round; PUBLISH of the attempt that failed is stale from now on."""
    return replace(tagged.ready, attempt=tagged.header.attempt + 1)


def abandon(committed: Committed) -> Ready:
    """No PUBLISH came, or none that holds: back to the last verified model."""
    return committed.begun.ready


def _require_border(ready: Ready) -> None:
    """Whoever signed a tag in this round waits for its end: others may have verified it, with that tag."""
    if ready.stands.shown:
        raise rejection(Verdict.STALE_CONTEXT, "the registry is replaced between rounds, and a sum of this one is out")


def catch_up(ready: Ready, steps: Sequence[HistoryStep], model: Model, scheme: MakeScheme = sketch_client) -> Ready:
    """Join after missed rounds, and under registries that replaced others in between.

    Each receipt must be accepted by a quorum, and ``model`` must be the one they end in. A new registry makes a new
    session, for which ``scheme`` makes this client's half.
    """
    if isinstance(next(iter(steps), None), Registry):
        _require_border(ready)
    position = follow_all(ready.position, steps)
    stands = ready.stands if position.round == ready.position.round else ready.stands.next_round()
    same = position.session == ready.position.session
    half = ready.scheme if same else scheme(ready.identity, position.session)
    joined = resume(ready.identity, half, position, model, stands)
    return joined if steps else replace(joined, attempt=ready.attempt)
