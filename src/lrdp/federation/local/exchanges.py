"""One exchange of frames with the nodes of a grid, for studies that need no session."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import Array, Message
from flwr.serverapp import Grid

from lrdp.federation.server.nodes import TRAIN
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame


def exchanged(grid: Grid, frames: Mapping[int, Frame], group: str) -> dict[int, Frame]:
    """The answers by node, without nodes that did not answer. A body that several are sent is serialised once."""
    known = dict[int, Array]()
    asked = [Message(to_records(given, known), node, TRAIN, group_id=group) for node, given in frames.items()]
    replies = list(grid.send_and_receive(asked))
    nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in asked}
    return {nodes[reply.metadata.reply_to_message_id]: from_message(reply) for reply in replies}
