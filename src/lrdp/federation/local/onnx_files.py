"""A model as an ONNX file: the weights that a receipt proves, in the graph that the task's own code has.

The metadata says which round of which session it comes from, and the weights keep their names, so `lrdp model verify`
can hash them again. Receipt and session prove the weights under their names; the graph is that of whoever exported it.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from lrdp import files
from lrdp.errors import InvalidInput, Unsupported
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_averages import understood
from lrdp.federation.wire.model_files import AnyModel, layout_in, metadata_of, tensors_from

_ROWS: Final = 3  # not 0, 1 or 2, which a graph may take for constants
_MOST_BYTES: Final = 2**31 - 1
_LONGEST_INPUT: Final = 80
_FORM: Final = re.compile(r"(?:([a-z0-9]+):)?(\d+(?:x\d+)*)?")
_NEEDED: Final = ("onnx", "onnxscript")


@dataclass(frozen=True)
class ModelInput:
    """The shape and type of one input of a model, without its first dimension: ``4``, ``1x28x28`` or ``int64:128``."""

    shape: tuple[int, ...]
    kind: torch.dtype

    @classmethod
    def read(cls, text: str) -> ModelInput:
        """As on the command line."""
        found = _FORM.fullmatch(text)
        kind = getattr(torch, found[1] or "float32", None) if found else None
        if found is None or not isinstance(kind, torch.dtype) or not 0 < len(text) < _LONGEST_INPUT:
            raise InvalidInput(
                f"--input must be the form of one record's input, as in 4, 1x28x28 or int64:128, got {text[:80]!r}."
            )
        return cls(tuple(int(size) for size in (found[2] or "").split("x") if size), kind)

    def example(self) -> Tensor:
        """Nobody's record: a graph is traced with zeros."""
        return torch.zeros(_ROWS, *self.shape, dtype=self.kind)


def write_onnx(path: Path, kept: AnyModel, model: nn.Module, inputs: Sequence[ModelInput]) -> None:
    """Write ``model`` with these weights, in eval mode, for any number of rows; raises Unsupported if ONNX has no way.

    Guarantees: no record is looked at, and the file names no file or folder of this machine.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise InvalidInput(f"{' and '.join(missing)} must be installed: pip install 'lrdp[onnx]'; nothing was written.")
    layout = Layout.of_model(model)
    if not layout.is_described_by(kept.layout.described):
        raise InvalidInput("the task's model is not the file's: names, order or shapes of parameters differ.")
    layout.write(kept.vector, model)
    proto = _graph(model.eval(), inputs)
    _strip(proto)
    for name, value in metadata_of(kept).items():
        proto.metadata_props.add(key=name, value=value)
    if _differs(proto, kept):
        raise Unsupported("the graph changed or renamed the weights on its way to ONNX, so no receipt could prove it.")
    data = proto.SerializeToString() if proto.ByteSize() <= _MOST_BYTES else b""
    if not data:
        raise Unsupported(f"the model has {proto.ByteSize()} bytes, and one file of ONNX at most {_MOST_BYTES}.")
    try:
        files.write_new(path, data, files.OWNER_ONLY)
    except OSError as problem:
        raise InvalidInput(f"the model cannot be written to {path}: {problem.strerror}.") from None


def _graph(model: nn.Module, inputs: Sequence[ModelInput]) -> Any:
    import onnx

    rows = torch.export.Dim("rows")
    try:
        examples = tuple(each.example() for each in inputs)
        with torch.no_grad(), _quiet():
            model(*examples)
            made = torch.onnx.export(
                model, examples, dynamo=True, dynamic_shapes=tuple({0: rows} for _ in inputs), optimize=False,
                verbose=False,
            )  # fmt: skip
            proto = made.model_proto if made is not None else None
            onnx.checker.check_model(proto)
    except Exception as problem:
        first = str(problem).strip().partition("\n")[0]
        raise Unsupported(
            f"the model cannot be exported to ONNX with inputs of {', '.join(str(each.shape) for each in inputs)} "
            f"({type(problem).__name__}: {first[:300]}): nothing was written; export to .pt and use torch.onnx itself."
        ) from problem
    return proto


@contextmanager
def _quiet() -> Iterator[None]:
    """What the exporter says about other packages is for its developers."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _strip(proto: Any) -> None:
    """Take out where each node came from, in files of this machine."""
    for part in (*proto.graph.node, *proto.graph.value_info, *proto.graph.initializer, *proto.graph.input, proto.graph):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _arrays(proto: Any) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    return {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}


def _differs(proto: Any, kept: AnyModel) -> bool:
    """Whether the weights in a graph differ from those that were put in."""
    found = _arrays(proto)
    return any(
        name not in found or not np.array_equal(found[name].view(np.uint32), values.view(np.uint32))
        for name, values in kept.layout.arrays(kept.vector).items()
    )


def _require_own_weights(proto: Any, path: Path) -> None:
    """Refuse weights that lie in other files, or twice: whoever runs the model may find others than are hashed here."""
    from onnx import TensorProto, checker

    weights = proto.graph.initializer
    if any(each.data_location == TensorProto.EXTERNAL or each.external_data for each in weights):
        raise InvalidInput(f"{path} has its weights in other files, which may change: lrdp model export writes one.")
    if len({each.name for each in weights}) < len(weights):
        raise InvalidInput(f"{path} has two weights of one name: which of them counts is for each runtime to say.")
    for each in weights:
        checker.check_tensor(each)  # one value each: it could be written in two ways


def read_onnx(path: Path) -> AnyModel:
    """The weights of a file that ``write_onnx`` wrote, and where they stand; raises InvalidInput for any other."""
    if find_spec("onnx") is None:
        raise InvalidInput(f"onnx is missing, so {path} cannot be read: pip install 'lrdp[onnx]'.")
    import onnx

    try:
        proto = onnx.load_model_from_string(files.read(path, _MOST_BYTES))
        _require_own_weights(proto, path)
        arrays = _arrays(proto)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    except InvalidInput:
        raise
    except Exception as problem:
        raise InvalidInput(f"{path} is not an ONNX file, or is damaged: {type(problem).__name__}.") from problem
    about = {each.key: each.value for each in proto.metadata_props}
    trained = dict(layout_in(about).shapes)  # frozen weights and buffers are in the graph as well
    tensors = tensors_from(path, {name: array for name, array in arrays.items() if name in trained}, about)
    return understood(tensors, path)
