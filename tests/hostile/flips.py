"""One bit turned, in everything that is kept or sent: what each then means, or that it means nothing any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hostile.decoders import folder, table
from integrity.parties import federation, honest_round
from ledger.worlds import World, policy, request, round_trip
from lrdp.errors import LrdpError
from lrdp.integrity import history, states
from lrdp.integrity.registry import Registry, verify_registry
from lrdp.ledger import SigningKey
from lrdp.ledger.export import verify_export, write_export
from lrdp.ledger.heads import Head
from lrdp.ledger.policy_file import read_policy
from lrdp.ledger.reports import read_report, report_of


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Bytes, and what they mean; ``free`` where other bytes may mean something else, as a user's own text does."""

    data: bytes
    meaning: Callable[[bytes], object]
    free: bool = False


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def outcomes(kept: Kept, bits: Iterable[int]) -> Counter[str]:
    """How often the meaning was the same, another one, or refused; any other exception is raised."""
    truth, count = kept.meaning(kept.data), Counter[str]()
    for bit in bits:
        try:
            found = kept.meaning(flipped(kept.data, bit))
        except LrdpError:
            count["refused"] += 1
        else:
            count["same" if found == truth else "other"] += 1
    return count


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    path = folder() / name

    def meaning(data: bytes) -> object:
        for beside in folder().glob(f"{name}-*"):
            beside.unlink()  # what SQLite left for a file that said it had a journal
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return meaning


def _ledgers() -> dict[str, Kept]:
    place = folder() / "flipped"
    place.mkdir()
    world = World(folder=place)
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
        write_export(ledger, place / "export")
        head, report = ledger.head(), report_of(ledger.books).signed(world.key)
    world.key.write(place / "client.pem")

    def opened(path: Path) -> object:
        moved = World(folder=path.parent, rules=world.rules, key=world.key, administrator=world.administrator)
        path.replace(moved.path)
        with moved.open() as ledger:
            return ledger.books.digest, ledger.books.charges.history, ledger.reply_to(request(2))

    def verified(path: Path) -> object:
        found = verify_export(path)
        return found.books.digest, found.books.charges.history, found.head

    def signs(path: Path) -> object:
        key = SigningKey.read(path)
        if key.public != world.key.public:  # another key: the ledger refuses it
            world_of_it = World(folder=place, rules=world.rules, key=key)
            world_of_it.open().close()
        return key.public

    def head_of(data: bytes) -> Head:
        found = Head.decode(data.decode("latin-1"))
        if not found.is_signed_by(world.key.public):
            raise LrdpError("not signed: nothing follows from it")
        return found

    whole = world.path.read_bytes()
    return {
        "ledger, verified": Kept(data=whole, meaning=_file("a.db", verified)),
        "ledger, opened": Kept(data=whole, meaning=_file("ledger.db.new", opened)),
        "export": Kept(data=(place / "export").read_bytes(), meaning=_file("export", verified)),
        "report": Kept(data=report.encode(), meaning=lambda data: read_report(data.decode("latin-1"))),
        "head": Kept(data=head.encode().encode(), meaning=head_of),
        "policy": Kept(data=policy().text.encode(), meaning=_file("policy.toml", read_policy), free=True),
        "client key": Kept(data=(place / "client.pem").read_bytes(), meaning=_file("client.pem", signs)),
    }


def _sessions() -> dict[str, Kept]:
    world = federation(3, size=5)
    first, receipt = world.session, honest_round(world)
    ready = world.clients["c000"]
    line = history.session_line(first)

    def walked(data: bytes) -> object:
        """What an auditor finds who pinned the registry."""
        lines = [line, data.decode("latin-1")]
        return [(step.position.tip, step.participants) for step in history.walk_history(lines, first.registry.digest)]

    def pinned(data: bytes) -> Registry:
        return verify_registry(Registry.decode(data), first.registry.digest)

    def read_json(data: bytes) -> Registry:
        read = table()["integrity.cards.read_registry"].read(data)
        return verify_registry(read, first.registry.digest)  # type: ignore[arg-type]

    return {
        "receipt": Kept(data=history.step_line(receipt.encode()).encode(), meaning=walked),
        "registry": Kept(data=first.registry.encode(), meaning=pinned),
        "registry, as JSON": Kept(data=table()["integrity.cards.read_registry"].sample, meaning=read_json),
        "session": Kept(
            data=line.encode(),
            meaning=lambda data: _same_session(history.read_session(data.decode("latin-1"), first.registry.digest)),
            free=True,
        ),
        "state": Kept(
            data=states.encode_client(ready),
            meaning=lambda data: states.encode_client(
                states.decode_client(data, ready.identity, states.client_vectors(ready))
            ),
        ),
        "identity": Kept(
            data=table()["integrity.keys.load_identity"].sample,
            meaning=lambda data: _known_to(first.registry, table()["integrity.keys.load_identity"].read(data)),
        ),
    }


def _same_session(session: object) -> object:
    return session.digest  # type: ignore[attr-defined]


def _known_to(registry: Registry, identity: object) -> object:
    """As a client compares its own keys with the registry that it pinned."""
    member = identity.member  # type: ignore[attr-defined]
    if registry.by_name.get(member.name) != member:
        raise LrdpError("the registry does not hold these keys")
    return member


def everything() -> dict[str, Kept]:
    return {**_ledgers(), **_sessions()}
