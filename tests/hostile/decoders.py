"""Everything that reads bytes which somebody else may have made, each as a function of those bytes.

``found()`` lists the readers of the source by their names, so that none can be added and forgotten here.
"""

from __future__ import annotations

import ast
import re
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Thread

import numpy as np

import lrdp
from integrity.parties import SERVER, federation, honest_round, play_out, stage
from integrity.test_depositions import framed
from ledger.worlds import World, policy, request, round_trip
from lrdp import codec, files
from lrdp.commands.fleet import reports_in
from lrdp.commands.integrity import read_lines
from lrdp.errors import LrdpError
from lrdp.federation.client.standing import Standing
from lrdp.federation.server.archive import Archive
from lrdp.federation.server.keeping import Keeping
from lrdp.federation.server.saved_state import Progress, SavedState
from lrdp.federation.wire.averaging import Averaging
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout, as_model, unpack_values
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Announcement, CatchUp, Contributed, HandIn, Hello, read_message, to_frame
from lrdp.federation.wire.shares import read_share
from lrdp.federation.wire.sockets import receive
from lrdp.integrity import ProofMethod, exact, history, keys, states
from lrdp.integrity.cards import card, json_object, read_card, read_registry, registry_record
from lrdp.integrity.depositions import Deposition
from lrdp.integrity.encoding import Reader
from lrdp.integrity.fixed_point import FixedPoint
from lrdp.integrity.messages import Accept, Header, Pledge, Tag, Tags, Train
from lrdp.integrity.papers import Papers, decode_failed, encode_failed, failed_vectors
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.registry import Registry, read_lineage, read_title
from lrdp.integrity.repeats import Shown, Stands
from lrdp.integrity.schemes import read_sketch_client
from lrdp.integrity.sealing import unseal
from lrdp.integrity.session import Parameters, Session, encoded_registry, registry_title
from lrdp.ledger import choice, events, export
from lrdp.ledger import texts as encoding
from lrdp.ledger.columns import read_columns
from lrdp.ledger.fleet import FleetBooks
from lrdp.ledger.heads import Head, decode_successors
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.policy_file import parse_policy, read_policy
from lrdp.ledger.reports import read_report, report_of
from lrdp.ledger.toml_text import read_toml

