"""The models of a session that a server keeps: the last, the best, and, if it is told to, more of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lrdp.federation.server.keeping import NOTHING_MORE, Keeping
from lrdp.federation.wire.model_averages import AveragedModel, averaged
from lrdp.federation.wire.model_files import KeptModel, model_name, read_model, write_model
from lrdp.federation.wire.questions import Hello
from lrdp.integrity import Model, Position, Session


class ModelShelf:
    """``model-SESSION-ROUND.safetensors`` in a folder."""

    def __init__(self, folder: Path, session: Session, keeping: Keeping = NOTHING_MORE) -> None:
        self._folder, self.keeping = folder, keeping
        self._name = session.digest.hex()
        self._prefix = f"model-{self._name[:16]}-"

    def path(self, round_: int) -> Path:
        """Where the model after this many rounds lies."""
        return self._folder / model_name(self._name, round_)

    def put(self, position: Position, model: Model, opened: Hello) -> None:
        """Durable once it returns."""
        write_model(self.path(position.round), KeptModel.at(position, model, opened=opened))

    def take(self, round_: int) -> KeptModel:
        """The model after this many rounds; raises InvalidInput where it is missing or damaged."""
        return read_model(self.path(round_))

    def keep_only(self, rounds: Collection[int]) -> None:
        """Delete all others of this session, except those of ``every`` and of the average.

        Those of later rounds are left alone: where a state was restored from an older backup, they may be all there is.
        """
        for path in self.besides({*rounds, *self._averaged(max(rounds))}):
            number = path.stem.removeprefix(self._prefix)
            if not (self._periodic(number) or (number.isdigit() and int(number) > max(rounds))):
                path.unlink(missing_ok=True)

    def besides(self, rounds: Collection[int]) -> list[Path]:
        """The models of this session that lie there, without those of these rounds."""
        known = {self.path(number) for number in rounds}
        return [path for path in self._folder.glob(f"{self._prefix}*.safetensors") if path not in known]

    def _periodic(self, number: str) -> bool:
        every = self.keeping.every
        return every is not None and number.isdigit() and int(number) > 0 and int(number) % every == 0

    def _averaged(self, last: int) -> range:
        """The rounds up to ``last`` whose models the average is made of."""
        rounds = self.keeping.average.rounds if self.keeping.average is not None else 0
        return range(max(1, last + 1 - rounds), last + 1)

    def put_average(self, last: int) -> AveragedModel | None:
        """Write the average of the models up to round ``last`` and return it; None where none is to be kept."""
        if self.keeping.average is None or last < 1:
            return None
        there = [number for number in self._averaged(last) if self.path(number).exists()]
        average = averaged(self.keeping.average, [self.take(number) for number in there])
        write_model(self._folder / f"average-{self._name[:16]}-{last:05}.safetensors", average)
        return average
