"""Was the average honest: bytes in, bytes out.

Clients verify, in each round, that the server's model came from their updates alone. docs/integrity.md is the
specification; ``rounds.run_round`` is a whole round on one page; ``client`` and ``server`` are the two machines of pure
steps that it drives. Anything but VERIFIED raises NotVerified.
"""

from lrdp.integrity import blame, client, server, states
from lrdp.integrity.cards import MOST_CARD_CHARACTERS, card, json_object, read_card, read_registry, registry_record
from lrdp.integrity.depositions import Deposition, FailedRound, Judgement, depose, judged
from lrdp.integrity.encoding import HASH_SIZE, SIGNATURE_SIZE, digest
from lrdp.integrity.exact import ExactClient, ExactServer, SessionKey, exact_client, session_key
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
from lrdp.integrity.history import Step, follow_all, read_step, session_line
from lrdp.integrity.keys import KEY_SIZE, Identity, Member, new_identity, verifies
from lrdp.integrity.messages import NONCE_SIZE, Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.papers import decode_failed, encode_failed, failed_vectors
from lrdp.integrity.receipts import RoundReceipt, endorse, follow
from lrdp.integrity.registry import NO_PREVIOUS, Registry, RegistryTitle
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
    "MEANINGS",
    "MODEL",
    "MOST_CARD_CHARACTERS",
    "MOST_STATE_BYTES",
    "NONCE_SIZE",
    "NO_PREVIOUS",
    "SIGNATURE_SIZE",
    "SMALL",
    "Accept",
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
    "Step",
    "Tag",
    "Tags",
    "Train",
    "Verdict",
    "Whole",
    "Wire",
    "blame",
    "card",
    "client",
    "combine",
    "decode_failed",
    "depose",
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
    "majority",
    "model_hash",
    "new_identity",
    "nothing_before",
    "quantise",
    "read_card",
    "read_registry",
    "read_step",
    "registry_record",
    "rejection",
    "run_round",
    "same_roster",
    "server",
    "session_key",
    "session_line",
    "sketch_client",
    "smaller_roster",
    "states",
    "transcript_challenge",
    "verifies",
]