SOURCE = Path(lrdp.__file__).parent
READS = re.compile(r"decode|read|parse|load|unpack|unseal|opened|receive|lines|from_message|json_|named_|encoded_")


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A reader and bytes that it takes; ``inner`` ones are called by others here, which turn ValueError into ours."""

    read: Callable[[bytes], object]
    sample: bytes
    inner: bool = False
    takes_anything: bool = False


def found() -> set[str]:
    """Every public function of the source that is named like a reader, and of every kept value the one it inherits."""
    names: set[str] = set()

    def visit(node: ast.AST, around: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                visit(child, f"{around}.{child.name}")
                if any(isinstance(base, ast.Name) and base.id == "Encoded" for base in child.bases):
                    names.add(f"{around}.{child.name}.decode")
            if isinstance(child, ast.FunctionDef) and not child.name.startswith("_") and READS.match(child.name):
                names.add(f"{around}.{child.name}")

    others = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "experiments")
    for path in sorted(others):  # what a study reads are its own user's files
        visit(ast.parse(path.read_text(encoding="utf-8")), ".".join(path.relative_to(SOURCE).with_suffix("").parts))
    return names


ELSEWHERE: Mapping[str, str] = {
    "accounting.filter_rules.readings": "what filters say, no bytes",
    "codec.formats.Format.read": "a part of Format.decode",
    "commands.integrity.read_lines": "files.lines, each within a limit; here beneath history.audit_history",
    "commands.integrity.read_hash": "64 digits on the command line",
    "commands.integrity.read_pin": "64 digits on the command line",
    "federation.client.opened_books.opened_books": "Standing.head, then Head.decode",
    "federation.client.state_file.StateFile.load": "behind Standing.load, which is tried",
    "federation.client.kept_moments.KeptMoments.load": "its own file; federation/client/test_kept_moments",
    "federation.local.onnx_files.ModelInput.read": "a word on the command line",
    "federation.local.onnx_files.read_onnx": "onnx's own reader, within a limit; tests/commands/test_model.py",
    "federation.local.torch_files.read_torch": "each byte of a file; federation/local/test_torch_files.py",
    "federation.wire.metrics_page.Family.lines": "what is written, not read",
    "federation.wire.case_files.read_case": "safetensors' own reader, within a limit, then decode_failed",
    "federation.server.archive.Archive.read_steps": "files.read, then history.read_step of each line",
    "federation.server.resuming.opened": "read_state, and what it holds",
    "federation.server.saved_state.read_state": "files.read, then SavedState.decode",
    "federation.wire.model_averages.read_kept": "read_tensors; tests/federation/wire/test_model_averages.py",
    "federation.wire.model_files.read_model": "read_tensors; tests/commands/test_model.py",
    "federation.wire.model_files.read_tensors": "safetensors' own reader, within a limit; tests/commands/test_model.py",
    "commands.paths.read_text": "files.read, within a limit",
    "commands.paths.reading": "words for what goes wrong around a reader",
    "commands.experiments.read_changes": "read_toml, on the command line",
    "commands.settings.read_settings": "read_toml, on the command line",
    "federation.wire.flower.from_message": "Flower's own records; tests/federation/test_hostile_bytes.py",
    "federation.server.nodes.read_reply": "from_message, then read_message",
    "integrity.encoding.Encoded.decode": "what each kept value inherits",
    "integrity.encoding.Encoded.parse": "a part of Encoded.decode",
    "integrity.client.Tagged.ready": "reads nothing",
    "integrity.sealing.read_aggregate": "compares a vector that is held with its hash",
    "integrity.sealing.read_place": "a part of decode_client and decode_server",
    "ledger.ledger.Ledger.ready": "reads nothing",
    "training.loading.load": "imports the client's own code",
    "training.memory.parse_bytes": "a number on the command line",
    "training.records.RecordReader.read": "the client's own records",
}
"""Named like readers, and tested elsewhere or not of bytes."""


_written: dict[Path, bytes] = {}


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hostile-"))


def from_file(read: Callable[[Path], object], data: bytes, name: str = "file") -> object:
    path = folder() / name
    if _written.get(path) is not data or not path.exists():
        path.write_bytes(data)
        path.chmod(0o600)
        _written[path] = data
    return read(path)


def as_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("latin-1"))


def of_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    return partial(from_file, read)


def through_a_socket(data: bytes) -> Frame:
    ours, theirs = socket.socketpair()

    def send() -> None:
        with suppress(OSError):
            theirs.sendall(data)
        theirs.close()

    sender = Thread(target=send)
    sender.start()
    try:
        with closing(ours):
            return receive(ours, 1 << 20, 5)
    except ConnectionResetError as problem:  # cut short: the guard drops the peer
        raise LrdpError(str(problem)) from None
    finally:
        sender.join()


def _framed(given: Frame) -> bytes:
    parts = (given.prefix, *map(bytes, given.bodies))
    lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
    return b"lrdp-guard/1\n" + bytes([len(parts)]) + lengths + b"".join(parts)


def _standing(data: bytes) -> object:
    place = folder() / "standing"
    standing = Standing(place)
    (place / "state").write_bytes(data)
    found = standing.load(SERVER)
    if found is None:
        raise LrdpError("a state that is not whole is none")
    return found


def _heads(path: Path) -> Archive:
    place = folder() / "archive"
    place.mkdir(exist_ok=True)
    path.replace(place / "heads.json")
    _written.clear()
    return Archive(place, _session())


@cache
def _session() -> Session:
    return federation(3, size=5).session


@cache
def table() -> dict[str, Decoder]:
    """By the names that ``found`` gives; a name with a space after it is one more way to the same reader."""
    return {**_codec(), **_integrity(), **_wire(), **_ledger(), **_federation(), **_files()}


def _codec() -> dict[str, Decoder]:
    pairs = codec.packed(b"PAIRS/v1", pairs=codec.many(codec.row(codec.NAME, codec.NUMBER)), scale=codec.DOUBLE)
    kinds = codec.Kinds({"A": codec.line("A", at=codec.DIGITS, scale=codec.HEXADECIMAL, said=codec.word(99))})
    sample = codec.pack(b"PAIRS/v1", codec.pack(codec.pack(b"a", bytes(8))), bytes(8))
    known = {
        "formats.unpack": (lambda data: codec.unpack(data, 8), sample),
        "formats.Format.decode": (pairs.decode, sample),
        "formats.Kinds.decode": (as_text(kinds.decode), b"A\t3\t0x1.8000000000000p+0\ta b"),
    }
    return {f"codec.{name}": Decoder(read=read, sample=data) for name, (read, data) in known.items()}


def _integrity() -> dict[str, Decoder]:
    world = federation(3, size=5)
    scene = stage(world)
    played, ready = play_out(scene), world.clients["c000"]
    receipt, session, me = honest_round(federation(3, size=5)), world.session, ready.identity
    exact_client = federation(3, size=5, method=ProofMethod.EXACT).clients["c000"].scheme
    vectors = states.client_vectors(ready)
    disputed = framed()
    failed, word = disputed.case(disputed.honest()), next(iter(disputed.honest().values()))
    line = (history.session_line(session) + "\n").encode()
    kept = {
        "messages.Accept.decode": (Accept.decode, played.accepts[0].encode()),
        "exact.MaskMemory.decode": (exact.MaskMemory.decode, exact_client.encode()),
        "fixed_point.FixedPoint.decode": (FixedPoint.decode, session.parameters.point.encode()),
        "keys.Member.decode": (keys.Member.decode, me.member.encode()),
        "repeats.Shown.decode": (Shown.decode, Shown(update=3, roster=("a", "b")).encode()),
        "depositions.Deposition.decode": (Deposition.decode, word.encode()),
        "papers.Papers.decode": (Papers.decode, encode_failed(failed)),
        "papers.decode_failed": (lambda data: decode_failed(data, failed_vectors(failed)), encode_failed(failed)),
        "messages.Header.decode": (Header.decode, scene.publish.header.encode()),
        "exact.SessionKey.decode": (exact.SessionKey.decode, exact.session_key(me, session, bytes(32)).encode()),
        "exact.read_exact_client": (lambda data: exact.read_exact_client(me, session, data), exact_client.encode()),
        "schemes.read_sketch_client": (lambda data: read_sketch_client(me, session, data), b""),
        "session.Parameters.decode": (Parameters.decode, session.parameters.encode()),
        "messages.Pledge.decode": (Pledge.decode, scene.publish.header.roster[0].encode()),
        "receipts.RoundReceipt.decode": (RoundReceipt.decode, receipt.encode()),
        "repeats.Stands.decode": (Stands.decode, ready.stands.encode()),
        "registry.Registry.decode": (Registry.decode, session.registry.encode()),
        "registry.read_title": (read_title, session.registry.encode()),
        "registry.read_lineage": (
            lambda data: read_lineage([data], session.registry.digest),
            session.registry.encode(),
        ),
        "session.Session.decode": (Session.decode, session.encode()),
        "session.registry_title ": (registry_title, session.encode()),
        "session.encoded_registry": (encoded_registry, session.encode()),
        "history.read_step": (history.read_step, receipt.encode()),
        "messages.Tag.decode": (Tag.decode, played.tags[0].encode()),
        "messages.Train.decode": (Train.decode, scene.gathering.train.encode()),
        "sealing.unseal": (unseal, states.encode_client(ready)),
        "states.decode_client": (lambda data: states.decode_client(data, me, vectors), states.encode_client(ready)),
        "states.decode_server": (
            lambda data: states.decode_server(data, SERVER, world.idle.model),
            states.encode_server(world.idle),
        ),
        "cards.json_object": (as_text(json_object), b'{"name": "a"}'),
        "cards.read_card": (as_text(read_card), _json(card(me.member))),
        "cards.read_registry": (as_text(read_registry), _json(registry_record(session.registry))),
        "history.read_session": (as_text(lambda text: history.read_session(text, None)), line.strip()),
        "keys.load_identity": (of_file(keys.load_identity), _saved(me)),
        "encoding.Reader.varint ": (_one_number, b"\x05"),
    }
    made = {f"integrity.{name}": Decoder(read=read, sample=sample) for name, (read, sample) in kept.items()}
    audit = of_file(lambda path: _raised(history.audit_history(read_lines(path), None).failure))
    return {**made, "integrity.history.audit_history ": Decoder(read=audit, sample=line)}


def _one_number(data: bytes) -> int:
    reader = Reader(data)
    value = reader.varint()
    reader.end()
    return value


def _raised(problem: Exception | None) -> None:
    if problem is not None:
        raise problem


def _json(record: object) -> bytes:
    import json

    return json.dumps(record).encode()


def _saved(identity: keys.Identity) -> bytes:
    path = folder() / "saved.pem"
    path.unlink(missing_ok=True)
    keys.save_identity(identity, path)
    return path.read_bytes()


def _wire() -> dict[str, Decoder]:
    scene = stage(federation(3, size=5))
    wire, played, header = scene.wire, play_out(scene), scene.publish.header
    update, vector = scene.gathering.updates[0], bytes(20)
    known = {
        "train": (wire.read_train, wire.train(scene.gathering.train)),
        "pledge": (wire.read_pledge, wire.pledge(update.pledge)),
        "update": (lambda data: wire.read_update(data, vector), wire.update(update)),
        "publish": (lambda data: wire.read_publish(data, vector), wire.publish(scene.publish)),
        "tag": (wire.read_tag, wire.tag(played.tags[0])),
        "tags": (lambda data: wire.read_tags(data, header), wire.tags(Tags(tags=tuple(played.tags)), header)),
        "accept": (wire.read_accept, wire.accept(played.accepts[0])),
    }
    return {f"integrity.wire.Wire.read_{name}": Decoder(read=read, sample=made) for name, (read, made) in known.items()}


def _ledger() -> dict[str, Decoder]:
    place = folder() / "books"
    place.mkdir()
    world = World(folder=place)
    with world.create() as ledger:
        round_trip(ledger, request(1))
        books, head = ledger.books, ledger.head()
        entries = list(ledger.entries())
        export.write_export(ledger, place / "export")
    report = report_of(books)
    FleetBooks.of([report]).save(place / "fleet.npz")
    world.key.write(place / "key.pem")
    exported, fleet = (place / "export").read_bytes(), (place / "fleet.npz").read_bytes()
    signed, text = report.signed(world.key).encode(), policy().text
    mechanism = encoding.encode_mechanism(next(iter(books.charges.history))).encode()
    known = {
        "events.decode_all of one ": (lambda data: events.decode_all([data]), entries[1][0]),
        "events.decode_all": (lambda data: events.decode_all([entries[1][0], data]), entries[2][0]),
        "texts.decode_mechanism": (as_text(encoding.decode_mechanism), mechanism),
        "heads.Head.decode": (as_text(Head.decode), head.encode().encode()),
        "reports.read_report": (as_text(read_report), signed),
        "policy_file.parse_policy": (as_text(lambda data: parse_policy(data, "policy.toml")), text.encode()),
        "policy_file.read_policy": (of_file(read_policy), text.encode()),
        "toml_text.read_toml": (as_text(lambda data: read_toml(data, "policy.toml")), text.encode()),
        "key_files.SigningKey.read": (of_file(SigningKey.read), (place / "key.pem").read_bytes()),
        "columns.read_columns": (of_file(lambda path: read_columns(path, {"names": "U"})), fleet),
        "fleet.FleetBooks.load": (of_file(FleetBooks.load), fleet),
        "export.verify ": (of_file(export.verify_export), exported),
        "export.verify of a ledger ": (of_file(export.verify_export), world.path.read_bytes()),
    }
    inner = {
        "choice.decode_choice": (as_text(choice.decode_choice), books.opened.filter.encode()),
        "texts.decode_float": (as_text(encoding.decode_float), b"0x1p+0"),
        "texts.decode_word": (as_text(encoding.decode_word), b"a%20b"),
        "texts.decode_history": (as_text(encoding.decode_history), b"3*" + mechanism),
        "heads.decode_successors": (as_text(decode_successors), b"%b:%b" % (b"0" * 64, b"1" * 128)),
    }
    made = {f"ledger.{name}": Decoder(read=read, sample=data) for name, (read, data) in known.items()}
    made |= {f"ledger.{name}": Decoder(read=read, sample=data, inner=True) for name, (read, data) in inner.items()}
    return made | {"commands.fleet.reports_in ": Decoder(read=of_file(reports_in), sample=signed + b"\n")}


_STATE = SavedState(
    hello=b"h",
    round=0,
    idle=b"",
    written=0,
    receipts=(),
    places={},
    shown=(),
    progress=Progress(tried=3),
    keeping=Keeping(every=2, average=Averaging(rounds=3)),
)


def _federation() -> dict[str, Decoder]:
    point = _session().parameters.point
    hello = to_frame(Hello(session=_session().encode(), nonce=bytes(32), layout=b"[]"))
    since = CatchUp(receipts=(honest_round(federation(3, size=5)).encode(),) * 3, heads=("a",))
    receipts = to_frame(HandIn(invitation=b"", since=since))
    update = Contributed(trained_from=0, head="", update=b"", values=bytes(9))
    known = {
        "wire.questions.read_message": (lambda data: read_message(Frame(data)), receipts.prefix),
        "wire.questions.read_message of a greeting ": (lambda data: read_message(Frame(data)), hello.prefix),
        "wire.questions.read_message of a vector ": (
            lambda data: read_message(Frame(to_frame(Announcement(publish=b"", aggregate=None)).prefix, (data,) * 2)),
            b"",
        ),
        "wire.orders.Order.decode": (Order.decode, Order(steps=3, metrics=("correct",)).encode()),
        "wire.shares.read_share": (read_share, bytes(8)),
        "wire.layout.unpack_values": (lambda data: unpack_values(data, point), bytes(15)),
        "wire.layout.Layout.decode": (Layout.decode, Layout(shapes=(("weight", (2, 3)),)).described),
        "server.saved_state.SavedState.decode": (SavedState.decode, _STATE.encode()),
        "wire.layout.as_model ": (lambda data: as_model(data, 5), bytes(20)),
        "wire.sockets.receive": (through_a_socket, _framed(to_frame(update))),
        "client.standing.Standing.load": (_standing, b""),
        "server.archive.Archive ": (of_file(_heads), b"{}"),
    }
    return {f"federation.{name}": Decoder(read=read, sample=data) for name, (read, data) in known.items()}


def _files() -> dict[str, Decoder]:
    def read(step: Callable[[Path], object]) -> Callable[[bytes], object]:
        def within(path: Path) -> object:
            try:
                return step(path)
            except OSError as problem:  # what every caller turns into its own sentence
                raise LrdpError(problem.strerror) from None

        return of_file(within)

    def all_lines(path: Path) -> None:
        with files.opened(path) as file:
            for line in files.lines(file, 4096):
                if line not in (b"a\n",):
                    raise LrdpError("a reader ends at the first line that is none of its own")

    return {
        "files.opened": Decoder(read=read(lambda path: files.opened(path).close()), sample=b"", takes_anything=True),
        "files.read": Decoder(read=read(lambda path: files.read(path, 4096)), sample=b""),
        "files.read_secret": Decoder(read=read(lambda path: files.read_secret(path, 4096)), sample=b""),
        "files.lines": Decoder(read=read(all_lines), sample=b""),
    }


def fleet_with(shape: tuple[int, ...], compressed: bool) -> bytes:
    """A file of columns of which one promises more than it holds, or unpacks to more."""
    path = folder() / "bomb.npz"
    (np.savez_compressed if compressed else np.savez)(path, names=np.zeros(shape, "<U1"))
    return path.read_bytes()
