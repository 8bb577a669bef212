"""How far an approximate result of the simulated GPU may lie from the recorded one, by the row's name.

Rows that are not named here must agree bit for bit. The simulated GPU runs the very code that the GPU runs, and
differs only where that code uses an approximate instruction, so the documented error of the function bounds the
difference, too. Sources:

- GUIDE: CUDA C++ Programming Guide, "Mathematical Functions", the tables of maximum ulp errors of the standard
  library functions in single and double precision and of the intrinsic functions.
- PTX: PTX ISA, "Floating Point Instructions", the maximum errors stated with each `.approx` instruction.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """The largest of these differences is allowed: units in the last place, relative, absolute."""

    ulps: float = 0
    relative: float = 0
    absolute: float = 0


def _ulps(**by_name: float) -> dict[str, Bound]:
    return {name: Bound(ulps=ulps) for name, ulps in by_name.items()}


_PTX = {
    "div_approx": Bound(ulps=2),
    "div_approx_ftz": Bound(ulps=2),
    "div_full": Bound(ulps=2),
    "rcp_approx": Bound(ulps=1),
    "rcp_approx_ftz": Bound(ulps=1),
    "sqrt_approx": Bound(relative=2**-23),
    "sqrt_approx_ftz": Bound(relative=2**-23),
    "rsqrt_approx": Bound(relative=2**-22.9),
    "rsqrt_approx_ftz": Bound(relative=2**-22.9),
    "coarse_rcp": Bound(relative=2**-19),  # double precision, of which the upper 20 bits of the mantissa are computed
    "coarse_rsqrt": Bound(relative=2**-19),
    "ex2_approx": Bound(relative=2**-22),
    "ex2_approx_ftz": Bound(relative=2**-22),
    "lg2_approx": Bound(relative=2**-22, absolute=2**-22),
    "lg2_approx_ftz": Bound(relative=2**-22, absolute=2**-22),
    "sin_approx": Bound(absolute=2**-20.5),
    "sin_approx_ftz": Bound(absolute=2**-20.5),
    "cos_approx": Bound(absolute=2**-20.5),
    "cos_approx_ftz": Bound(absolute=2**-20.5),
    "tanh_approx": Bound(relative=2**-11),
}

_GUIDE_SINGLE = _ulps(
    sinf=2, cosf=2, tanf=4, sincosf_sine=2, sincosf_cosine=2, sinpif=1, cospif=1, asinf=2, acosf=2, atanf=2, atan2f=3,
    sinhf=3, coshf=2, tanhf=2, asinhf=3, acoshf=4, atanhf=3, expf=2, exp2f=2, exp10f=2, expm1f=1, logf=1, log2f=1,
    log10f=2, log1pf=1, powf=4, rsqrtf=2, cbrtf=1, rcbrtf=1, hypotf=3, erff=2, erfcf=4, erfinvf=2, normcdff=5,
    tgammaf=5, lgammaf=6, norm3df=3, j0f=9,
)  # fmt: skip

_GUIDE_DOUBLE = _ulps(
    sin=2, cos=2, tan=2, sinpi=2, asin=2, acos=2, atan=2, atan2=2, sinh=2, cosh=1, tanh=1, asinh=3, acosh=3, atanh=2,
    exp=1, exp2=1, exp10=1, expm1=1, log=1, log2=1, log10=1, log1p=1, pow=2, rsqrt=1, cbrt=1, hypot=2, erf=2, erfc=5,
    tgamma=10, lgamma=4,
)  # fmt: skip

# Stated for |x| <= pi (sin, cos), 0.5 <= y <= 2 (logarithms: absolute there, in ulps outside) and by formula with the
# argument for the exponentials: 2 + floor(|1.173 x|) and 2 + floor(|2.97 x|) ulps, at most 5 and 11 for |x| <= pi. No
# bound is stated for __tanf (the quotient of the two above; |cos| falls to 1e-3 here) or __powf (exp2(x log2(y))).
_GUIDE_INTRINSICS = {
    "fast_sinf": Bound(absolute=2**-21.41),
    "fast_cosf": Bound(absolute=2**-21.19),
    "fast_tanf": Bound(relative=2**-9, absolute=2**-20),
    "fast_expf": Bound(ulps=5),
    "fast_exp10f": Bound(ulps=11),
    "fast_logf": Bound(ulps=3, absolute=2**-21.41),
    "fast_log2f": Bound(ulps=2, absolute=2**-22),
    "fast_log10f": Bound(ulps=3, absolute=2**-24),
    "fast_powf": Bound(ulps=2 + 2 * 22),
    "fast_fdividef": Bound(ulps=2),
}

BOUNDS = _PTX | _GUIDE_SINGLE | _GUIDE_DOUBLE | _GUIDE_INTRINSICS
