"""Models for whoever uses them: a server's files, and the model that a client verified itself, in other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.standing import Standing
from lrdp.federation.local.torch_files import write_torch
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_files import AnyModel, KeptModel, ModelPlace, write_model
from lrdp.federation.wire.questions import Hello, read_message
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
    return KeptModel.at(ready.position, Layout.decode(hello.layout), ready.model, opened=Session.decode(hello.session))


def proved(kept: AnyModel, receipts: Path, pin: bytes) -> list[VerifiedLine]:
    """The receipts whose rounds led to exactly this model, or to each model that went into it.

    Guarantees: a quorum of members of the pinned registry accepted those rounds of that session.

    Raises:
        NotVerified: where no receipt that holds leads to one of these models.
    """
    wanted = dict.fromkeys(kept.places)
    try:
        with files.opened(receipts) as file:
            lines = (line.decode("ascii", "replace").strip() for line in files.lines(file, LONGEST_LINE))
            for step in walk_history(lines, pin):
                place = ModelPlace(step.position.round, step.position.tip.hex(), step.position.model.hex())
                found = {place: step} if place in wanted else {}
                wanted |= found
                if found and all(wanted.values()):
                    return [each for each in wanted.values() if each]
    except OSError as problem:
        raise InvalidInput(f"{receipts} cannot be read: {problem.strerror}.") from None
    missing = next(place for place, step in wanted.items() if step is None)
    raise NotVerified(
        f"no receipt in {receipts} leads to this model of round {missing.round}: the last round's is added once a "
        f"quorum has accepted it, and the first model has none.",
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
