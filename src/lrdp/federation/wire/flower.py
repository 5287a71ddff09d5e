"""The border to Flower: frames as records and back. Arrays from the network are decoded in this file alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.wire.frames import MOST_BODIES, Body, Frame
from lrdp.federation.wire.questions import Decline, to_frame
from lrdp.screen import visible

RECORD: Final = "lrdp"
_LOG: Final = logging.getLogger("lrdp.client")
_FORMAT: Final = "lrdp/v1"
_KEYS: Final = ("prefix", *(f"body-{place}" for place in range(MOST_BODIES)))

Handle = Callable[[Frame, Context], Frame]


def to_records(given: Frame, known: dict[int, Array] | None = None) -> RecordDict:
    """One record of raw bytes: no pickle, no numpy header, no text.

    Bodies that several messages share are copied once if they are given the same ``known``.
    """
    parts = (given.prefix, *given.bodies)
    arrays = {key: _array(part, {} if known is None else known) for key, part in zip(_KEYS, parts, strict=False)}
    return RecordDict({RECORD: ArrayRecord(arrays)})


def _array(part: Body, known: dict[int, Array]) -> Array:
    if id(part) not in known:
        known[id(part)] = Array(dtype="uint8", shape=(len(part),), stype=_FORMAT, data=bytes(part))
    return known[id(part)]


def from_message(message: Message) -> Frame:
    """The frame in a message; raises InvalidInput for any other content."""
    content = message.content if message.has_content() else RecordDict()
    record = content.get(RECORD)
    if len(content) != 1 or not isinstance(record, ArrayRecord):
        raise InvalidInput(f"the message must hold one record {RECORD!r} and nothing else.")
    if not record or tuple(record) != _KEYS[: len(record)]:
        raise InvalidInput("the record must hold a prefix, and bodies in order.")
    for array in record.values():
        if (array.dtype, array.stype, tuple(array.shape)) != ("uint8", _FORMAT, (len(array.data),)):
            raise InvalidInput(f"an array must be raw bytes of the format {_FORMAT}.")
    prefix, *bodies = (array.data for array in record.values())
    return Frame(prefix, tuple(bodies))


def answering(handle: Handle) -> ClientApp:
    """A ClientApp that hands every message of the protocol to ``handle``, and knows no others."""
    return _Answering(handle)


class _Answering(ClientApp):
    """Whatever the type of a message, the answer is a frame: Flower would send an exception's text to the server."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self._handle = handle

    def __call__(self, message: Message, context: Context) -> Message:
        try:
            reply = self._handle(from_message(message), context)
        except LrdpError as problem:  # a sentence already: no policy, say, or a setting that this node lacks
            _LOG.warning("a message was not handled, and nothing was spent: %s", visible(str(problem)))
            reply = to_frame(Decline(code="invalid"))
        except Exception:  # noqa: BLE001 — whatever it is
            _LOG.exception("a message was not understood, or could not be handled")
            reply = to_frame(Decline(code="invalid"))
        return Message(to_records(reply), reply_to=message)
