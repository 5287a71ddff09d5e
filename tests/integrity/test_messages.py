"""Messages as values: what no bytes could be is refused when a value is made, too."""

import pytest

from lrdp.errors import NotVerified
from lrdp.integrity.messages import Tag


def tag(value: int) -> Tag:
    return Tag(name="hospital-3", value=value, signature=bytes(64))


@pytest.mark.parametrize("value", [-1, 1 << 128, -(1 << 127), 1 << 300])
def test_a_tag_of_more_than_its_bits_is_malformed(value: int) -> None:
    with pytest.raises(NotVerified, match="a tag has 128 bits"):
        tag(value)


@pytest.mark.parametrize("value", [0, (1 << 128) - 1])
def test_the_least_and_the_largest_tag_come_back_as_they_were(value: int) -> None:
    assert Tag.decode(tag(value).encode()) == tag(value)
