"""The six tasks' data sets, from files in a folder.

``tests/experiments/data`` writes small ones in the same formats. Where they come from, and under which licences, is
in docs/evaluation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol
from zipfile import BadZipFile

import numpy as np

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.experiments.data.cifar import unpacked
from lrdp.experiments.data.records import Records


class Source(Protocol):
    """Where records come from."""

    @property
    def classes(self) -> int: ...

    def digest(self, folder: Path) -> str:
        """Different for different records."""

    def read(self, folder: Path) -> Records:
        """All of them."""


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Files in a folder."""

    names: tuple[str, ...]
    reader: Callable[..., Records]
    classes: int

    def digest(self, folder: Path) -> str:
        return digest_of([folder / name for name in self.names])

    def read(self, folder: Path) -> Records:
        return self.reader(*(found(folder / name) for name in self.names))


def found(path: Path) -> Path:
    """The path of a file that is there.

    Raises:
        InvalidInput: naming the file, the folder, and how to name another one.
    """
    if not path.is_file():
        raise InvalidInput(
            f"the data file {path.name} is not in {files.followed(path.parent)}: nothing was run; name the folder that "
            f"has it with --data-dir or LRDP_DATA_DIR."
        )
    return path


def digest_of(paths: Sequence[Path]) -> str:
    """Of all that the files hold, in this order."""
    whole = sha256()
    for path in paths:
        try:
            with files.opened(found(path)) as file:
                whole.update(_file_digest(file))
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be read ({problem.strerror}): nothing was run.") from None
    return whole.hexdigest()


def _file_digest(file: Any) -> bytes:
    from hashlib import file_digest

    return file_digest(file, "sha256").digest()


# ------------------------------------------------------------------------------------------------------------- formats
def arrays(path: Path, names: Sequence[str]) -> list[np.ndarray[Any, Any]]:
    """Arrays of an npz file, by name.

    Raises:
        InvalidInput: naming the file, where it is damaged or lacks one.
    """
    try:
        # Opened here: numpy leaves a file open that it cannot read.
        with files.opened(path) as file, np.load(file, allow_pickle=False) as opened:
            return [opened[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, MemoryError) as problem:
        raise _damaged(path, problem) from None


def columns(path: Path, names: Sequence[str]) -> list[list[Any]]:
    """Columns of a parquet file, by name.

    Raises:
        InvalidInput: naming the file, where it is damaged or lacks one.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table

    try:
        table = read_table(path, columns=list(names))
        return [table.column(name).to_pylist() for name in names]
    except (OSError, KeyError, ArrowException) as problem:
        raise _damaged(path, problem) from None


def _damaged(path: Path, problem: Exception) -> InvalidInput:
    return InvalidInput(
        f"{path} is damaged or of another form ({type(problem).__name__}: {problem}): nothing was run; fetch it again."
    )


# --------------------------------------------------------------------------------------------------------------- tasks
def _mnist(path: Path) -> Records:
    return _halves(*arrays(path, ("x_train", "y_train", "x_test", "y_test")))


def _emnist(path: Path) -> Records:
    *halves, merged = arrays(path, ("x_train", "y_train", "x_test", "y_test", "map62to47"))
    halves[1], halves[3] = merged[halves[1]], merged[halves[3]]
    return _halves(*halves)


def _halves(inputs: Any, labels: Any, test_inputs: Any, test_labels: Any) -> Records:
    both = np.concatenate([labels, test_labels]).astype(np.int64)
    return Records(inputs=np.concatenate([inputs, test_inputs]), labels=both, train=len(labels))


def _cifar(*paths: Path) -> Records:
    *train, test = [arrays(path, ("res", "y")) for path in paths]
    pictures, labels = (np.concatenate(each) for each in zip(*train, strict=True))
    return _halves(unpacked(pictures), labels, unpacked(test[0]), test[1])


def _sst2(path: Path) -> Records:
    split, sentences, labels = columns(path, ("split", "sentence", "label"))
    return _by_split(split, sentences, labels)


def _qnli(path: Path) -> Records:
    split, questions, sentences, labels = columns(path, ("split", "question", "sentence", "label"))
    return _by_split(split, list(zip(questions, sentences, strict=True)), labels)


def _qqp(path: Path) -> Records:
    split, one, other, labels = columns(path, ("split", "question1", "question2", "label"))
    return _by_split(split, list(zip(one, other, strict=True)), labels)


def _by_split(split: list[str], inputs: list[Any], labels: list[int]) -> Records:
    """Those of ``train`` or ``train_part`` train; all others test (of SST-2, dev and test)."""
    order = sorted(range(len(split)), key=lambda number: not split[number].startswith("train"))
    train = sum(each.startswith("train") for each in split)
    return Records(inputs=[inputs[i] for i in order], labels=np.array([labels[i] for i in order]), train=train)


TASKS: Final[Mapping[str, FileSource]] = {
    "mnist": FileSource(names=("mnist.npz",), reader=_mnist, classes=10),
    "emnist": FileSource(names=("emnist_byclass116k.npz",), reader=_emnist, classes=47),
    "cifar10": FileSource(
        names=(*(f"cifar10_batch{part}.npz" for part in range(1, 6)), "cifar10_test.npz"), reader=_cifar, classes=10
    ),
    "sst2": FileSource(names=("sst2.parquet",), reader=_sst2, classes=2),
    "qnli": FileSource(names=("qnli_partial.parquet",), reader=_qnli, classes=2),
    "qqp": FileSource(names=("qqp_partial.parquet",), reader=_qqp, classes=2),
}
"""Each task's files, and how they are read."""
