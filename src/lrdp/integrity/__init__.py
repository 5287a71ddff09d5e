"""Was the average honest: bytes in, bytes out.

Clients verify, in each round, that the server's model came from their updates alone. docs/integrity.md is the
specification; ``rounds.run_round`` is a whole round on one page; ``client`` and ``server`` are the two machines of pure
steps that it drives. Anything but VERIFIED raises NotVerified.

A consortium signs who may take part, and everybody builds the same session from it:

>>> import os
>>> from dataclasses import replace
>>> import numpy as np
>>> from lrdp.integrity import *
>>> office, operator = new_identity("consortium"), new_identity("operator")
>>> hospitals = [new_identity(name) for name in ("hospital-a", "hospital-b", "hospital-c")]
>>> signed = sign_registry(
...     Registry(
...         version=1,
...         first_round=0,
...         previous=NO_PREVIOUS,
...         consortium=office.member.signing_key,
...         members=tuple(one.member for one in hospitals),
...     ),
...     office,
... )
>>> read_lineage([signed.encode()], pin=signed.digest) == (signed,)
True
>>> point = FixedPoint(size=5)
>>> session = Session(
...     identifier=os.urandom(HASH_SIZE),
...     server_key=operator.member.signing_key,
...     parameters=Parameters(point=point, min_roster=majority(signed)),
...     registry=signed,
... )

A round: each hospital brings its noised update in whole numbers, and believes in the sum once all tags prove it.

>>> model = np.zeros(5, MODEL)
>>> idle = server.start(operator, SketchServer(), session, model)
>>> clients = {one.name: client.start(one, sketch_client(one, session), session, model) for one in hospitals}
>>> brought = {
...     name: Contribution(update=1, values=quantise(np.full(5, 0.5), point).values, nonce=os.urandom(NONCE_SIZE))
...     for name in clients
... }
>>> outcome = run_round(idle, clients, brought)
>>> outcome.server.model.tolist()
[0.5, 0.5, 0.5, 0.5, 0.5]

An auditor, or a hospital that was away, follows by the receipt alone:

>>> beginning = genesis(session, model_hash(model))
>>> position = follow(beginning, RoundReceipt.decode(outcome.receipt.encode()))
>>> position.round, position.tip == outcome.clients["hospital-a"].position.tip
(1, True)
>>> receipts = [session_line(session), step_line(outcome.receipt.encode())]
>>> read_session(receipts[0], pin=signed.digest) == session, encoded_registry(session.encode()) == signed.encode()
(True, True)
>>> follow_all(beginning, [read_step(outcome.receipt.encode())]) == position
True
>>> [line.participants for line in walk_history(receipts, signed.digest)][-1] == tuple(outcome.clients)
True
>>> audit_history(receipts, signed.digest).rounds
1
>>> endorse(beginning, outcome.receipt, outcome.receipt.accepts) == outcome.receipt
True

Where tags do not add up nobody moves on, and what everybody signs about its own tag shows who lied:

>>> gathering, train = server.open_round(outcome.server, tuple(outcome.clients))
>>> wire = Wire(position)
>>> begun = {name: client.begin(ready, wire.read_train(wire.train(train))) for name, ready in outcome.clients.items()}
>>> committed, tagged, tags = {}, {}, []
>>> for name, ready in begun.items():
...     committed[name] = client.commit(ready, brought[name].values, os.urandom(NONCE_SIZE), update=2)
...     gathering = server.enlist(gathering, committed[name].pledge)
>>> for name, pledged in committed.items():
...     committed[name], update = client.reveal(pledged, gathering.pledges)
...     gathering = server.admit(gathering, update)
>>> published, publish = server.publish(gathering)
>>> for name, sent in committed.items():
...     tagged[name], tag = client.answer(sent, publish)
...     tags.append(tag)
>>> tags[-1] = client.sign_tag(hospitals[-1], publish.header, tags[-1].value ^ 1)
>>> for tag in tags:
...     published = server.collect(published, tag)
>>> complete = server.all_tags(published)
>>> words = tuple(depose(each, complete) for each in tagged.values())
>>> said = {"header": publish.header, "signature": publish.signature, "aggregate": publish.aggregate}
>>> case = blame.Case(position=position, bare=tuple(word.bare for word in words), **said)
>>> heard = tuple(word for word in words if deposed(case, word))
>>> failed = FailedRound(case=case, tags=complete.tags, depositions=heard)
>>> judged(decode_failed(encode_failed(failed), failed_vectors(failed))).line
'hospital-c lied'
>>> transcript_challenge(publish.header, point.size).size
5

In exact sessions the server sees the sum alone: each member announces a key for masks first.

>>> masked = replace(session, parameters=replace(session.parameters, method=ProofMethod.EXACT))
>>> secret = {one.name: os.urandom(KEY_SIZE) for one in hospitals}
>>> announced = [session_key(one, masked, secret[one.name]) for one in hospitals]
>>> for one, key in zip(hospitals, announced):
...     require_own_key(masked, one.name, key.encode())
>>> halves = [exact_client(one, masked, secret[one.name], announced) for one in hospitals]
"""

