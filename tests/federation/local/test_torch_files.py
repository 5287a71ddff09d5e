"""A state dict that torch loads, and that is read here only if every byte of it is what was written of its model."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import pytest
import torch

from federation.hostile import pickled
from lrdp.errors import InvalidInput
from lrdp.federation.local.torch_files import read_torch, write_torch
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_files import KeptModel
from lrdp.integrity import Model, model_hash

SHAPES = (("in.weight", (3, 2)), ("out.weight", (3, 2)), ("scale", ()), ("none", (0, 5)), ("größe", (1, 300, 1)))
LAYOUT = Layout(SHAPES)
PICKLE, ABOUT = "archive/data.pkl", "archive/extra/lrdp.json"
IN, OUT = "archive/data/0", "archive/data/1"
BYTES = "6ca8cac7348c43ff2f5f1cd376575d321186bf93e9255e6fadbdea51d0d8ad02"

Records = dict[str, bytes]


def kept(layout: Layout = LAYOUT, vector: Model | None = None) -> KeptModel:
    given = np.linspace(-1.7, 2.3, layout.size, dtype=np.float32) if vector is None else vector
    return KeptModel(
        session="5e" * 32,
        nonce=None,
        round=37,
        tip="71" * 32,
        digest=model_hash(given).hex(),
        layout=layout,
        vector=given,
        version="0.7",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_torch(tmp_path / "model.pt", kept())
    return tmp_path / "model.pt"


def records(path: Path) -> Records:
    with ZipFile(path) as archive:
        return {each.filename: archive.read(each) for each in archive.infolist()}


def rewritten(path: Path, change: Callable[[Records], Records], compression: int = ZIP_STORED) -> None:
    """The same archive with other records, in which all lengths, places and checksums are right."""
    changed, stream = change(records(path)), BytesIO()
    with ZipFile(stream, "w") as archive:
        for name, data in changed.items():
            info = ZipInfo(name)
            info.create_system = 3
            free = -(stream.tell() + 34 + len(name)) % 64
            info.extra = b"FB" + bytes([free, 0]) + b"Z" * free
            archive.writestr(info, data, compression)
    path.write_bytes(stream.getvalue())


# --------------------------------------------------------------------------------------------------------------- torch
@pytest.mark.parametrize("how", [{}, {"mmap": True}, {"weights_only": False}, {"map_location": "cpu"}], ids=str)
def test_torch_loads_a_dict_of_tensors_like_those_that_it_saves_itself(path: Path, how: Any) -> None:
    found = torch.load(path, **{"weights_only": True, **how})
    own = {name: torch.from_numpy(values) for name, values in LAYOUT.arrays(kept().vector).items()}
    assert type(found) is dict
    assert list(found) == list(own)
    for name, tensor in found.items():
        assert torch.equal(tensor, own[name])
        assert (tensor.dtype, tensor.shape, tensor.requires_grad) == (torch.float32, own[name].shape, False)
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % 64 == 0


def test_a_module_takes_it_strictly_and_may_train_on(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(37, 301), torch.nn.ReLU(), torch.nn.Linear(301, 5))
    layout = Layout.of_model(model)
    vector = layout.flat(dict(model.named_parameters()))
    write_torch(tmp_path / "model.pt", kept(layout, vector))
    other = torch.nn.Sequential(torch.nn.Linear(37, 301), torch.nn.ReLU(), torch.nn.Linear(301, 5))
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True), strict=True)
    rows = torch.rand(7, 37)
    torch.testing.assert_close(other(rows), model(rows), rtol=0, atol=0)
    other(rows).sum().backward()


def test_the_pickle_says_what_torch_itself_writes(path: Path, tmp_path: Path) -> None:
    """Both make the same calls with the same arguments; torch's is longer by its memo."""
    own = {name: torch.zeros(shape) for name, shape in SHAPES}
    torch.save(own, tmp_path / "own.pt")
    assert len(calls(records(path)[PICKLE])) == 2 * len(SHAPES) + 1
    assert calls(records(path)[PICKLE]) == calls(records(tmp_path / "own.pt")["own/data.pkl"])


