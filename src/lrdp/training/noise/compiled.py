"""Noise in one pass over memory: words in, noised and snapped values out, compiled by numba.

No fast-math: what is written here is what is computed, with the same bits on every machine. The loop has no branch and
no call, so it runs on vectors of four or eight. The polynomials are fdlibm's (Sun Microsystems, 1993), right to two
units in the last place; angles are multiples of 2^-52 of a turn, so they are reduced without any rounding.

Importing this file imports numba. Only `accelerator` does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, njit, uint64, void

_FRACTION = np.uint64((1 << 52) - 1)
_EXPONENT_OF_ONE = np.uint64(0x3FF << 52)
_FRACTION_BITS = np.uint64(52)
_ROOT_HALF = np.uint64(0x3FE6A09E << 32)  # the bits of √½, so that what is left after the exponent lies around 1
_TO_ROOT_HALF = np.uint64((0x3FF << 52) - (0x3FE6A09E << 32))
_INTEGER = np.uint64(0x433 << 52)  # with a small integer in its last bits, a float that is larger by 2^52
_INTEGER_OFFSET = 2.0**52 + 1023.0
_TO_INTEGER = 1.5 * 2.0**52  # added to a small float, it leaves the nearest integer in the last bits
_LOG_2 = math.log(2.0)
_TURN = 2.0 * math.pi
_ONE, _TWO, _TO_SIGN = np.uint64(1), np.uint64(2), np.uint64(62)


def logarithm(value: Any) -> Any:
    """Of a value in (0, 1]: that of its power of two, and s·R(s²) with s = f/(2 + f) for the rest, 1 + f."""
    bits = np.float64(value).view(np.uint64) + _TO_ROOT_HALF
    power = np.uint64((bits >> _FRACTION_BITS) | _INTEGER).view(np.float64) - _INTEGER_OFFSET
    f = np.uint64((bits & _FRACTION) + _ROOT_HALF).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    even = w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    rest = odd + z * (6.666666666666735130e-01 + even)
    half = 0.5 * f * f
    return power * _LOG_2 - ((half - s * (half + rest)) - f)


def sine(x: Any) -> Any:
    """Of an angle within an eighth of a turn."""
    z = x * x
    late = 2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
    early = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * late)
    return x + x * z * (-1.66666666666666324348e-01 + z * early)


def cosine(x: Any) -> Any:
    """Of an angle within an eighth of a turn."""
    z = x * x
    late = -2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)
    early = -1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 + z * late)
    return 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * early)


_logarithm, _sine, _cosine = (njit(inline="always")(function) for function in (logarithm, sine, cosine))


def normals(radius_word: Any, angle_word: Any, stretch: Any) -> Any:
    """Two independent normals by Box and Muller, from 52 bits of each word.

    The angle is the nearest quarter of a turn and a rest. Odd quarters swap sine and cosine; two bits hold the signs.
    """
    nearness = 2.0 - np.uint64((radius_word & _FRACTION) | _EXPONENT_OF_ONE).view(np.float64)
    radius = np.sqrt(stretch * _logarithm(nearness))
    turn = 2.0 - np.uint64((angle_word & _FRACTION) | _EXPONENT_OF_ONE).view(np.float64)
    rounded = 4.0 * turn + _TO_INTEGER
    quarter = np.float64(rounded).view(np.uint64)
    rest = (turn - 0.25 * (rounded - _TO_INTEGER)) * _TURN
    across, along = _sine(rest), _cosine(rest)
    swapped = (quarter & _ONE) != 0
    first = np.float64(across if swapped else along).view(np.uint64) ^ (((quarter + _ONE) & _TWO) << _TO_SIGN)
    second = np.float64(along if swapped else across).view(np.uint64) ^ ((quarter & _TWO) << _TO_SIGN)
    return radius * np.uint64(first).view(np.float64), radius * np.uint64(second).view(np.float64)


_normals = njit(inline="always")(normals)


def add(words: Any, values: Any, stretch: Any, step: Any) -> None:
    """Noise on each of ``values``, in place: the sum in float64, snapped to multiples of ``step``, then the cast."""
    half = (values.size + 1) // 2
    radius_words, angle_words = words[:half], words[half:]
    firsts, seconds = values[:half], values[half:]
    per_step = 1.0 / step
    for i in range(seconds.size):
        first, second = _normals(radius_words[i], angle_words[i], stretch)
        firsts[i] = np.rint(first + firsts[i] * per_step) * step
        seconds[i] = np.rint(second + seconds[i] * per_step) * step
    for i in range(seconds.size, half):  # an odd end
        first, _ = _normals(radius_words[i], angle_words[i], stretch)
        firsts[i] = np.rint(first + firsts[i] * per_step) * step


def compiled(*, cache: bool) -> Any:
    """``add`` for both types of weights, and for nothing else: it compiles now or never."""
    types = [void(uint64[::1], floats[::1], float64, float64) for floats in (float32, float64)]
    kernel = njit(types, cache=cache, nogil=True, error_model="numpy")(add)
    kernel.disable_compile()
    return kernel
