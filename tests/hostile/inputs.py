"""Bytes that are cheap to send and were dear to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hostile.decoders import Decoder, fleet_with
from lrdp.codec import pack

MANY = 16 << 20


def _nested(size: int) -> bytes:
    """A part in a part in a part."""
    data = bytes(size - 4 * 1000)
    for _ in range(1000):
        data = pack(data)
    return data[:size]


def _repeated(text: bytes) -> Callable[[int], bytes]:
    return lambda size: (text * (size // len(text) + 1))[:size]


def _after(start: bytes, rest: bytes) -> Callable[[int], bytes]:
    return lambda size: (start + rest * (size // len(rest) + 1))[:size]


COMMON: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "ones": _repeated(b"\xff"),
    "empty parts": _after(b"\x12lrdp-federation/v1\x04work", b"\0"),
    "tiny parts": _repeated(b"\x01a"),
    "one giant length": _after(b"\x80\xff\xff\xfc", b"\0"),
    "nested lengths": _nested,
    "a number without end": _after(b"\x01", b"\xff"),
    "newlines": _repeated(b"\n"),
    "tabs": _repeated(b"\t"),
    "fields of an entry": _after(b"RESERVED", b"\t1"),
    "terms": _repeated(b"1*;"),
    "words": _repeated(b"a "),
    "pairs": _repeated(b"a="),
    "percents": _repeated(b"%41"),
    "digits": _repeated(b"1"),
    "hexadecimal digits": _after(b"0x", b"f"),
    "brackets": _repeated(b"["),
    "many lists": _after(b"[", b"[],"),
    "a number of JSON": _after(b'{"version": ', b"9"),
    "a number of TOML": _after(b"[budget]\nepsilon = ", b"9"),
    "a long key of TOML": _after(b"a", b".a"),
    "tables of TOML": _repeated(b"{a="),
    "a long key file": _after(b"Name: a\n-----BEGIN PRIVATE KEY-----\n", b"MC4CAQAwBQYDK2VwBCIE\n"),
    "a bomb": lambda size: fleet_with((size,), compressed=True).ljust(size, b"\0"),
    "a zip of nothing": _after(b"", b"PK\5\6" + bytes(18)),
    "SQLite's first words": _after(b"SQLite format 3\0", b"\x10"),
    "an export's first words": _after(b"lrdp-ledger-export-1\n", b"\t\n"),
    "a guard's first words": _after(b"lrdp-guard/1\n\x01" + (8 << 20).to_bytes(8, "big"), b"\0"),
}


def own(decoder: Decoder, size: int) -> Iterator[tuple[str, bytes]]:
    """Made of what the decoder takes: it again and again, or with something after it, or cut off."""
    sample = decoder.sample or b"\0"
    yield "its own, again and again", (sample * (size // len(sample) + 1))[:size]
    yield "its own, and zeros", sample.ljust(size, b"\0")
    yield "its own, and spaces", sample.ljust(size, b" ")
    yield "half of its own, and digits", sample[: len(sample) // 2].ljust(size, b"1")
