"""What every mechanism is: a value that says what one private step does, and which steps cost no more than it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Self

from lrdp import limits
from lrdp.accounting.pairs import DominatingPair
from lrdp.errors import InvalidInput, Unsupported

CLIP_HEADROOM: Final = {"float32": 2.0**-7, "float64": 2.0**-16}
"""The share of the clip norm that is kept free for rounding, by the type of the weights: what training clips to, and
what a statement says about it."""
_NOISE = (1e-6, 1e9)


class Adjacency(Enum):
    """Which data sets count as neighbours: what exactly is protected.

    >>> from lrdp.accounting import FixedSizeGaussian, RenyiAccountant
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> [round(RenyiAccountant(adjacency=each).epsilon({step: 10_000}, 1e-5).epsilon, 2) for each in Adjacency]
    [6.0, 7.02]
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Side(Enum):
    """On which side of what a policy states a number may lie without costing more."""

    ABOVE = "at least"
    BELOW = "at most"
    SAME = "exactly"

    def keeps(self, asked: float, stated: float) -> bool:
        """Whether ``asked`` lies on this side of ``stated``; what is not a number never does."""
        return bool(_COMPARE[self](asked, stated))


_COMPARE: Final = {Side.ABOVE: operator.ge, Side.BELOW: operator.le, Side.SAME: operator.eq}


class Bound(NamedTuple):
    """The key under which a policy states a field, the side of it on which a request may lie, and a comment: why."""

    key: str
    side: Side
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Displacement:
    """With probability at most ``batch_size / dataset_size`` one record moves the sum, by at most two clip norms.

    The loosest thing to say about a step, so it can be said about many kinds. Equal sizes: the record always does.
    """

    batch_size: int
    dataset_size: int
    noise_multiplier: float


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One private step.

    A kind of step that has a name is final: what it costs is proved for it as it is, and a subclass that changes
    anything is another mechanism. Derive new ones from this class, and prove their pair.

    ``numbers`` are its fields and their types. ``bounds`` say for each of them what a policy allows around the step
    that it states; where there are none, no policy may name this kind. ``about`` is what a policy says about the kind.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""
    numbers: ClassVar[Mapping[str, type[int] | type[float]]] = {"noise_multiplier": float}
    bounds: ClassVar[Mapping[str, Bound]] = {}
    noise_multiplier: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named = [base.__name__ for base in cls.__mro__[1:] if "name" in vars(base)]
        if named:
            raise InvalidInput(
                f"{cls.__name__} must not derive from {named[0]}: its cost is proved for {named[0]} as it is, so "
                f"derive from Mechanism and give the pair that dominates it."
            )

    def __post_init__(self) -> None:
        noise = limits.positive("noise_multiplier", self.noise_multiplier, "noise is what hides a record")
        limits.between("noise_multiplier", noise, *_NOISE, "beyond these, doubles do not resolve its cost")
        limits.keep(self, noise_multiplier=noise)

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """The pair that bounds this step for the given neighbours."""
        limits.made_by("adjacency", adjacency, Adjacency)
        raise Unsupported(f"{type(self).__name__} has no cost: it gives no pair that dominates it.")

    def group_pair(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """The pair that bounds this step for a person with at most ``rows`` rows, all added, removed or replaced.

        Raises:
            Unsupported: where none is proved for more than one row.
        """
        limits.made_by("adjacency", adjacency, Adjacency)
        count = limits.whole("rows", rows, 1, "a person without rows is not in the data")
        return self.dominating_pair(adjacency) if count == 1 else self._pair_of_rows(adjacency, count)

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        raise Unsupported(
            f"no pair is proved for {rows} rows of one person with {self.name} sampling under {adjacency.value}."
        )

    def with_noise(self, noise_multiplier: float) -> Self:
        """The same step with another σ."""
        return replace(self, noise_multiplier=noise_multiplier)

    def varied(self, **numbers: float) -> Self:
        """The same step with some of its numbers replaced."""
        for field in numbers:
            if field not in self.numbers:
                raise InvalidInput(f"{self.name} sampling has no {field}: leave it out.", field=field)
        return replace(self, **numbers)

    def looser_in(self, asked: Mechanism) -> str | None:
        """The first field in which ``asked`` may cost more than this, "name" for another kind; None if it never does.

        Guarantees: with None, this step's pair dominates that of ``asked`` under every adjacency that has a bound
        (docs/accounting.md, *Costlier and cheaper steps*).
        """
        limits.derived_from("asked", asked, Mechanism)
        if type(asked) is not type(self) or not self.bounds:
            return "name"
        kept = (bound.side.keeps(getattr(asked, field), getattr(self, field)) for field, bound in self.bounds.items())
        return next((field for field, keeps in zip(self.bounds, kept, strict=True) if not keeps), None)

    def displacement(self) -> Displacement:
        """What can be compared with a step of any other kind; refused where nothing is proved."""
        raise Unsupported(f"{type(self).__name__} cannot be compared with other kinds: no bound is proved for it.")