def calls(data: bytes) -> list[object]:
    """What a pickle asks for; none of it is done."""
    made: list[object] = []

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return partial(lambda *call: made.append(call), module, name)

        def persistent_load(self, given: Any) -> object:
            kind, storage, *rest = given
            return (kind, storage.args, *rest)

    made.append(list(Reader(BytesIO(data)).load()))
    return made


# ------------------------------------------------------------------------------------------------------------ read back
def test_what_was_written_is_read_to_the_bit(path: Path) -> None:
    found = read_torch(path)
    assert found.places == kept().places
    assert (found.session, found.version, found.layout) == ("5e" * 32, "0.7", LAYOUT)
    np.testing.assert_array_equal(found.vector, kept().vector)


def test_its_bytes_are_the_same_with_every_python_and_torch(path: Path) -> None:
    """They are compared when a file is read, perhaps years later: if this fails, what people have cannot be read."""
    assert hashlib.sha256(path.read_bytes()).hexdigest() == BYTES


@pytest.mark.one_in(7)
@pytest.mark.parametrize("begin", range(7))
def test_no_byte_can_be_another(path: Path, begin: int) -> None:
    data = path.read_bytes()
    for place in range(begin, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(InvalidInput):
            read_torch(path)


def test_no_end_can_be_missing_and_nothing_can_follow(path: Path) -> None:
    data = path.read_bytes()
    for other in (*(data[:length] for length in range(0, len(data), 37)), data + b"\0", b"PK" + data):
        path.write_bytes(other)
        with pytest.raises(InvalidInput):
            read_torch(path)


# -------------------------------------------------------------------------------------------------------------- forged
def weight(found: Records) -> Records:
    return {**found, IN: bytes(4) + found[IN][4:]}


def renamed(found: Records) -> Records:
    return {**found, PICKLE: found[PICKLE].replace(b"out.weight", b"our.weight")}


def names_swapped(found: Records) -> Records:
    swapped = (
        found[PICKLE].replace(b"X\x09\0\0\0in.weight", b"?").replace(b"X\x0a\0\0\0out.weight", b"X\x09\0\0\0in.weight")
    )
    return {**found, PICKLE: swapped.replace(b"?", b"X\x0a\0\0\0out.weight")}


def values_swapped(found: Records) -> Records:
    return {**found, IN: found[OUT], OUT: found[IN]}


def both_swapped(found: Records) -> Records:
    return values_swapped(names_swapped(found))


def order_swapped(found: Records) -> Records:
    return {name: found[name] for name in sorted(found, reverse=True)}


def transposed(found: Records) -> Records:
    return {**found, PICKLE: found[PICKLE].replace(b"(K\x03K\x02t(K\x02K\x01t", b"(K\x03K\x02t(K\x01K\x03t")}


def one_storage(found: Records) -> Records:
    return {**found, PICKLE: found[PICKLE].replace(b"X\x01\0\0\x001X", b"X\x01\0\0\x000X")}


def swapped_for_big_machines(found: Records) -> Records:
    return {**found, "archive/byteorder": b"big"}


def a_script(found: Records) -> Records:
    return {**found, "archive/constants.pkl": b"."}


def fewer(found: Records) -> Records:
    return {name: data for name, data in found.items() if name != OUT}


def longer(found: Records) -> Records:
    return {**found, IN: found[IN] + b"\0"}


def words(**changes: object) -> Callable[[Records], Records]:
    return lambda found: {**found, ABOUT: json.dumps({**json.loads(found[ABOUT]), **changes}).encode()}


def about(record: bytes) -> Callable[[Records], Records]:
    return lambda found: {**found, ABOUT: record}


HUGE = Layout((("in.weight", (1 << 20, 1 << 20)),)).described.hex()
NO_SIZE = Layout((("in.weight", (0, 1 << 62, 1 << 62)),)).described.hex()
CHANGED = "is damaged or was changed"
NO_LAYOUT = "names and shapes of a model's parameters cannot be read"
FORGED: dict[str, tuple[Callable[[Records], Records], str]] = {
    "one weight": (weight, CHANGED),
    "a name": (renamed, CHANGED),
    "two names": (names_swapped, CHANGED),
    "two values": (values_swapped, CHANGED),
    "two parameters": (both_swapped, CHANGED),
    "the order of records": (order_swapped, CHANGED),
    "strides": (transposed, CHANGED),
    "one storage for two": (one_storage, CHANGED),
    "the order of bytes": (swapped_for_big_machines, CHANGED),
    "what makes it a script": (a_script, CHANGED),
    "a record less": (fewer, CHANGED),
    "a byte more": (longer, CHANGED),
    "a layout for more than there is": (words(layout=HUGE), CHANGED),
    "a layout that numpy has no shape for": (words(layout=NO_SIZE), CHANGED),
    "no layout": (words(layout="no"), NO_LAYOUT),
    "a session that is none": (words(session="../.."), "does not say which round"),
    "a round that is none": (words(round="9" * 5000), "does not say which round"),
    "no metadata": (lambda found: {name: found[name] for name in found if name != ABOUT}, "does not say which round"),
    "a list": (about(b"[1]"), NO_LAYOUT),
    "no JSON": (about(b"\xff"), NO_LAYOUT),
    "deep JSON": (about(b"[" * 100_000), NO_LAYOUT),
    "a long number": (about(b"9" * 100_000), NO_LAYOUT),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_file_that_was_made_up_is_refused_in_one_sentence(path: Path, case: str) -> None:
    change, sentence = FORGED[case]
    before = path.read_bytes()
    rewritten(path, change)
    assert path.read_bytes() != before
    with pytest.raises(InvalidInput, match=sentence) as refused:
        read_torch(path)
    assert "\n" not in str(refused.value)


def test_rewriting_changes_nothing_but_the_records(path: Path) -> None:
    """The control of the test above."""
    before = path.read_bytes()
    rewritten(path, lambda found: found)
    assert path.read_bytes() == before


def test_words_that_no_terminal_should_see_are_not_shown(path: Path) -> None:
    for hidden in ("\ud800", "\x1b[2J", "0.7\n"):
        rewritten(path, words(lrdp=hidden))
        assert read_torch(path).version == ""


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_record_that_is_there_twice_shows_one_reader_one_model_and_another_another(path: Path) -> None:
    honest = records(path)[IN]
    rewritten(path, weight)
    with ZipFile(path, "a") as archive:
        archive.writestr(IN, honest)
    assert records(path)[IN] == honest
    with pytest.raises(InvalidInput, match="not, byte for byte, what lrdp model export writes"):
        read_torch(path)


def test_no_pickle_is_loaded(path: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    rewritten(path, lambda found: {**found, PICKLE: pickled(canary)})
    with pytest.raises(InvalidInput, match="not, byte for byte"):
        read_torch(path)
    assert not canary.exists()
    torch.save(kept(), tmp_path / "object.pt")
    path.write_bytes(pickled(canary))
    for other in (path, tmp_path / "object.pt"):
        with pytest.raises(InvalidInput, match=r"is not an archive of torch|does not say which round"):
            read_torch(other)
    assert not canary.exists()


def test_nothing_is_unpacked(path: Path) -> None:
    rewritten(path, lambda found: {**found, "archive/more": bytes(10_000_000)}, ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(InvalidInput, match=r"is not an archive of torch, or is damaged: ValueError\."):
        read_torch(path)


FOREIGN: dict[str, object] = {
    "torch.save's own": {"in.weight": torch.ones(3, 2)},
    "an ordered one": OrderedDict(weight=torch.ones(3)),
    "no dict": [torch.ones(3)],
    "no tensor": {"epoch": 7},
    "sparse": {"weight": torch.ones(3, 3).to_sparse()},
    "doubles": {"weight": torch.ones(3, dtype=torch.float64)},
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_torch_saved_itself_does_not_say_where_it_stands(tmp_path: Path, case: str) -> None:
    torch.save(FOREIGN[case], tmp_path / "own.pt")
    with pytest.raises(InvalidInput, match=r"lrdp model export writes that, and torch\.save does not"):
        read_torch(tmp_path / "own.pt")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_is_refused(path: Path, value: float) -> None:
    rewritten(path, lambda found: {**found, IN: np.float32(value).tobytes() + found[IN][4:]})
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        read_torch(path)
