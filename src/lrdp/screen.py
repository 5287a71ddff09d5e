"""What came from a file, a server or a peer, as it is shown to people."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""``text`` on one line, with all that a terminal would obey or a reader would not see written out.

    That is every control character, line ends too, and whatever turns, joins or hides letters: a name cannot colour,
    overwrite, reverse or continue what is printed around it. What is visible already is not changed.

    >>> print(visible("a\x1b[31mb\u202ec\nleft 8"))
    a\x1b[31mb\u202ec\nleft 8
    """
    return "".join(letter if letter.isprintable() else _written_out(letter) for letter in text)


def _written_out(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
