"""A model as torch reads it: a state dict for ``torch.load``, and in the same archive where it stands in its session.

Nothing is unpickled here. A state dict's pickle says names and shapes, which the metadata says as well: so a file is
written again, from its metadata and its values, and is read only if it is the same to the last byte. Then torch finds
in it what was hashed here, however it reads archives and pickles; and what else a pickle could do, it does not.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO, Final
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_averages import understood
from lrdp.federation.wire.model_files import AnyModel, layout_in, metadata_of, tensors_from
from lrdp.integrity import MODEL, Model

_MOST_BYTES: Final = 1 << 36
_ABOUT: Final = "archive/extra/lrdp.json"  # torch's own place for what is not its own
_VALUES: Final = "archive/data/{}"
_HEADER: Final = 30  # bytes of a record's, before its name
_EXTRA: Final = struct.Struct("<2sH")
_ALIGNMENT: Final = 64  # as in torch's own archives, so that torch.load(mmap=True) finds tensors where it wants them
_UNIX: Final = 3  # zipfile's own choice depends on the system, and with it the bytes would


# ------------------------------------------------------------------------------------------------------------- writing
def write_torch(path: Path, kept: AnyModel) -> None:
    """A new file, for ``torch.load(path, weights_only=True)`` and for ``read_torch``."""
    try:
        with files.creating(path, files.OWNER_ONLY) as file:
            _write(file, json.dumps(metadata_of(kept)).encode(), kept.layout, kept.vector)
    except OSError as problem:
        raise InvalidInput(f"the model cannot be written to {path}: {problem.strerror}.") from None


def _write(file: BinaryIO, about: bytes, layout: Layout, vector: Model) -> None:
    with ZipFile(file, "w") as archive:
        for name, data in _contents(about, layout, vector):
            record = ZipInfo(name)
            record.create_system = _UNIX
            missing = -(file.tell() + _HEADER + len(name) + _EXTRA.size) % _ALIGNMENT
            record.extra = _EXTRA.pack(b"FB", missing) + b"Z" * missing  # torch's mark, and what it fills with
            archive.writestr(record, data)


def _contents(about: bytes, layout: Layout, vector: Model) -> Iterator[tuple[str, bytes]]:
    """The records, in their order."""
    yield "archive/data.pkl", _state_dict(layout)
    yield "archive/byteorder", b"little"
    yield "archive/version", b"3\n"
    yield _ABOUT, about
    for key, values in enumerate(layout.arrays(vector).values()):
        yield _VALUES.format(key), values.tobytes()


def _state_dict(layout: Layout) -> bytes:
    """The pickle of a dict of contiguous tensors, opcode by opcode as torch.save has them, but without its memo."""
    tensors = (_tensor(key, name, shape) for key, (name, shape) in enumerate(layout.shapes))
    return b"\x80\x02}(" + b"".join(tensors) + b"u."


def _tensor(key: int, name: str, shape: tuple[int, ...]) -> bytes:
    strides = [prod(max(1, size) for size in shape[axis + 1 :]) for axis in range(len(shape))]
    storage = _text("storage") + b"ctorch\nFloatStorage\n" + _text(str(key)) + _text("cpu") + _number(prod(shape))
    parts = b"(" + storage + b"tQ" + _number(0) + _tuple(shape) + _tuple(strides) + b"\x89ccollections\nOrderedDict\n)R"
    return _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + parts + b"tR"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(number: int) -> bytes:
    return pickle.dumps(number, protocol=2)[2:-1]  # without the protocol and the end


def _tuple(numbers: Iterable[int]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


# ------------------------------------------------------------------------------------------------------------- reading
def read_torch(path: Path) -> AnyModel:
    """What ``write_torch`` wrote; raises InvalidInput for any other file, and for a model that is not what it says.

    Guarantees: torch.load gives the values that were hashed, under the names of the file's own layout.
    """
    data, records = _opened(path)
    if _ABOUT not in records:
        raise InvalidInput(
            f"{path} does not say which round of which session it is of: lrdp model export writes that, and torch.save "
            f"does not."
        )
    about, again = _metadata(records[_ABOUT]), io.BytesIO()
    tensors = tensors_from(path, _arrays(records, layout_in(about)), about)
    _write(again, records[_ABOUT], tensors.layout, tensors.vector)
    if again.getvalue() != data:
        raise InvalidInput(
            f"{path} is damaged or was changed: it is not, byte for byte, what lrdp model export writes of its model, "
            f"and torch.load could give another."
        )
    return understood(tensors, path)


def _opened(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """The file, and its records."""
    try:
        data = files.read(path, _MOST_BYTES)
        with ZipFile(io.BytesIO(data)) as archive:
            return data, _records(archive, len(data))
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    except MemoryError:
        raise InvalidInput(f"{path} is larger than this machine has memory for.") from None
    except Exception as problem:  # zipfile trusts lengths and offsets, so anything may come of them
        raise InvalidInput(f"{path} is not an archive of torch, or is damaged: {type(problem).__name__}.") from problem


def _records(archive: ZipFile, size: int) -> dict[str, bytes]:
    listed = archive.infolist()
    if any(each.compress_type != ZIP_STORED for each in listed) or sum(each.file_size for each in listed) > size:
        raise ValueError("its records would take more memory than the file")
    return {each.filename: archive.read(each) for each in listed}


def _metadata(record: bytes) -> dict[str, str]:
    """What ``write_torch`` says of a model, in words that can be shown; of any other bytes nothing."""
    try:
        said = {str(name): str(value) for name, value in json.loads(record).items()}
        return {name: value for name, value in said.items() if value.isprintable()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _arrays(records: Mapping[str, bytes], layout: Layout) -> dict[str, np.ndarray]:
    """The values of a layout's parameters; where there are others none, which agree with no layout."""
    try:
        return {
            name: np.frombuffer(records[_VALUES.format(key)], MODEL).reshape(shape)
            for key, (name, shape) in enumerate(layout.shapes)
        }
    except (KeyError, ValueError, OverflowError):
        return {}
