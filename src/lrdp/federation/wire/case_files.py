"""A failed round as a file, for an auditor: what was published and signed, and at most one opened update.

Safetensors: the aggregate and the opened update are its vectors, everything else is its metadata. Reading a file runs
no code of its author.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from safetensors import SafetensorError
from safetensors.numpy import load, save

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.wire.model_files import metadata
from lrdp.integrity import FailedRound, decode_failed, encode_failed, failed_vectors

_MOST_BYTES: Final = 1 << 36
_PAPERS: Final = "lrdp-case"


def write_case(path: Path, failed: FailedRound) -> None:
    """Durable, readable by its owner alone: it may hold a noised update, which is for an auditor's eyes."""
    try:
        files.replace(path, save(failed_vectors(failed), {_PAPERS: encode_failed(failed).hex()}), files.OWNER_ONLY)
    except OSError as problem:
        raise InvalidInput(f"the case cannot be written to {path}: {problem.strerror}.") from None


def read_case(path: Path) -> FailedRound:
    """What ``write_case`` wrote; raises InvalidInput or NotVerified for any other file."""
    try:
        data = files.read(path, _MOST_BYTES)
        vectors, papers = load(data), bytes.fromhex(metadata(data)[_PAPERS])
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    except (SafetensorError, ValueError, KeyError) as problem:
        raise InvalidInput(f"{path} is not a case of a failed round, or is damaged: {problem}.") from None
    return decode_failed(papers, vectors)
