"""What a server saves of a session: all that it resumes from, should it die now."""

from __future__ import annotations

from lrdp.federation.server.archive import Archive
from lrdp.federation.server.chronicle import Chronicle
from lrdp.federation.server.repetitions import Repetitions
from lrdp.federation.server.saved_state import Progress, SavedState
from lrdp.federation.wire.questions import Hello, to_frame
from lrdp.integrity import Idle, Roster, server, states


def saved(  # noqa: PLR0913 — all that a server resumes from
    idle: Idle,
    shown: Roster | None,
    hello: Hello,
    chronicle: Chronicle,
    repetitions: Repetitions,
    progress: Progress,
    archive: Archive,
) -> SavedState:
    """A sum over ``shown`` may be out, and is saved as one that failed."""
    if shown is not None:
        idle = server.retry(idle)
        repetitions = repetitions.as_if_failed(shown)
    return SavedState(
        hello=to_frame(hello).prefix,
        round=idle.position.round,
        idle=states.encode_server(idle),
        written=archive.written,
        receipts=tuple(step.encode() for step in chronicle.steps[archive.written :]),
        places=chronicle.places,
        shown=repetitions.shown(),
        progress=progress,
        keeping=archive.models.keeping,
    )
