"""The app that a server may ship: it passes messages to the client's guard, and can do nothing else.

It imports neither torch nor anything that reads data; whoever replaces it can still only send messages to the guard.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from flwr.app import Context
from flwr.clientapp import ClientApp

from lrdp.errors import InvalidInput
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Decline, to_frame
from lrdp.federation.wire.sockets import connected, receive, send

GUARD_SETTING: Final = "guard"
NO_GUARD: Final = "no-guard"
_LOG: Final = logging.getLogger("lrdp.client")
_CONNECT_SECONDS: Final = 60.0
_SEND_SECONDS: Final = 60.0
# As long as Flower itself keeps a message: training takes its time, and a guard that dies ends the wait at once.
_WAIT_SECONDS: Final = 12 * 3600.0
_MOST_BYTES: Final = 1 << 34


def guarded_client_app(socket: str | None = None) -> ClientApp:
    """A ClientApp that hands every message to the guard of this node, and its answer back.

    Args:
        socket: where the guard listens; without it, the node's own setting ``guard`` is used.

    Guarantees: what the guard refuses, this app cannot get. See docs/guard.md for the users and folders it takes.

    >>> from flwr.app import Message
    >>> from lrdp.federation import InProcessGrid, Node
    >>> from lrdp.federation.wire.flower import from_message, to_records
    >>> from lrdp.federation.wire.questions import read_message
    >>> grid = InProcessGrid({2: Node(guarded_client_app("/run/no-guard-is-here.sock"))})
    >>> question = Message(to_records(Frame(b"any")), dst_node_id=2, message_type="train")
    >>> (reply,) = grid.send_and_receive([question])
    >>> read_message(from_message(reply)).code
    'no-guard'
    """

    def handle(given: Frame, context: Context) -> Frame:
        path = socket if socket is not None else context.node_config.get(GUARD_SETTING)
        if not isinstance(path, str):
            _LOG.error(
                "this node names no guard: start it with --node-config '%s=\"/run/lrdp/guard.sock\"'.", GUARD_SETTING
            )
            return to_frame(Decline(code=NO_GUARD))
        return forwarded(given, path)

    return answering(handle)


def forwarded(given: Frame, path: str) -> Frame:
    """The guard's answer, or that there is no guard."""
    try:
        with connected(path, _CONNECT_SECONDS) as connection:
            # A guard that refuses a message by its size answers without having read it.
            with suppress(BrokenPipeError, ConnectionResetError):
                send(connection, given, _SEND_SECONDS)
            return receive(connection, _MOST_BYTES, _WAIT_SECONDS)
    except (OSError, InvalidInput) as problem:
        _LOG.error("no guard answers at %s (%s): start it with `lrdp guard`.", path, problem)
        return to_frame(Decline(code=NO_GUARD))
