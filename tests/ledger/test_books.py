"""Entries read many at a time against the same entries read one by one: the same books, or the same refusal."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.worlds import STEP, policy
from lrdp.accounting import SPREAD, RenyiOrders
from lrdp.errors import LedgerDamaged, LedgerUnwritable
from lrdp.ledger import Refusal, SigningKey, events, records
from lrdp.ledger.books import Books, Entry
from lrdp.ledger.chain import GENESIS, link

RULES, KEY = policy(), SigningKey.generate().public
BEGINNING: list[events.Event] = [
    records.opening(RULES, KEY, KEY, RenyiOrders(weights=SPREAD), 7),
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
    charges = books.charges
    tallies = [(run, list(tally.steps.history().items()), tally.charges) for run, tally in charges._runs.items()]
    known = [list(charges.states.items()), list(charges.replies.items()), list(charges.answered.items())]
    chain = [books.seq, books.digest, books.latest_clock, books.clock_fell_at, charges.steps, books.steps_at]
    rest = [list(charges.history.items()), charges._unanswered, charges.newest, books.refusals.by_reason]
    return [tallies, *known, charges.clip_norms, *chain, *rest]


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
    def fold(books: Books) -> None:
        for entry in entries:
            books.append(*entry)

    return outcome(fold)


@given(entries=st.one_of(ledgers().map(chained), rewritten(), damaged()), batch=st.sampled_from([1024, 40]))
def test_many_entries_and_single_ones_say_the_same(entries: list[Entry], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lrdp.ledger.books._BATCH", batch)
        assert as_read(entries) == one_by_one(entries)


def test_control_a_reader_that_mixes_up_lines_of_a_kind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, values = chained(honest(rounds=30)), events._values
    monkeypatch.setattr(events, "_values", lambda name, rows: values(name, rows[::-1]))
    assert as_read(entries) != one_by_one(entries)


def test_what_a_plain_reading_of_the_lines_counts_is_what_the_books_say() -> None:
    """An oracle that shares no code: sums and states by hand from the words of the lines."""
    lines = [*honest(rounds=400), events.encode(charge(1203, steps=5))]
    books = Books()
    books.extend(chained(lines))
    words = [line.decode().split("\t") for line in lines]
    charged = {seq: row for seq, row in enumerate(words, start=1) if row[0] == "RESERVED"}
    assert books.charges.steps == sum(int(row[6]) for row in charged.values()) == 400 * 39 + 5
    assert books.charges.history == {STEP: 400 * 39 + 5}
    assert {seq: state.value for seq, state in books.charges.states.items()} == {
        seq: "sent" if ["SENT", "8", str(seq)] in words else "reserved" for seq in charged
    }
    assert books.charges.answered[charged[3][2]] == max(
        seq for seq, row in charged.items() if row[2] == charged[3][2] and seq < 1203
    )


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


def with_a_field_moved(taken: int, given: int) -> list[Entry]:
    """One reply has a field too few and another one too many: together as many as two should have."""
    lines = honest()
    lines[taken - 1], _, size = lines[taken - 1].rpartition(b"\t")
    lines[given - 1] += b"\t" + size
    return chained(lines)


def with_a_false_hash() -> list[Entry]:
    entries = chained(honest())
    false = bytes(32)
    after, line = link(false, entries[7][0]), entries[6][0]
    return [*entries[:6], (line, false), (entries[7][0], after), *entries[8:]]


def with_two_faults() -> list[Entry]:
    """Entry 7 cannot follow, and entry 9 cannot even be read."""
    return changed((7, b"\t6", b"\t3"), (9, b"0x1.4", b"x"))


WRONG: dict[str, tuple[int, str, list[Entry]]] = {
    "a false hash": (7, "does not match its hash", with_a_false_hash()),
    "another kind": (6, "kind 'RESOLVED' is not an entry", changed((6, b"RESERVED", b"RESOLVED"))),
    "a field too few": (6, "kind 'RESERVED' is not an entry", with_a_border_moved(b"no end")),
    "a field of a later one": (7, "kind 'READY' is not an entry", with_a_field_moved(10, 7)),
    "a field that an earlier one has": (7, "kind 'READY' is not an entry", with_a_field_moved(7, 10)),
    "the end of a line within one": (6, "kind 'RESERVED' is not an entry", with_a_border_moved(b"\n")),
    "an ε that is no number": (6, "kind 'RESERVED' is not an entry", changed((6, b"0x1.4", b"x"))),
    "a size that is no number": (7, "kind 'READY' is not an entry", changed((7, b"36900", b"x"))),
    "a reply to another charge": (7, "charge 9 is unknown, not reserved", changed((7, b"\t6", b"\t9"))),
    "an end of a line": (8, "contains a line break", changed((8, b"\t6", b"\t6\n"))),
    "two faults": (7, "charge 3 is sent, not reserved", with_two_faults()),
}


@pytest.mark.parametrize("name", WRONG)
def test_of_many_entries_the_first_wrong_one_is_named(name: str) -> None:
    seq, said, entries = WRONG[name]
    with pytest.raises(LedgerDamaged, match=f"entry {seq} .*{said}"):
        Books().extend(entries)


def test_a_clock_that_falls_is_noted_and_refuses_nothing() -> None:
    books = Books()
    books.extend(changed((7, b"\t8", b"\t7")))
    assert books.clock_fell_at == [7]


@pytest.mark.parametrize("event", [events.Sent(7, 1), BEGINNING[1]])
def test_a_ledger_begins_with_its_opening(event: events.Event) -> None:
    with pytest.raises(LedgerDamaged, match="entry 1 cannot stand where it does: a ledger begins with OPENED"):
        Books().extend(chained([events.encode(event), *honest()]))


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
