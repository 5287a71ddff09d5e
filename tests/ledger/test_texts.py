import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.worlds import STEP, digest
from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    Mechanism,
    PoissonGaussian,
    TruncatedPoissonGaussian,
)
from lrdp.errors import InvalidInput
from lrdp.ledger import events
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.texts import (
    decode_float,
    decode_history,
    decode_mechanism,
    decode_word,
    encode_float,
    encode_history,
    encode_mechanism,
    encode_word,
)

noises = st.floats(min_value=1e-6, max_value=1e9)
sizes = st.tuples(st.integers(1, 1000), st.integers(1001, 10**12))
mechanisms = st.one_of(
    noises.map(lambda noise: Gaussian(noise_multiplier=noise)),
    st.builds(
        lambda kind, noise, size: kind(noise_multiplier=noise, batch_size=size[0], dataset_size=size[1]),
        st.sampled_from([FixedSizeGaussian, FixedSizeWithReplacementGaussian, PoissonGaussian]),
        noises,
        sizes,
    ),
    st.builds(
        lambda noise, size, cap: TruncatedPoissonGaussian(
            noise_multiplier=noise, batch_size=size[0], dataset_size=size[1], cap=size[0] + cap
        ),
        noises,
        sizes,
        st.integers(0, 10**6),
    ),
)
clocks = st.integers(0, 2**60)
numbers = st.integers(1, 2**60)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
digests = words.map(digest)
floats = st.floats(allow_nan=False)
any_event = st.one_of(
    st.builds(
        events.Opened,
        at=clocks,
        format=words,
        ledger=digests,
        client=words,
        unit=words,
        max_rows_per_unit=numbers,
        adjacency=st.sampled_from(Adjacency),
        epsilon=floats,
        delta=floats,
        filter=words,
        client_key=digests,
        administrator_key=digests,
    ),
    st.builds(events.PolicySet, at=clocks, digest=digests, text=words),
    st.builds(
        events.Reserved,
        at=clocks,
        key=digests,
        run=words,
        round=numbers,
        mechanism=mechanisms,
        steps=numbers,
        clip_norm=floats,
        accountant=st.just("rdp lrdp/0.1.0"),
        guaranteed=floats,
        spent=floats,
    ),
    st.builds(events.ReplyReady, at=clocks, charge=numbers, digest=digests, size=numbers),
    st.builds(events.Sent, at=clocks, charge=numbers),
    st.builds(
        events.Declined,
        at=clocks,
        key=digests,
        run=words,
        round=numbers,
        refusal=st.sampled_from(Refusal),
        sentence=words,
    ),
    st.builds(events.Unlisted, at=clocks, refusal=st.sampled_from(Refusal), requests=numbers),
    st.builds(events.Voided, at=clocks, charge=numbers, reason=words, signature=digests),
    st.builds(events.Rotated, at=clocks, key=digests, signature=digests),
    st.builds(events.Raised, at=clocks, epsilon=floats, reason=words, signature=digests),
    st.builds(events.Closed, at=clocks, reason=words, signature=digests),
    st.builds(events.Suspended, at=clocks, head=words),
    st.builds(events.Adopted, at=clocks, head=words, mechanism=mechanisms, steps=numbers, signature=digests),
)


@given(mechanism=mechanisms)
def test_a_mechanism_is_read_back_bit_for_bit(mechanism: Mechanism) -> None:
    assert decode_mechanism(encode_mechanism(mechanism)) == mechanism


@given(value=st.floats(allow_nan=False))
def test_a_float_is_read_back_bit_for_bit(value: float) -> None:
    again = decode_float(encode_float(value))
    assert (again, math.copysign(1, again)) == (value, math.copysign(1, value))


def test_what_is_not_a_number_is_written_as_infinity() -> None:
    assert decode_float(encode_float(math.nan)) == math.inf


@given(text=words)
def test_a_word_never_holds_a_separator(text: str) -> None:
    encoded = encode_word(text)
    assert decode_word(encoded) == text
    assert not set(encoded) & set("\t\n\r\x0b\x0c\x85\u2028")


@given(history=st.dictionaries(mechanisms, st.integers(1, 2**60), max_size=5))
def test_a_history_is_read_back(history: dict[Mechanism, int]) -> None:
    assert decode_history(encode_history(history)) == history


@given(event=any_event)
def test_an_entry_is_read_back_as_it_was(event: events.Event) -> None:
    line = events.encode(event)
    assert b"\n" not in line
    (back,) = events.decode_all([line])
    assert back == event
    assert events.encode(back) == line


def test_whole_noise_and_float_noise_have_one_line() -> None:
    assert encode_mechanism(Gaussian(noise_multiplier=2)) == encode_mechanism(Gaussian(noise_multiplier=2.0))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"SENT",
        b"SENT\t1\tx",
        b"SENT\t1\t2\t3",
        b"PAID\t1\t2",
        b"RESERVED\t1",
        b"REFUSED\t1\tk\tr\t1\tmood\ts",
    ],
)
def test_a_line_that_is_no_entry_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidInput, match="not an entry"):
        events.decode_all([line])


def test_a_mechanism_the_ledger_could_not_read_back_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Home(Mechanism):
        name: ClassVar[str] = FixedSizeGaussian.name

    with pytest.raises(InvalidInput, match="could not read back"):
        encode_mechanism(Home(noise_multiplier=1.0))
    for text in ("home noise_multiplier=0x1p+0", "gaussian", f"{encode_mechanism(STEP)} cap=3"):
        with pytest.raises(InvalidInput):
            decode_mechanism(text)
