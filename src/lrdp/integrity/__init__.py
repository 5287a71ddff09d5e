"""Was the average honest: bytes in, bytes out.

Clients verify, in each round, that the server's model came from their updates alone. docs/integrity.md is the
specification; ``rounds.run_round`` is a whole round on one page; ``client`` and ``server`` are the two machines of pure
steps that it drives. Anything but VERIFIED raises NotVerified.
"""

from lrdp.integrity import blame, client, server, states
from lrdp.integrity.exact import ExactClient, ExactServer, SessionKey, exact_client, session_key
from lrdp.integrity.fixed_point import FixedPoint, Quantised, Room, quantise
from lrdp.integrity.keys import Identity, Member, new_identity
from lrdp.integrity.messages import Accept, CommittedUpdate, Header, Pledge, Publish, Tag, Tags, Train
from lrdp.integrity.receipts import RoundReceipt, endorse, follow, follow_all
from lrdp.integrity.registry import Registry
from lrdp.integrity.rounds import Contribution, Outcome, run_round
from lrdp.integrity.schemes import ClientScheme, ServerScheme, SketchClient, SketchServer, sketch_client
from lrdp.integrity.session import Parameters, Position, ProofMethod, Session, genesis
from lrdp.integrity.verdicts import MEANINGS, Verdict
from lrdp.integrity.wire import Wire

__all__ = [
    "MEANINGS",
    "Accept",
    "ClientScheme",
    "CommittedUpdate",
    "Contribution",
    "ExactClient",
    "ExactServer",
    "FixedPoint",
    "Header",
    "Identity",
    "Member",
    "Outcome",
    "Parameters",
    "Pledge",
    "Position",
    "ProofMethod",
    "Publish",
    "Quantised",
    "Registry",
    "Room",
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
    "Wire",
    "blame",
    "client",
    "endorse",
    "exact_client",
    "follow",
    "follow_all",
    "genesis",
    "new_identity",
    "quantise",
    "run_round",
    "server",
    "session_key",
    "sketch_client",
    "states",
]
