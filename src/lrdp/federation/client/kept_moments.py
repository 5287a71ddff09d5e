"""An optimiser's moments over the rounds of a session, on the client's disk, next to the state of its session.

They are made of noised gradients alone, which were all paid for, so going on with them costs nothing; they never leave.
Nothing depends on them: where they are lost, damaged or of another session or model, or of other books than those that
are here, the next update starts at zero.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.lib.format import read_array  # np.load would also take an archive

from lrdp import files
from lrdp.codec import NUMBER, RAW, packed, text
from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.client.state_file import NO_VECTOR
from lrdp.ledger import Head, Ledger
from lrdp.training import Moments, Optimiser, Task

_LOG: Final = logging.getLogger("lrdp.client")
_LENGTH: Final = 4
_LONGEST_HEAD: Final = 1 << 10
_LONGEST: Final = 1 << 11
_MOST_SPARE: Final = 1 << 12  # what numpy writes before the numbers, for each


class Label(NamedTuple):
    """Which moments these are: of which session, by which kind of optimiser, after how many steps, paid in which books.

    ``head`` is that of the books once the last of these steps was in them.
    """

    session: bytes
    kind: bytes
    taken: int
    head: str


_LABEL: Final = packed(b"moments/v2", session=RAW, kind=RAW, taken=NUMBER, head=text(_LONGEST_HEAD))


@dataclass(frozen=True)
class KeptMoments:
    """The moments of one client, in its session's folder, which is emptied when it enters another; and its books."""

    folder: Path
    ledger: Ledger

    @property
    def _file(self) -> Path:
        return self.folder / "moments"

    def load(self, session: bytes, task: Task) -> Moments | None:
        """Those that the last update of this session left, if its optimiser goes on with them and they fit.

        Guarantees: every step that they are made of is in the ledger.
        """
        optimiser = task.constants.optimiser
        if not optimiser.over_rounds or not self._file.exists():
            return None
        try:
            return self._read(session, task)
        except (OSError, LrdpError, *NO_VECTOR) as problem:
            _LOG.warning("the optimiser's moments are not taken up, so it starts at zero: %s", problem)
            return None

    def save(self, session: bytes, optimiser: Optimiser, moments: Moments | None) -> None:
        """Keep them, or none; if the disk does not take them, the next update starts at zero, and that is all."""
        try:
            if moments is None:
                self._file.unlink(missing_ok=True)
                return
            label = _LABEL.encode(Label(session, _kind(optimiser), moments.taken, self.ledger.head().encode()))
            with files.replacing(self._file, files.OWNER_ONLY) as file:
                file.write(len(label).to_bytes(_LENGTH, "big") + label)
                for one in (one for each in moments.kept for one in each):
                    np.save(file, one.cpu().numpy(), allow_pickle=False)
        except OSError as problem:
            _LOG.warning("the optimiser's moments could not be kept: %s", problem)

    def _read(self, session: bytes, task: Task) -> Moments:
        optimiser = task.constants.optimiser
        parameters = [parameter for parameter in task.model.parameters() if parameter.requires_grad]
        most = sum(optimiser.moments * (parameter.nbytes + _MOST_SPARE) for parameter in parameters)
        with files.opened(self._file) as file:
            if self._file.stat().st_size > most + _LONGEST:
                raise InvalidInput("the file is larger than they can be.")
            size = int.from_bytes(file.read(_LENGTH), "big")
            label = Label(**_LABEL.decode(file.read(min(size, _LONGEST))))
            if (label.session, label.kind) != (session, _kind(optimiser)):
                raise InvalidInput("they are of another session or optimiser.")
            if not self.ledger.continues(Head.decode(label.head)):
                raise InvalidInput("the ledger does not hold the steps that they are made of.")
            kept = tuple(
                tuple(torch.from_numpy(read_array(file, allow_pickle=False)) for _ in range(optimiser.moments))
                for _ in parameters
            )
            if file.read(1):
                raise InvalidInput("the file holds more than the moments.")
        found = Moments(label.taken, kept)
        found.demand_fit(parameters, optimiser.moments)
        if not found.finite:
            raise InvalidInput("they are not finite.")
        return found


def _kind(optimiser: Optimiser) -> bytes:
    return f"{type(optimiser).__name__} {optimiser.moments}".encode()
