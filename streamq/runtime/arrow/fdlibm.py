"""exp, ln and log10 to the last bit as Java's StrictMath: fdlibm's algorithms (Sun Microsystems, 1993) on NumPy arrays.

A C library's own versions are as accurate, but differ in the last bit, so that a comparison could give another result than in
Spark. Every step is one IEEE operation; where fdlibm branches, all branches are computed and one is selected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
TWO_54 = 2.0**54


def _high(x: Doubles) -> NDArray[np.int64]:
    return x.view(np.int64) >> 32


def _with_high(x: Doubles, high: NDArray[np.int64]) -> Doubles:
    return ((high << 32) | (x.view(np.int64) & 0xFFFFFFFF)).view(np.float64)


def log(x: Doubles) -> Doubles:
    """Return the natural logarithm (e_log.c): -inf of 0, NaN of negative numbers."""
    with np.errstate(all="ignore"):
        tiny = x < 2.0**-1022
        y = np.where(tiny, x * TWO_54, x)
        high = _high(y)
        k = np.where(tiny, -54, 0) + (high >> 20) - 1023
        high = high & 0xFFFFF
        i = (high + 0x95F64) & 0x100000
        f = _with_high(y, high | (i ^ 0x3FF00000)) - 1.0
        k = k + (i >> 20)
        dk = k.astype(np.float64)
        s = f / (2.0 + f)
        z = s * s
        w = z * z
        t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
        t2 = z * (
            6.666666666666735130e-01
            + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
        )
        r = t2 + t1
        half = 0.5 * f * f
        wide = np.where(
            k == 0, f - (half - s * (half + r)), dk * LN2_HIGH - ((half - (s * (half + r) + dk * LN2_LOW)) - f)
        )
        slim = np.where(k == 0, f - s * (f - r), dk * LN2_HIGH - ((s * (f - r) - dk * LN2_LOW) - f))
        result = np.where(((high - 0x6147A) | (0x6B851 - high)) > 0, wide, slim)
        # |f| < 2**-20
        r = f * f * (0.5 - 0.33333333333333333 * f)
        near = np.where(k == 0, f - r, dk * LN2_HIGH - ((r - dk * LN2_LOW) - f))
        near = np.where(f == 0, np.where(k == 0, 0.0, dk * LN2_HIGH + dk * LN2_LOW), near)
        result = np.where((0xFFFFF & (2 + high)) < 3, near, result)
        result = np.where(x == 0, -np.inf, np.where(x < 0, np.nan, result))
        return np.where(np.isfinite(x), result, np.where(x == -np.inf, np.nan, x))


def log10(x: Doubles) -> Doubles:
    """Return the logarithm to base 10 (e_log10.c): -inf of 0, NaN of negative numbers."""
    with np.errstate(all="ignore"):
        tiny = x < 2.0**-1022
        y = np.where(tiny, x * TWO_54, x)
        high = _high(y)
        k = np.where(tiny, -54, 0) + (high >> 20) - 1023
        i = (k < 0).astype(np.int64)
        z = _with_high(y, (high & 0xFFFFF) | ((0x3FF - i) << 20))
        n = (k + i).astype(np.float64)
        result = (n * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * log(z)) + n * 3.01029995663611771306e-01
        result = np.where(x == 0, -np.inf, np.where(x < 0, np.nan, result))
        return np.where(np.isfinite(x), result, np.where(x == -np.inf, np.nan, x))


def log2(x: Doubles) -> Doubles:
    """Return the logarithm to base 2 as Spark computes it: ln(x) / ln(2)."""
    return log(x) / log(np.array([2.0]))[0]


def exp(x: Doubles) -> Doubles:
    """Return e to the x (e_exp.c): infinity beyond the greatest double, 0 below the least."""
    with np.errstate(all="ignore"):
        size = _high(x) & 0x7FFFFFFF
        negative = x < 0
        sign = np.where(negative, -1, 1)
        near = size < 0x3FF0A2B2
        reduced = size > 0x3FD62E42
        finite = np.where(np.isfinite(x), x, 0.0)
        far = np.trunc(1.44269504088896338700e00 * finite + np.where(negative, -0.5, 0.5))
        k = np.where(reduced, np.where(near, sign, far), 0).astype(np.int64)
        dk = k.astype(np.float64)
        high = np.where(reduced, finite - dk * LN2_HIGH, 0.0)
        low = np.where(reduced, dk * LN2_LOW, 0.0)
        r = np.where(reduced, high - low, finite)
        t = r * r
        c = r - t * (
            1.66666666666666019037e-01
            + t
            * (
                -2.77777777770155933842e-03
                + t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))
            )
        )
        plain = 1.0 - ((r * c) / (c - 2.0) - r)
        y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
        normal = _with_high(y, _high(y) + (k << 20))
        small = _with_high(y, _high(y) + ((k + 1000) << 20)) * 9.33263618503218878990e-302
        result = np.where(k == 0, plain, np.where(k >= -1021, normal, small))
        result = np.where(size < 0x3E300000, 1.0 + x, result)
        result = np.where(x > 7.09782712893383973096e02, np.inf, np.where(x < -7.45133219101941108420e02, 0.0, result))
        return np.where(np.isnan(x), x, result)
