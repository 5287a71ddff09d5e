"""One value, one text: how entries write numbers, words and mechanisms.

Floats are written in hexadecimal, so what is read back is the same bit for bit; words are percent-encoded, so no word
can hold the tab that separates fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from lrdp import codec
from lrdp.accounting import MECHANISMS, History, Mechanism
from lrdp.errors import InvalidInput

LONGEST_LINE: Final = 1 << 20
"""Of an entry or a report, in bytes: a policy, percent-encoded, is the longest thing that one holds."""
_LONGEST_TERM: Final = 1024
_LONGEST_FLOAT: Final = 64
_MOST_TERMS: Final = 1 << 14
_WORD: Final = codec.word(LONGEST_LINE)


def within(text: str, most: int) -> str:
    """``text`` if it is short: what is decoded may be kept, and its parts cost more than its letters."""
    if len(text) > most:
        raise InvalidInput(f"{len(text)} characters where {most} are the most.")
    return text


def encode_float(value: float) -> str:
    """Exactly, in hexadecimal; what is not a number is written as infinity, which no budget admits."""
    return codec.HEXADECIMAL.write(value)


def decode_float(text: str) -> float:
    """The float that :func:`encode_float` wrote."""
    try:
        return float.fromhex(within(text, _LONGEST_FLOAT))
    except OverflowError:
        raise InvalidInput(f"{text[:40]!r} is beyond every float.") from None


def encode_word(text: str) -> str:
    """Any text, without tabs or line ends."""
    return _WORD.write(text)


def decode_word(text: str) -> str:
    """The text that :func:`encode_word` wrote."""
    return unquote_to_bytes(within(text, LONGEST_LINE)).decode()


_NUMBERS: Final[dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]]] = {
    float: (encode_float, decode_float),
    int: (codec.DIGITS.write, int),
}


def encode_mechanism(mechanism: Mechanism) -> str:
    """As in ``fixed-size batch_size=128 dataset_size=5000 noise_multiplier=0x1.3333333333333p+0``.

    >>> from lrdp.accounting import Gaussian
    >>> encode_mechanism(Gaussian(noise_multiplier=1.2))
    'gaussian noise_multiplier=0x1.3333333333333p+0'
    """
    if MECHANISMS.get(mechanism.name) is not type(mechanism):
        raise InvalidInput(
            f"mechanism must be one of {', '.join(MECHANISMS)}, got {type(mechanism).__name__}: the ledger could not "
            f"read back what it was charged for."
        )
    values = [
        f"{field}={_NUMBERS[number][0](getattr(mechanism, field))}" for field, number in mechanism.numbers.items()
    ]
    return " ".join([mechanism.name, *sorted(values)])


@lru_cache(maxsize=4096)
def decode_mechanism(text: str) -> Mechanism:
    """The mechanism that :func:`encode_mechanism` wrote."""
    name, *pairs = within(text, _LONGEST_TERM).split(" ")
    if name not in MECHANISMS:
        raise InvalidInput(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name[:40]!r}.")
    kind = MECHANISMS[name]
    values = dict(pair.split("=", 1) for pair in pairs)
    if values.keys() != kind.numbers.keys():
        raise InvalidInput(f"a {name} mechanism has the fields {sorted(kind.numbers)}, got {sorted(values)}.")
    try:
        return kind(**{field: _NUMBERS[kind.numbers[field]][1](text) for field, text in values.items()})
    except OverflowError:
        raise InvalidInput(f"a {name} mechanism has a number beyond every limit.") from None


class Spelling(NamedTuple):
    """How one field of a line is written, and how a column of them is read, one for each line."""

    write: Callable[[Any], str]
    read: Callable[[Sequence[str]], Iterable[Any]]


def _spelled(write: Callable[[Any], str], read: Callable[[str], Any]) -> Spelling:
    return Spelling(write, partial(_decode_each, read))


def _decode_each(read: Callable[[str], Any], column: Sequence[str]) -> Iterable[Any]:
    """What is the same in every line, as most of a run's numbers are, is read once."""
    first = column[0]
    alike = first == column[-1] and column.count(first) == len(column)
    return repeat(read(first), len(column)) if alike else map(read, column)


def _decode_floats(column: Sequence[str]) -> Iterable[float]:
    within(max(column, key=len), _LONGEST_FLOAT)
    return _decode_each(float.fromhex, column)


def _decode_words(column: Sequence[str]) -> Sequence[str]:
    """Most are written as they are, and none is longer than its line."""
    return list(map(decode_word, column)) if "%" in "".join(column) else column


def one_of(kind: type[Enum]) -> Spelling:
    """A member of an enumeration, by its value."""
    return _spelled(lambda member: str(member.value), kind)


WHOLE: Final = _spelled(codec.DIGITS.write, int)
FLOAT: Final = Spelling(encode_float, _decode_floats)
WORD: Final = Spelling(encode_word, _decode_words)
MECHANISM: Final = _spelled(encode_mechanism, decode_mechanism)


def encode_history(history: History) -> str:
    """``steps*mechanism`` of each, joined by semicolons, in the order of their texts."""
    return ";".join(sorted(f"{steps}*{encode_mechanism(mechanism)}" for mechanism, steps in history.items()))


@lru_cache(maxsize=4096)
def _decode_term(text: str) -> tuple[Mechanism, int]:
    steps, mechanism = within(text, _LONGEST_TERM).split("*", 1)
    return decode_mechanism(mechanism), int(steps)


def decode_history(text: str) -> dict[Mechanism, int]:
    """The history that :func:`encode_history` wrote."""
    if text.count(";") >= _MOST_TERMS:
        raise InvalidInput(f"a history of more than {_MOST_TERMS} mechanisms: it is not read.")
    terms = [_decode_term(term) for term in within(text, LONGEST_LINE).split(";")] if text else []
    history = dict(terms)
    if len(history) != len(terms):
        raise InvalidInput("a history names each mechanism once: of two numbers of steps one would be lost.")
    return history
