"""TOML within limits: Python's parser recurses, and a dotted key costs it the square of its length in memory."""

from __future__ import annotations

import tomllib
from typing import Any, Final

from lrdp.errors import InvalidInput

MOST_TOML_CHARACTERS: Final = 1 << 16
"""What a policy or another settings file may have."""
_LONGEST_LINE: Final = 4096
_MOST_DOTS: Final = 32


def read_toml(text: str, source: str) -> dict[str, Any]:
    r"""The tables of a text.

    >>> read_toml("[budget]\nepsilon = 8.0", source="policy.toml")
    {'budget': {'epsilon': 8.0}}

    Raises:
        InvalidInput: naming ``source``, for what is not TOML, or is too large or too deep to be somebody's rules.
    """
    if len(text) > MOST_TOML_CHARACTERS:
        raise InvalidInput(
            f"{source} has {len(text)} characters, at most {MOST_TOML_CHARACTERS} are read: nothing was done."
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LONGEST_LINE or line.count(".") > _MOST_DOTS:
            raise InvalidInput(
                f"{source} line {number} has more than {_LONGEST_LINE} characters or {_MOST_DOTS} dots: cut it in two."
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(f"{source} is not valid TOML: {problem}.") from None
    except ValueError:
        raise InvalidInput(f"{source} is not valid TOML: a number has thousands of digits.") from None
    except RecursionError:
        raise InvalidInput(f"{source} is not valid TOML: its lists or tables are nested too deep.") from None
