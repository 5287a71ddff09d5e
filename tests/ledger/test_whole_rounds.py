"""Rounds read by columns against the same entries folded one by one: the same books, or the same refusal."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.worlds import STEP, policy
from lrdp.errors import LedgerDamaged, LedgerUnwritable
from lrdp.ledger import Refusal, SigningKey, events, records
from lrdp.ledger import whole_rounds as rounds
from lrdp.ledger.books import Books
from lrdp.ledger.chain import GENESIS, link
from lrdp.ledger.charges import Charges
from lrdp.ledger.choice import SPREAD
from lrdp.ledger.whole_rounds import Entry

RULES, KEY = policy(), SigningKey.generate().public
BEGINNING: list[events.Event] = [
    records.opening(RULES, KEY, KEY, SPREAD, 7),
    events.PolicySet(7, RULES.digest, RULES.text),
]
RUNS = ["run-1", "Über\tlauf", "%"]
CHARGE = events.Reserved(8, "", "run-1", 1, STEP, 39, 1.0, "rdp lrdp/0.1.0", 1.25, 1.1)


def chained(lines: list[bytes]) -> list[Entry]:
    """The lines with their right hashes."""
    return list(zip(lines, list(accumulate(lines, link, initial=GENESIS))[1:], strict=True))


def charge(seq: int, **terms: Any) -> events.Reserved:
    return CHARGE._replace(key=sha256(str(terms.get("round", seq)).encode()).hexdigest(), **terms)


def rounds_after(seq: int, count: int, **terms: Any) -> list[events.Event]:
    made: list[events.Event] = []
    for at in range(seq + 1, seq + 1 + 3 * count, 3):
        made += [charge(at, **terms), events.ReplyReady(8, at, KEY, 36_900), events.Sent(8, at)]
    return made


def honest(rounds: int = 9) -> list[bytes]:
    return [events.encode(event) for event in BEGINNING + rounds_after(2, rounds)]


@st.composite
def ledgers(draw: st.DrawFn) -> list[bytes]:
    """Honest ledgers: mostly whole rounds of several runs, now and then a refusal or rounds that overlap."""
    made: list[events.Event] = list(BEGINNING)
    for _ in range(draw(st.integers(1, 6))):
        seq = len(made)
        match draw(st.sampled_from(["rounds", "rounds", "rounds", "rounds", "refused", "lost", "overlapping"])):
            case "rounds":
                terms = {"run": st.sampled_from(RUNS), "round": st.integers(0, 3), "steps": st.integers(1, 3)}
                terms |= {"clip_norm": st.sampled_from([0.5, 1.0]), "at": st.sampled_from([8, 8, 8, 5])}
                chosen = draw(st.fixed_dictionaries({}, optional=terms))
                made += rounds_after(seq, draw(st.integers(3, 9)), **chosen)
            case "refused":
                made.append(events.Declined(8, KEY, "run-1", 1, Refusal.NOISE, "too little"))
            case "lost":
                made.append(charge(seq))
            case _:
                made += [charge(seq), charge(seq + 1), events.ReplyReady(8, seq + 1, KEY, 3), events.Sent(8, seq + 1)]
    return [events.encode(event) for event in made]


ODD = [b"", b"x", b"\t", b"\n", b"\t\n\t", b"\xff", b"%ff", b"1", b" 3", b"0_3", b"-1", b"nan", b"0x1p9999", b"9" * 20]
ODD += [b"RESERVED", b"READY", b"SENT", b"SENT\t8", b"a\tb", b"RESERVED\t8\t\n", "٣".encode()]


def with_border(lines: list[bytes], at: int) -> list[bytes]:
    """One field moved from a line to the next."""
    first, _, moved = lines[at - 1].rpartition(b"\t")
    return [*lines[: at - 1], first, moved + b"\t" + lines[at], *lines[at + 1 :]]


LINES: list[Callable[[list[bytes], int], list[bytes]]] = [
    lambda lines, at: [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]],
    lambda lines, at: [*lines[:at], lines[at - 1], *lines[at:]],
    lambda lines, at: [*lines[:at], *lines[at + 1 :]],
    with_border,
]
FIELDS: list[Callable[[list[bytes], int, bytes], list[bytes]]] = [
    lambda fields, at, odd: [*fields[:at], odd, *fields[at + 1 :]],
    lambda fields, at, odd: [*fields[:at], odd, *fields[at:]],
    lambda fields, at, _: fields[:at] + fields[at + 1 :],
]


@st.composite
def rewritten(draw: st.DrawFn) -> list[Entry]:
    """Ledgers that someone changed and chained anew: only reading each line in full can tell."""
    lines = draw(ledgers())
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(1, len(lines) - 1))
        if draw(st.booleans()):
            lines = draw(st.sampled_from(LINES))(lines, at)
        else:
            fields = lines[at].split(b"\t")
            change, place = draw(st.sampled_from(FIELDS)), draw(st.integers(0, len(fields) - 1))
            lines[at] = b"\t".join(change(fields, place, draw(st.sampled_from(ODD))))
    return chained(lines)


@st.composite
def damaged(draw: st.DrawFn) -> list[Any]:
    """Ledgers in which one value is not what was written."""
    entries: list[Any] = list(draw(rewritten()))
    at, part = draw(st.integers(0, len(entries) - 1)), draw(st.integers(0, 1))
    pair = list(entries[at])
    flipped = bytes([(pair[part] or b"x")[0] ^ draw(st.integers(1, 255))]) + pair[part][1:]
    pair[part] = draw(st.sampled_from([flipped, b"", None, 5, 2.5]))
    entries[at] = tuple(pair)
    return entries


def everything(books: Books) -> list[object]:
    tallies = [
        (run, list(tally.steps.history().items()), tally.charges) for run, tally in books._catalogue.runs.items()
    ]
    known = [list(books.states.items()), list(books.replies.items()), list(books.answered.items()), books.clip_norms]
    chain = [books.seq, books.digest, books.latest_clock, books.clock_fell_at, books.steps, books.steps_at]
    rest = [list(books.history.items()), books._unanswered, books.newest_charge, books.refusals.by_reason]
    return [tallies, *known, *chain, *rest]


def outcome(fold: Callable[[Books], None]) -> object:
    books = Books()
    try:
        fold(books)
    except LedgerDamaged as problem:
        return type(problem), str(problem)
    return everything(books)


def as_read(entries: list[Entry]) -> object:
    return outcome(lambda books: books.extend(entries))


def one_by_one(entries: list[Entry]) -> object:
    return outcome(lambda books: books._fold_each(entries))


@given(entries=st.one_of(ledgers().map(chained), rewritten(), damaged()), batch=st.sampled_from([1024, 40]))
def test_columns_and_single_entries_say_the_same(entries: list[Entry], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lrdp.ledger.books._BATCH", batch)
        assert as_read(entries) == one_by_one(entries)


def test_whole_rounds_are_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above compares a thing with itself."""
    added, add = [], Charges._add
    monkeypatch.setattr(Charges, "_add", lambda self, rounds: (added.append(len(rounds.keys)), add(self, rounds)))
    assert as_read(chained(honest(rounds=400))) == one_by_one(chained(honest(rounds=400)))
    assert sum(added) >= 390


