"""Going on: the session that a server left in its folder, taken up where it was saved last."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from flwr.app import ArrayRecord

from lrdp.errors import InvalidInput
from lrdp.federation.server.archive import Archive
from lrdp.federation.server.chronicle import Chronicle, retold
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.keeping import Keeping
from lrdp.federation.server.model_shelf import ModelShelf
from lrdp.federation.server.saved_state import STATE_FILE, SavedState, read_state
from lrdp.federation.server.schemes import SCHEMES
from lrdp.federation.server.terms import Terms
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Hello, read_message
from lrdp.integrity import Idle, Session, load_identity, read_step, states

_FLOWER_LOG: Final = logging.getLogger("flwr")
IDENTITY_FILE: Final = "identity.pem"
_ELSEWHERE: Final = (
    "name another folder for a new session, and copy this one's identity.pem, heads.json and registry-*.json there"
)


def opened(terms: Terms, arrays: ArrayRecord | None) -> Coordinator:
    """The session of this folder, however far it came; in a folder without one, a new one from these parameters.

    A command that somebody repeats by mistake spends nothing: a new session needs a new folder.
    """
    state = read_state(terms.folder)
    if arrays is None and state is None:
        raise InvalidInput(f"{terms.folder} holds no {STATE_FILE} to go on from: start with the first model's arrays.")
    # As a whole path: Flower runs an app where its SuperLink was started, and a relative one leads elsewhere there.
    here = terms.folder.absolute()
    if state is None:
        coordinator = terms.open(arrays or ArrayRecord())
        _FLOWER_LOG.info("Beginning a session in %s.", here)
        return coordinator
    hello = _hello(state, terms.folder)
    layout = Layout.decode(hello.layout)
    if arrays is not None and Layout.of_arrays({name: array.numpy() for name, array in arrays.items()}) != layout:
        raise InvalidInput(
            f"{terms.folder} holds the session of another model, with other names or shapes of parameters: "
            f"{_ELSEWHERE}; nothing was started."
        )
    coordinator = _taken_up(terms, state, hello, layout)
    _FLOWER_LOG.info("Going on with the session in %s after round %d.", here, state.round)
    return coordinator


def _hello(state: SavedState, folder: Path) -> Hello:
    hello = read_message(Frame(state.hello))
    if not isinstance(hello, Hello):
        raise InvalidInput(f"the state in {folder} does not say which session it belongs to: nothing was started.")
    return hello


def _taken_up(terms: Terms, state: SavedState, hello: Hello, layout: Layout) -> Coordinator:
    terms = terms.under(Session.decode(hello.session).registry)
    session = terms.session(layout, hello.nonce)
    if session.encode() != hello.session:
        raise InvalidInput(
            f"the session in {terms.folder} was opened with another server's key, registry, least roster, scheme or "
            f"rounding than these terms have: go on with those, or {_ELSEWHERE}; nothing was started."
        )
    archive = terms.archive(session)
    kept = archive.models.take(state.round)
    idle = states.decode_server(state.idle, terms.identity, kept.vector)
    coordinator = Coordinator(idle, hello, layout, archive, terms.conduct)
    shown = [one.once_more() for one in state.shown]
    coordinator.go_on(_chronicle(archive, state, idle, session), shown, state.progress)
    return coordinator


def _chronicle(archive: Archive, state: SavedState, idle: Idle, session: Session) -> Chronicle:
    """The history, which must lead exactly to where the state stands: one older than its receipts would fork it."""
    kept = archive.read_steps()
    later = [read_step(data) for data in state.receipts[max(0, len(kept) - state.written) :]]
    steps = retold(session, [*kept, *later])
    end = steps[-1].after if steps else replace(idle.position, round=0)
    if len(kept) < state.written or (end.round, end.tip) != (idle.position.round, idle.position.tip):
        raise InvalidInput(
            f"{archive.receipts} and the state of the session do not lead to the same place, so one of them was "
            f"restored or cut: restore both from one moment, or name another folder for a new session."
        )
    return Chronicle(steps, state.places)


def terms_of(folder: Path) -> Terms:
    """The terms of the session in a server's folder, with the key that lies there, as far as the state knows them."""
    state = read_state(folder)
    if state is None:
        raise InvalidInput(f"{folder} holds no {STATE_FILE} to go on from: start with Terms and the first model.")
    session = Session.decode(_hello(state, folder).session)
    keeping = state.keeping or _kept_so_far(ModelShelf(folder, session), state)
    return Terms(
        identity=load_identity(folder / IDENTITY_FILE),
        registry=session.registry,
        folder=folder,
        order=Order.decode(bytes.fromhex(state.progress.order)) if state.progress.order else Order(),
        point=lambda _size: session.parameters.point,
        min_roster=session.parameters.min_roster,
        keep_every=keeping.every,
        average=keeping.average,
        scheme=SCHEMES[session.parameters.method],
    )


def _kept_so_far(models: ModelShelf, state: SavedState) -> Keeping:
    """For a state that does not say what is kept: every model, where there are more than it names, so none is lost."""
    more = models.besides({state.round, state.progress.best or state.round})
    return Keeping(every=1 if more else None)
