"""What came from a file, a server or a peer, as it is shown to people, on whatever screen they have."""

from __future__ import annotations

from typing import Final

_SPELLED: Final = {
    **{"ε": "epsilon", "δ": "delta", "σ": "sigma", "×": "x", "≥": ">=", "≤": "<=", "±": "+-", "·": "-", "…": "..."},
    **{"–": "-", "—": "-", "−": "-", "“": '"', "”": '"', "’": "'", "é": "e"},
}


def visible(text: str) -> str:
    r"""``text`` on one line, with all that a terminal would obey or a reader would not see written out.

    That is every control character, line ends too, and whatever turns, joins or hides letters: a name cannot colour,
    overwrite, reverse or continue what is printed around it. What is visible already is not changed.

    >>> print(visible("a\x1b[31mb\u202ec\nleft 8"))
    a\x1b[31mb\u202ec\nleft 8
    """
    return "".join(letter if letter.isprintable() else _written_out(letter) for letter in text)


def spelled(text: str, encoding: str) -> str:
    r"""``text`` in letters that ``encoding`` has: symbols as words where there are some, the rest written out.

    >>> print(spelled("ε = 8.0 at δ = 1e-05 of Zoë", "ascii"))
    epsilon = 8.0 at delta = 1e-05 of Zo\xeb
    """
    return text if _fits(text, encoding) else "".join(_letter(letter, encoding) for letter in text)


def _letter(letter: str, encoding: str) -> str:
    if _fits(letter, encoding):
        return letter
    return _SPELLED.get(letter) or _written_out(letter)


def _fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _written_out(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
