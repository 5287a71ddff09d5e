"""A private ClientApp: the Flower app of a client that has data, a policy and a ledger of its own.

In-process, as here, the client's guarantees rest on the app that runs: who ships the app ships this code. Where the
server ships it, use a guard (:mod:`lrdp.federation.guard`), to which the app can only pass messages on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from lrdp.errors import InvalidInput
from lrdp.federation.client import Participant
from lrdp.federation.flower import from_message, to_records
from lrdp.federation.frames import Frame
from lrdp.federation.home import ClientHome
from lrdp.federation.messages import Declined, to_frame
from lrdp.federation.task import LocalTask, Workbench

POLICY_SETTING: Final = "policy"
_LOG: Final = logging.getLogger("lrdp.client")
_MOST_BENCHES: Final = 256

Handle = Callable[[Frame, Context], Frame]


def private_client_app(*, policy: str | None = None, **task: Any) -> ClientApp:
    """A ClientApp that trains privately, within the budget of the policy, in rounds that it verifies.

    Args:
        policy: where the client's policy.toml lies, next to its ledger and keys; settings of the node are filled in, as
            in ``"clients/{partition-id}/policy.toml"``. Without it, the node's own setting ``policy`` is used. It never
            comes from the server's run configuration.
        **task: what :class:`LocalTask` takes: model, dataset, loss, and optionally optimiser and execution.
    """
    local = LocalTask(**task)

    @lru_cache(maxsize=_MOST_BENCHES)
    def participant(folder: Path, settings: tuple[tuple[str, Any], ...]) -> Participant:
        return Participant(ClientHome(folder=folder), Workbench(local, dict(settings)))

    def handle(given: Frame, context: Context) -> Frame:
        settings = dict(context.node_config)
        return participant(policy_path(policy, settings).parent, tuple(sorted(settings.items()))).handle(given)

    return answering(handle)


def answering(handle: Handle) -> ClientApp:
    """A ClientApp that hands every message of the protocol to ``handle``, and knows no others."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        try:
            reply = handle(from_message(message), context)
        except Exception:  # noqa: BLE001 — whatever it is
            # Flower would send the exception's text to the server.
            _LOG.exception("a message was not understood, or could not be handled")
            reply = to_frame(Declined(code="invalid"))
        return Message(to_records(reply), reply_to=message)

    app.train()(answer)
    app.query()(answer)
    return app


def policy_path(template: str | None, settings: Mapping[str, Any]) -> Path:
    """The policy of this node: its path is the operator's or the app's, and never in a message."""
    if template is None and POLICY_SETTING not in settings:
        raise InvalidInput(
            f"this node has no policy: start it with --node-config '{POLICY_SETTING}=\"/path/to/policy.toml\"'; "
            f"`lrdp init` writes one."
        )
    try:
        return Path((template or str(settings[POLICY_SETTING])).format(**settings)).resolve()
    except KeyError as missing:
        raise InvalidInput(f"the path of the policy names the setting {missing}, which this node has not.") from None
