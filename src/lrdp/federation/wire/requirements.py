"""Whether what this room is built on is installed, and new enough."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from lrdp.errors import InvalidInput

LEAST_FLOWER: Final = (1, 41)
_FOR_MODELS: Final = ("torch", "safetensors")
_ADVICE: Final = "install it with pip install 'lrdp[flower]'"


def require_flower(version: Callable[[str], str] = metadata.version) -> None:
    """Raise InvalidInput, in one sentence, where Flower is missing or older than the message API used here."""
    least = ".".join(map(str, LEAST_FLOWER))
    try:
        found = version("flwr")
    except metadata.PackageNotFoundError:
        raise InvalidInput(f"Flower (flwr) is missing, and federations run on it: {_ADVICE}.") from None
    if _release(found) < LEAST_FLOWER:
        raise InvalidInput(f"Flower (flwr) must be {least} or newer, got {found}: {_ADVICE}.")


def require_torch() -> None:
    """Raise InvalidInput, in one sentence, where torch is missing."""
    if find_spec("torch") is None:
        raise InvalidInput(f"torch is missing, and clients train with it: {_ADVICE}.")


def require_model_files() -> None:
    """Raise InvalidInput, in one sentence, where what reads and writes models and cases is missing."""
    if missing := [name for name in _FOR_MODELS if find_spec(name) is None]:
        raise InvalidInput(
            f"{' and '.join(missing)} must be installed to read and write models: pip install 'lrdp[train]'; Flower is "
            f"not needed for it."
        )


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers: (1, 41, 0) of 1.41.0rc1."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
