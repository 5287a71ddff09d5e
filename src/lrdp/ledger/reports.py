"""Reports: what a client tells its operator in one signed line: budget, filter, steps so far, the entry they end at.

After a rotation the line also says by whose word its key took over: the key that the ledger was opened with, and each
key's signature for the next.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lrdp import codec, limits
from lrdp.accounting import Adjacency, Budget, Mechanism, checked_history
from lrdp.codec import DIGITS, Part, one_of, word
from lrdp.errors import InvalidInput
from lrdp.ledger.books import Books
from lrdp.ledger.choice import decode_choice
from lrdp.ledger.heads import Successor, decode_successors, encode_successors, handed_over
from lrdp.ledger.key_files import SigningKey, is_signed
from lrdp.ledger.opening import round_like_last
from lrdp.ledger.policy_file import parse_policy
from lrdp.ledger.texts import LONGEST_LINE, decode_float, decode_history, encode_float, encode_history

REPORT_LABEL: Final = "lrdp-report-1"
"""How a report begins, with its version: by it a file is known to be one."""
_MOST_STEPS: Final = 1 << 40


class Report(NamedTuple):
    """One client's spending, without its entries; ``following`` is a round like its last.

    ``key`` signs for the ledger now, ``opening_key`` did when it was opened; ``successors`` lead from one to the other.
    """

    client: str
    ledger: str
    key: str
    seq: int
    digest: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    filter: str
    history: dict[Mechanism, int]
    following: dict[Mechanism, int]
    opening_key: str
    successors: tuple[Successor, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All that ever signed for the ledger, in their order."""
        return self.opening_key, *(successor.key for successor in self.successors)

    def encode(self) -> str:
        """The line without its signature."""
        return (_ROTATED if self.successors else _PLAIN).encode(self)

    def signed(self, key: SigningKey) -> str:
        """The line with its signature."""
        line = self.encode()
        return f"{line}\t{key.sign(line.encode())}"


_AS_IT_IS: Final[Part[str, str]] = Part(str, str)
_FLOAT: Final = Part(encode_float, decode_float)
_WORD: Final = word(LONGEST_LINE)
_HISTORY: Final = Part(encode_history, decode_history)
_PLAIN: Final = codec.line(
    REPORT_LABEL,
    client=_WORD,
    ledger=_AS_IT_IS,
    key=_AS_IT_IS,
    seq=DIGITS,
    digest=_AS_IT_IS,
    adjacency=one_of(Adjacency, _AS_IT_IS),
    epsilon=_FLOAT,
    delta=_FLOAT,
    filter=_WORD,
    history=_HISTORY,
    following=_HISTORY,
)
_ROTATED: Final = codec.line(
    REPORT_LABEL, **_PLAIN.parts, opening_key=_AS_IT_IS, successors=Part(encode_successors, decode_successors)
)


def report_of(books: Books) -> Report:
    """What the books say, as a report."""
    rule = parse_policy(books.policies[-1].text, source="policy.toml").mechanism
    step, steps = round_like_last(books.charges, rule)
    opened = books.opened
    return Report(
        client=opened.client,
        ledger=opened.ledger,
        key=books.client_key,
        seq=books.seq,
        digest=books.digest.hex(),
        adjacency=opened.adjacency,
        epsilon=books.budget.epsilon,
        delta=opened.delta,
        filter=opened.filter,
        history=books.charges.history,
        following={step: steps},
        opening_key=opened.client_key,
        successors=tuple(books.successors),
    )


def read_report(line: str) -> Report:
    """The report in a line whose signature holds.

    Raises:
        InvalidInput: for a line that is not a report, or whose signatures do not hold.
    """
    if len(line) > LONGEST_LINE:
        raise InvalidInput(f"a report of {len(line)} characters, at most {LONGEST_LINE} are read: it is not counted.")
    text, _, signature = line.rstrip("\n").rpartition("\t")
    form = _ROTATED if text.count("\t") > len(_PLAIN.parts) else _PLAIN
    try:
        said = form.decode(text)
        report = Report(**{"opening_key": said["key"], **said})
        _check_figures(report)
    except (ValueError, OverflowError) as problem:
        raise InvalidInput(f"a report is a line of 13 or 15 fields, got {line[:60]!r}: {problem}.") from None
    own = report.keys[-1] == report.key and handed_over(report.ledger, report.opening_key, report.successors)
    if not own or not is_signed(report.key, signature, text.encode()):
        raise InvalidInput(f"the report of {report.client!r} is not signed with the key it names: it is not counted.")
    return report


def _check_figures(report: Report) -> None:
    """What the operator's figures will rest on: a line that is signed may still be nonsense."""
    Budget(epsilon=report.epsilon, delta=report.delta)
    decode_choice(report.filter)
    limits.whole("entries", report.seq, 1, "a ledger has a first entry")
    history, following = checked_history(report.history), checked_history(report.following)
    if len(following) != 1:
        raise InvalidInput("a round to come has one mechanism")
    if max(report.seq, *history.values(), *following.values()) >= _MOST_STEPS:
        raise InvalidInput(f"entries and steps are counted below {_MOST_STEPS}: their sums would leave a column")
