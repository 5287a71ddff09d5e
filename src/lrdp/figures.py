"""Figures as they are printed: rounded to the side on which nobody is misled.

A figure is a number that knows its side. However it is formatted, as in ``f"{AtMost(epsilon):.4f}"``, what is printed
and read back is never below an :class:`AtMost`, never above an :class:`AtLeast`, and less than one unit of its last
digit away. JSON has it whole.

=========  =========================================================================================================
at most    ε, δ, rates of right guesses, what a step, a round or a slot costs, σ and noise on the mean (they are copied
           back, and less noise breaks a budget), sampling probabilities, memory and time that something takes
at least   ε that is left, what an audit has shown, accuracy, memory that there is
=========  =========================================================================================================

What somebody chose (a budget, a clip norm, a limit) and what names something (a Rényi order) is a plain float, which is
printed whole. So a number whose side was forgotten comes out long, not wrong.

>>> f"{AtMost(0.12341):.4f} {AtLeast(0.12349):.4f} {AtMost(1e-9):.4f} {AtMost(8.0):g} {AtMost(1.0000001)}"
'0.1235 0.1234 0.0001 8 1.00001'
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import ClassVar, Final, Self

_DIGITS: Final = 60
"""In arithmetic on bounds: its errors are far below a float's."""


class Figure(float):
    """A number that is rounded to its own side; written with six digits if no format is given."""

    rounding: ClassVar[str]
    sign: ClassVar[int]

    @classmethod
    def context(cls) -> Context:
        """Arithmetic that errs to this side."""
        return Context(prec=_DIGITS, rounding=cls.rounding)

    @classmethod
    def of(cls, exact: Decimal | Fraction) -> Self:
        """The nearest float that is not on the wrong side of ``exact``."""
        near = float(exact)
        if math.isfinite(near) and (Fraction(exact) - Fraction(near)) * cls.sign > 0:
            near = math.nextafter(near, cls.sign * math.inf)
        return cls(near)

    def __str__(self) -> str:
        return format(self)

    def __format__(self, form: str) -> str:
        form = form or ".6g"
        if not math.isfinite(self):
            return format(self.sign * math.inf if math.isnan(self) else float(self), form)
        # The shortest text that reads back as this number is what is rounded: one that is short enough stays as it is.
        number = Decimal(repr(float(self)))
        if not form.endswith("g"):
            with localcontext(self.context()):
                return format(number, form)
        digits = form.rpartition(".")[2].removesuffix("g")
        return format(float(Context(prec=int(digits or 6), rounding=self.rounding).create_decimal(number)), form)


class AtMost(Figure):
    """Rounded up."""

    rounding = ROUND_CEILING
    sign = 1


class AtLeast(Figure):
    """Rounded down."""

    rounding = ROUND_FLOOR
    sign = -1


def left(budget: float, spent: float) -> AtLeast:
    """What is left of a budget: never more than the true difference, and 0 where nothing is left or it is unknown."""
    if not spent < budget < math.inf:
        return AtLeast(0.0)
    return AtLeast.of(Fraction(budget) - Fraction(spent))
