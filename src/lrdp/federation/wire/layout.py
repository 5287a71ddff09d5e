"""A model as one vector: which parameter lies where, and an update's whole numbers in as few bytes as they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lrdp.codec import NUMBER, many, packed, row, text
from lrdp.errors import InvalidInput, Malformed
from lrdp.federation.wire.frames import Body
from lrdp.integrity import MODEL, SMALL, FixedPoint, Model, Room, Whole

_FORMAT: Final = packed(b"layout/v1", shapes=many(row(text(1024, "utf-8"), many(NUMBER))))


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the trained parameters, in order. Server and client must have the same."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of_model(cls, model: nn.Module) -> Layout:
        """What a client trains: frozen parameters and buffers are its own, and do not travel."""
        trained = [(name, tuple(given.shape)) for name, given in model.named_parameters() if given.requires_grad]
        return cls(tuple(trained))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Layout:
        """What a server starts from."""
        for name, given in arrays.items():
            if not np.issubdtype(given.dtype, np.floating):
                raise InvalidInput(
                    f"{name} is {given.dtype}: only trained parameters are federated, so pass these alone, as in "
                    f"dict(model.named_parameters())."
                )
        return cls(tuple((name, tuple(given.shape)) for name, given in arrays.items()))

    @classmethod
    def decode(cls, described: bytes) -> Layout:
        """What ``described`` wrote; raises InvalidInput for anything else."""
        try:
            return cls(**_FORMAT.decode(described))
        except Malformed as problem:
            raise InvalidInput(f"the names and shapes of a model's parameters cannot be read: {problem}") from None

    @cached_property
    def size(self) -> int:
        """Coordinates in all."""
        return sum(prod(shape) for _, shape in self.shapes)

    @cached_property
    def described(self) -> bytes:
        """Canonical bytes: equal if and only if the layouts are."""
        return _FORMAT.encode(self)

    def is_described_by(self, described: bytes) -> bool:
        """Whether a server's model is this one: the same names in the same order, with the same shapes.

        peft's own state leaves out the name of an adapter, and a model's parameters have it: both count as the same.
        """
        if len(described) >= len(self.described):  # peft's names are shorter
            return described == self.described
        try:
            theirs = [(_without_adapter(name), shape) for name, shape in _FORMAT.decode(described)["shapes"]]
        except Malformed:
            return False
        ours = [(_without_adapter(name), shape) for name, shape in self.shapes]
        return ours == theirs and len({name for name, _ in ours}) == len(ours)

    def flat(self, values: Mapping[str, Any]) -> Model:
        """All of them in one vector of float32; they may be arrays or tensors."""
        vector = np.empty(self.size, MODEL)
        for name, here, _ in self._places():
            given = values[name]
            vector[here] = (given.detach().cpu().numpy() if isinstance(given, Tensor) else given).reshape(-1)
        return vector

    def arrays(self, vector: Model) -> dict[str, NDArray[np.float32]]:
        """The parameters by name, as copies."""
        return {name: vector[here].reshape(shape).copy() for name, here, shape in self._places()}

    @torch.no_grad()
    def write(self, vector: Model, model: nn.Module) -> None:
        """Put the vector into the model's parameters."""
        parameters = dict(model.named_parameters())
        for name, here, shape in self._places():
            # A writable copy: torch would otherwise warn that the vector could be changed behind its back.
            parameters[name].copy_(torch.from_numpy(vector[here].reshape(shape).copy()))

    def _places(self) -> list[tuple[str, slice, tuple[int, ...]]]:
        places, start = [], 0
        for name, shape in self.shapes:
            places.append((name, slice(start, start + prod(shape)), shape))
            start += prod(shape)
        return places


def _without_adapter(name: str) -> str:
    """As peft's ``get_peft_model_state_dict`` names it."""
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def _width(point: FixedPoint) -> int:
    return (point.update_bits + 7) // 8


def packed_size(point: FixedPoint) -> int:
    """The length of what ``pack_values`` packs."""
    return point.size * _width(point)


def pack_values(values: Whole, point: FixedPoint) -> bytes:
    """An update in three bytes a coordinate where 24 bits suffice."""
    width = _width(point)
    body = bytearray(values.size * width + SMALL.itemsize - width)
    # Whole coordinates, each over the upper bytes of the one before it: numpy assigns from the first to the last.
    np.ndarray(values.shape, SMALL, body, 0, (width,))[:] = values
    return bytes(memoryview(body)[: values.size * width])


def unpack_values(body: Body, point: FixedPoint, room: Room | None = None) -> Whole:
    """What ``pack_values`` packed, in memory of ``room``; raises InvalidInput for another length."""
    width = _width(point)
    if len(body) != packed_size(point):
        raise InvalidInput(f"an update of {point.size} coordinates has {packed_size(point)} bytes, got {len(body)}.")
    values = (room or Room()).vector(point.size, SMALL)
    # Each coordinate is read as the upper bytes of four, of which the lower are the end of the one before it; the shift
    # drops those and copies the sign. There is nothing before the first ones, so they are read alone.
    others = SMALL.itemsize - width
    alone = min(point.size, -(-others // width))
    for at in range(alone):
        values[at] = int.from_bytes(body[at * width : (at + 1) * width], "little", signed=True)
    if alone < point.size:
        whole = np.ndarray((point.size - alone,), SMALL, body, alone * width - others, (width,))
        np.right_shift(whole, 8 * others, out=values[alone:])
    return values


def raw(vector: Whole) -> memoryview:
    """A vector's bytes as they lie in memory."""
    return vector.view(np.uint8).data


def as_model(body: Body, size: int) -> Model:
    """A model vector as it travels."""
    if len(body) != size * MODEL.itemsize:
        raise InvalidInput(
            f"a model of {size} coordinates has {size * MODEL.itemsize} bytes, got {len(body)}: nothing was trained."
        )
    return np.frombuffer(body, MODEL)