from lrdp.integrity import blame, client, server, states
from lrdp.integrity.cards import MOST_CARD_CHARACTERS, card, json_object, read_card, read_registry, registry_record
from lrdp.integrity.depositions import Deposition, FailedRound, Judgement, depose, deposed, judged
from lrdp.integrity.encoding import HASH_SIZE, SIGNATURE_SIZE, digest
from lrdp.integrity.exact import ExactClient, ExactServer, SessionKey, exact_client, require_own_key, session_key
from lrdp.integrity.fixed_point import (
    MODEL,
    SMALL,
    FixedPoint,
    Model,
    Quantised,
    Room,
    Whole,
    combine,
    model_hash,
    quantise,
)
from lrdp.integrity.history import (
    LONGEST_LINE,
    Audit,
    HistoryStep,
    VerifiedLine,
    audit_history,
    follow_all,
    read_session,
    read_step,
    session_line,
    step_line,
    walk_history,
)
from lrdp.integrity.keys import (
    KEY_SIZE,
    Identity,
    Member,
    load_identity,
    new_identity,
    require_name,
    save_identity,
    verifies,
)
from lrdp.integrity.messages import NONCE_SIZE, Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.papers import decode_failed, encode_failed, failed_vectors
from lrdp.integrity.receipts import RoundReceipt, endorse, follow
from lrdp.integrity.registry import (
    NO_PREVIOUS,
    Registry,
    RegistryTitle,
    next_registry,
    read_lineage,
    read_title,
    sign_registry,
    verify_registry,
    verify_successor,
)
from lrdp.integrity.repeats import Repeats, Roster, nothing_before, same_roster, smaller_roster
from lrdp.integrity.rounds import Contribution, Outcome, run_round
from lrdp.integrity.schemes import (
    ClientScheme,
    ServerScheme,
    SketchClient,
    SketchServer,
    sketch_client,
    transcript_challenge,
)
from lrdp.integrity.sealing import MOST_STATE_BYTES
from lrdp.integrity.server import Gathering, Idle, Published
from lrdp.integrity.session import (
    FEWEST,
    Parameters,
    Position,
    ProofMethod,
    Session,
    encoded_registry,
    genesis,
    majority,
)
from lrdp.integrity.shelf import RegistryShelf
from lrdp.integrity.states import ClientState
from lrdp.integrity.verdicts import MEANINGS, Verdict, rejection
from lrdp.integrity.wire import Wire

__all__ = [
    "FEWEST",
    "HASH_SIZE",
    "KEY_SIZE",
    "LONGEST_LINE",
    "MEANINGS",
    "MODEL",
    "MOST_CARD_CHARACTERS",
    "MOST_STATE_BYTES",
    "NONCE_SIZE",
    "NO_PREVIOUS",
    "SIGNATURE_SIZE",
    "SMALL",
    "Accept",
    "Audit",
    "ClientScheme",
    "ClientState",
    "CommittedUpdate",
    "Contribution",
    "Deposition",
    "ExactClient",
    "ExactServer",
    "FailedRound",
    "FixedPoint",
    "Gathering",
    "Header",
    "HistoryStep",
    "Identity",
    "Idle",
    "Judgement",
    "Member",
    "Model",
    "Outcome",
    "Parameters",
    "Pledge",
    "Position",
    "ProofMethod",
    "Publish",
    "Published",
    "Quantised",
    "Registry",
    "RegistryShelf",
    "RegistryTitle",
    "Repeats",
    "Room",
    "Roster",
    "RoundReceipt",
    "ServerScheme",
    "Session",
    "SessionKey",
    "SketchClient",
    "SketchServer",
    "Tag",
    "Tags",
    "Train",
    "Verdict",
    "VerifiedLine",
    "Whole",
    "Wire",
    "audit_history",
    "blame",
    "card",
    "client",
    "combine",
    "decode_failed",
    "depose",
    "deposed",
    "digest",
    "encode_failed",
    "encoded_registry",
    "endorse",
    "exact_client",
    "failed_vectors",
    "follow",
    "follow_all",
    "genesis",
    "json_object",
    "judged",
    "load_identity",
    "majority",
    "model_hash",
    "new_identity",
    "next_registry",
    "nothing_before",
    "quantise",
    "read_card",
    "read_lineage",
    "read_registry",
    "read_session",
    "read_step",
    "read_title",
    "registry_record",
    "rejection",
    "require_name",
    "require_own_key",
    "run_round",
    "same_roster",
    "save_identity",
    "server",
    "session_key",
    "session_line",
    "sign_registry",
    "sketch_client",
    "smaller_roster",
    "states",
    "step_line",
    "transcript_challenge",
    "verifies",
    "verify_registry",
    "verify_successor",
    "walk_history",
]
