"""The models of a session that a server keeps: the last, the best, and, if it is told to, every so many."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_files import KeptModel, read_model, write_model
from lrdp.integrity import Model, Position, Session


class ModelShelf:
    """``model-SESSION-ROUND.safetensors`` in a folder; ``every`` 10, say, keeps those of rounds 10, 20 and so on."""

    def __init__(self, folder: Path, session: Session, every: int | None = None) -> None:
        self._folder, self._session, self._every = folder, session, every
        self._prefix = f"model-{session.digest.hex()[:16]}-"

    def path(self, round_: int) -> Path:
        """Where the model after so many rounds lies."""
        return self._folder / f"{self._prefix}{round_:05}.safetensors"

    def put(self, position: Position, layout: Layout, model: Model) -> None:
        """Durable once it returns."""
        write_model(self.path(position.round), KeptModel.at(position, layout, model, opened=self._session))

    def take(self, round_: int) -> KeptModel:
        """The model after so many rounds; raises InvalidInput where it is missing or damaged."""
        return read_model(self.path(round_))

    def keep_only(self, rounds: Collection[int]) -> None:
        """Delete all others of this session, but for every so many."""
        kept = {self.path(number) for number in rounds}
        for path in self._folder.glob(f"{self._prefix}*.safetensors"):
            if path not in kept and not self._periodic(path.stem.removeprefix(self._prefix)):
                path.unlink(missing_ok=True)

    def _periodic(self, number: str) -> bool:
        return self._every is not None and number.isdigit() and int(number) > 0 and int(number) % self._every == 0
