"""The guard: a local process that owns a client's data, keys, policy and ledger, and alone trains, charges and signs.

The app that a server ships reaches it over a Unix socket, with the same messages that Flower brought. It trains with
the client's own code, named in its policy. docs/guard.md says which users and folders make the separation real.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.client.masking import most_vectors
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.watching import Attended, Budgeted, Watch
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Decline, read_message, to_frame, word_of
from lrdp.federation.wire.sockets import receive, send
from lrdp.ledger import Policy
from lrdp.training import without_loss

PATIENCE_SECONDS: Final = 30.0
"""How long a peer may take to hand in a message, and to fetch its answer: it is on this machine."""
_LOG: Final = logging.getLogger("lrdp.guard")


@dataclass(frozen=True, kw_only=True)
class Ward:
    """What is guarded: a client's folder, its own code, and the settings that its data set is made with."""

    home: ClientHome
    task: LocalTask
    settings: Mapping[str, Any] = field(default_factory=dict)


def inspected(ward: Ward) -> tuple[Workbench, Budgeted]:
    """Everything that a message will need, opened once: problems are found before a server can see them.

    Raises:
        LrdpError: saying in one sentence what is missing and what to do.
    """
    policy, identity = ward.home.policy(), ward.home.identity()
    if not policy.peers.registry_sha256:
        raise InvalidInput(
            f"no registry is pinned ({policy.where('peers.registry_sha256')}): write there the digest that `lrdp "
            f"registry verify` prints of your consortium's registry."
        )
    if not policy.peers.server_keys:
        raise InvalidInput(
            f"no server is pinned ({policy.where('peers.server_keys')}), so no session would be joined: write under "
            f"[peers] server_keys, min_roster and retries, or let `lrdp init --registry … --server-key …` print them."
        )
    if identity.name != policy.identity.client:
        raise InvalidInput(f"the keys are those of {identity.name}, the policy is for {policy.identity.client}.")
    budgeted = Budgeted.of(ward.home)
    bench = Workbench(ward.task, ward.settings)
    _rehearse(bench, policy)
    return bench, budgeted


def _rehearse(bench: Workbench, policy: Policy) -> None:
    """Build the model, check every record, and see that both can be trained as the policy says; nothing is trained."""
    try:
        bench.set_up(policy)
        bench.records.demand()
        bench.rehearse(policy)
        if odd := without_loss(bench.records, bench.model):
            _LOG.warning("%s", odd)
    except LrdpError:
        raise
    except Exception as problem:
        raise InvalidInput(
            f"the task of {policy.where('task.module')} failed ({type(problem).__name__}: {problem}): nothing is "
            f"guarded until its model and data set can be made."
        ) from problem


class Guard:
    """Answers one message per connection, one at a time, and goes on whatever it is sent."""

    def __init__(
        self, home: ClientHome, participant: Participant, watch: Watch, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._home, self._participant, self._watch, self._patience = home, participant, watch, patience
        self._most = most_vectors(home.policy())

    def serve(self, listener: socket.socket, told: socket.socket) -> None:
        """Until ``told`` is readable; a message that came before is answered first."""
        listener.setblocking(False)
        while told not in select.select([listener, told], [], [])[0]:
            with suppress(BlockingIOError, ConnectionAbortedError):  # a peer that left before it was its turn
                connection, _ = listener.accept()
                with closing(connection):
                    self._attend(connection)

    def _attend(self, connection: socket.socket) -> None:
        started = time.monotonic()
        try:
            given = receive(connection, self._largest(), self._patience)
            reply = self._participant.handle(given)
        except InvalidInput as problem:
            _LOG.warning("refused (invalid): %s", problem)
            given, reply = Frame(b""), to_frame(Decline(code="invalid"))
        except OSError as problem:
            _LOG.warning("a peer broke off, or took too long: %s", problem)
            return
        except Exception:  # noqa: BLE001 — above all MemoryError: a message must not end the guard
            _LOG.exception("a message could not be taken")
            given, reply = Frame(b""), to_frame(Decline(code="failed"))
        try:
            send(connection, reply, self._patience)
        except OSError as problem:
            # The answer is paid for and kept: whoever asks again gets the same bytes.
            _LOG.warning("the peer did not take its answer: %s", problem)
        seconds = round(time.monotonic() - started, 3)
        self._tell(Attended(asked=_kind(given), answered=_outcome(reply), seconds=seconds))

    def _tell(self, attended: Attended) -> None:
        """After the answer has left, so that nobody waits for it; what is wrong with a log ends no guard."""
        try:
            self._watch(attended)
        except Exception:  # noqa: BLE001 — a full disk, books that cannot be read: the next message is refused for that
            _LOG.exception("%s → %s, about which no more could be said", attended.asked, attended.answered)

    def _largest(self) -> int:
        """By the policy as it is now; where that cannot be read, the last one counts, and the message is refused."""
        with suppress(LrdpError):
            self._most = most_vectors(self._home.policy())
        return self._most


def _kind(given: Frame) -> str:
    """For the log: only a known word, whatever a peer sent."""
    with suppress(LrdpError):
        return word_of(read_message(given))
    return "unknown"


def _outcome(reply: Frame) -> str:
    answer = read_message(reply)
    return f"declined ({answer.code})" if isinstance(answer, Decline) else word_of(answer)
