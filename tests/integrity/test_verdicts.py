"""What a refusal says, and that the first check that fails is the one that speaks."""

import pytest

from lrdp.errors import NotVerified
from lrdp.integrity.verdicts import MEANINGS, Check, Verdict, rejection, require


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_meaning_of_its_own(verdict):
    assert MEANINGS[verdict]
    assert list(MEANINGS.values()).count(MEANINGS[verdict]) == 1


def test_a_refusal_gives_its_verdict_what_is_known_of_it_and_its_meaning():
    meaning = MEANINGS[Verdict.TAG_SIG]
    assert str(rejection(Verdict.TAG_SIG)) == f"TAG_SIG: {meaning}."
    assert str(rejection(Verdict.TAG_SIG, "of two")) == f"TAG_SIG (of two): {meaning}."
    assert rejection(Verdict.TAG_SIG).verdict is Verdict.TAG_SIG


def test_the_first_check_that_fails_speaks_and_those_behind_it_are_not_asked():
    asked = []

    def above(least):
        return lambda evidence: asked.append(least) or evidence > least

    checks = [
        Check(Verdict.MALFORMED, above(1)),
        Check(Verdict.STALE_CONTEXT, above(3)),
        Check(Verdict.CHAIN_BREAK, above(5)),
    ]
    require(checks, 7)
    assert asked == [1, 3, 5]
    asked.clear()
    with pytest.raises(NotVerified, match=r"^STALE_CONTEXT: "):
        require(checks, 2)
    assert asked == [1, 3]
