"""Was the average honest: bytes in, bytes out.

Clients verify, in each round, that the server's model came from their updates alone. docs/integrity.md is the
specification; ``rounds.run_round`` is a whole round on one page; ``client`` and ``server`` are the two machines of pure
steps that it drives. Anything but VERIFIED raises NotVerified.
"""

from lrdp.integrity import blame, client, server, states
from lrdp.integrity.exact import ExactClient, ExactServer, Hello, exact_client, hello
from lrdp.integrity.fixed_point import FixedPoint, Quantised, Room, quantise
from lrdp.integrity.keys import Identity, Member, new_identity
from lrdp.integrity.messages import Accept, Header, Pledge, Publish, Tag, Tags, Train, Update
from lrdp.integrity.receipts import Receipt, endorse, follow, follow_all
from lrdp.integrity.registry import Registry
from lrdp.integrity.rounds import Contribution, Outcome, run_round
from lrdp.integrity.schemes import ClientScheme, ServerScheme, SketchClient, SketchServer, sketch_client
from lrdp.integrity.session import Method, Parameters, Position, Session, genesis
from lrdp.integrity.verdicts import MEANINGS, Verdict
from lrdp.integrity.wire import Wire

__all__ = [
    "MEANINGS",
    "Accept",
    "ClientScheme",
    "Contribution",
    "ExactClient",
    "ExactServer",
    "FixedPoint",
    "Header",
    "Hello",
    "Identity",
    "Member",
    "Method",
    "Outcome",
    "Parameters",
    "Pledge",
    "Position",
    "Publish",
    "Quantised",
    "Receipt",
    "Registry",
    "Room",
    "ServerScheme",
    "Session",
    "SketchClient",
    "SketchServer",
    "Tag",
    "Tags",
    "Train",
    "Update",
    "Verdict",
    "Wire",
    "blame",
    "client",
    "endorse",
    "exact_client",
    "follow",
    "follow_all",
    "genesis",
    "hello",
    "new_identity",
    "quantise",
    "run_round",
    "server",
    "sketch_client",
    "states",
]
