"""Models for whoever uses them: a server's files, and the model that a client verified itself, in other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.standing import Standing
from lrdp.federation.local.torch_files import write_torch
from lrdp.federation.server.saved_state import read_state
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.model_files import AnyModel, KeptModel, ModelPlace, write_model
from lrdp.federation.wire.questions import Hello, read_message
from lrdp.federation.wire.signing import run_identifier
from lrdp.integrity import LONGEST_LINE, Session, Verdict, VerifiedLine, walk_history


def verified_by(folder: Path) -> KeptModel:
    """The model of the last round that the client of this folder verified itself, with its parameters' names."""
    home = ClientHome(folder=folder)
    if not home.standing.is_dir():
        raise InvalidInput(f"{folder} is not the folder of a client that was in a session: there is no model in it.")
    standing = Standing(home.standing)
    with standing.locked():
        state, hello = standing.load(home.identity()), read_message(Frame(standing.agreed() or b""))
        if state is None or not isinstance(hello, Hello):
            raise InvalidInput(f"the client in {folder} has no model yet: it has entered no round of a session.")
        ready = last_verified(state)
        model = np.array(ready.model)  # a copy: the client, which may go on meanwhile, writes over its files
    return KeptModel.at(ready.position, model, opened=hello)


def completed(kept: AnyModel, folder: Path) -> AnyModel:
    """The same, with its session's nonce if an earlier version left that out and the server of this folder knows it."""
    try:
        state = read_state(folder) if kept.nonce is None else None
        hello = None if state is None else read_message(Frame(state.hello))
    except InvalidInput:
        return kept  # a server cannot go on from such a state, but its models can be had
    if isinstance(hello, Hello) and Session.decode(hello.session).digest.hex() == kept.session:
        return kept.under(hello.nonce)
    return kept


def proved(kept: AnyModel, receipts: Path, pin: bytes) -> list[VerifiedLine]:
    """The receipts whose rounds led to exactly this model, or to each model that went into it.

    Guarantees: a quorum of members of the pinned registry accepted those rounds of that session, which is one of models
    with these names and shapes in this order.

    Raises:
        NotVerified: where no receipt that holds leads to one of these models, or the session is not of this layout.
    """
    wanted, opened = dict.fromkeys(kept.places), None
    try:
        with files.opened(receipts) as file:
            lines = (line.decode("ascii", "replace").strip() for line in files.lines(file, LONGEST_LINE))
            for step in walk_history(lines, pin):
                opened = opened or step.position.session
                place = ModelPlace(step.position.round, step.position.tip.hex(), step.position.model.hex())
                found = {place: step} if place in wanted else {}
                wanted |= found
                if found and all(wanted.values()):
                    _require_bound(kept, opened)
                    return [each for each in wanted.values() if each]
    except OSError as problem:
        raise InvalidInput(f"{receipts} cannot be read: {problem.strerror}.") from None
    missing = next(place for place, step in wanted.items() if step is None)
    raise NotVerified(
        f"no receipt in {receipts} leads to this model of round {missing.round}: the last round's is added once a "
        f"quorum has accepted it, and the first model has none.",
        Verdict.MODEL_MISMATCH,
    )


def _require_bound(kept: AnyModel, opened: Session) -> None:
    """Receipts hash values in their order: which names and shapes these have, the session's identifier alone says."""
    if kept.nonce is None:
        raise NotVerified(
            "the values are those of a receipt, but no one can prove that the names and shapes are the session's, "
            "because an earlier version wrote this file without the session's nonce: export it again with lrdp model "
            "export, from its place in the server's folder or with --client, or take the model of a later round.",
            Verdict.MODEL_MISMATCH,
        )
    identifier = run_identifier(kept.nonce, kept.layout.described)
    if (kept.session, identifier) != (opened.digest.hex(), opened.identifier):
        raise NotVerified(
            "the values are those of a receipt, but the file's names, shapes, session or nonce are not those of the "
            "receipt's session, so it is another model: do not use it, and ask for the session's own, or export that "
            "again.",
            Verdict.MODEL_MISMATCH,
        )


def export(kept: AnyModel, path: Path) -> None:
    """Write it in the format that the name's ending says; raises InvalidInput for an unknown one."""
    if path.exists():
        raise InvalidInput(f"{path} exists: nothing was written, so name another file.")
    if path.suffix not in _FORMATS:
        raise InvalidInput(
            f"{path} must end in {' or '.join(_FORMATS)}, or in .onnx with --task and --input, because that needs the "
            f"model's code as well; nothing was written."
        )
    _FORMATS[path.suffix](path, kept)


_FORMATS: Final[Mapping[str, Callable[[Path, AnyModel], None]]] = {
    ".safetensors": write_model,
    ".pt": write_torch,
}