def changed(*changes: tuple[int, bytes, bytes]) -> list[Entry]:
    """An honest ledger with some lines changed, and chained anew; entry 6 is a charge, 7 and 8 its reply."""
    lines = honest()
    for entry, old, new in changes:
        assert old in lines[entry - 1]
        lines[entry - 1] = lines[entry - 1].replace(old, new, 1)
    return chained(lines)


def with_a_border_moved(end: bytes) -> list[Entry]:
    """The end of one line stands where the key of the charge should, which may be any word."""
    lines = honest()
    kind, clock, _key, _run, rest = lines[5].split(b"\t", 4)
    lines[5:7] = [kind + b"\t" + clock, b"\t".join([b"abA", rest, end, lines[6]])]
    return chained(lines)


def with_a_false_hash() -> list[Entry]:
    entries = chained(honest())
    false = bytes(32)
    after, line = link(false, entries[7][0]), entries[6][0]
    return [*entries[:6], (line, false), (entries[7][0], after), *entries[8:]]


class Anything(str):
    """Equal to every word."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False


class AnyNumber(int):
    """Equal to every number."""

    __hash__ = int.__hash__

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False


class Unhashed:
    """A hash that equals whatever is stated."""

    def __init__(self, _data: bytes) -> None: ...

    def digest(self) -> Anything:
        return Anything()


class Lenient:
    """A ``float`` that reads everything."""

    fromhex = staticmethod(lambda _text: 0.0)


KINDS = {at: word for at, word in rounds._FIXED.items() if word != "\n"}
ENDS = {at: word for at, word in rounds._FIXED.items() if word == "\n"}
CONTROLS: dict[str, tuple[str, object, list[Entry]]] = {
    "hashes unchecked": ("whole_rounds.sha256", Unhashed, with_a_false_hash()),
    "kinds unchecked": ("whole_rounds._FIXED", ENDS, changed((6, b"RESERVED", b"RESOLVED"))),
    "ends unchecked": ("whole_rounds._FIXED", KINDS, with_a_border_moved(b"no end")),
    "ends uncounted": ("whole_rounds.len", lambda values: AnyNumber(len(values)), with_a_border_moved(b"\n")),
    "ε unread": ("whole_rounds.float", Lenient, changed((6, b"0x1.4", b"x"))),
    "sizes unread": ("whole_rounds.int", lambda _text: 8, changed((7, b"36900", b"x"))),
    "replies to any charge": (
        "whole_rounds.str",
        lambda _seq: Anything(),
        changed((7, b"\t6", b"\t9"), (8, b"\t6", b"\t9")),
    ),
    "clocks unordered": ("whole_rounds.sorted", list, changed((7, b"\t8", b"\t7"))),
    "charges uncounted": ("charges.Counter", lambda pairs: dict.fromkeys(pairs, 1), changed()),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_each_check_of_the_columns_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without any one of them the comparison fails."""
    target, broken, entries = CONTROLS[name]
    assert as_read(entries) == one_by_one(entries)
    monkeypatch.setattr(f"lrdp.ledger.{target}", broken, raising=False)
    assert as_read(entries) != one_by_one(entries)


def test_of_two_failures_the_first_is_named() -> None:
    entries = chained(honest())

    def failing(kept: int, wrong: bool) -> Iterator[Entry]:
        yield from entries[: kept - 1]
        yield entries[kept - 1] if not wrong else (entries[kept - 1][0], bytes(32))
        raise LedgerUnwritable("the disk cannot be read.")

    with pytest.raises(LedgerUnwritable, match="cannot be read"):
        Books().extend(failing(20, wrong=False))
    with pytest.raises(LedgerDamaged, match="entry 20 does not match its hash"):
        Books().extend(failing(20, wrong=True))


@pytest.mark.parametrize("change", [(b"1.4", b"1p99999"), (b"\t39\t", b"\t9223372036854775808\t")])
def test_a_number_too_large_is_refused(change: tuple[bytes, bytes]) -> None:
    line = events.encode(charge(5))
    assert change[0] in line
    entries = chained([*honest(1), line.replace(*change)])
    with pytest.raises(LedgerDamaged, match="entry 6 cannot stand where it does"):
        Books().extend(entries)
