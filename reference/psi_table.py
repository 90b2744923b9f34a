"""psi.json: psi and its slope in cos theta, computed with 60 digits and rounded once."""

import numpy as np
import torch
from mpmath import mp, mpf

import definition
from cases import exact_in_f32

MARGINS = [1, 2, 3, 4, 5, 6, 7, 8, 16, 2.5, 3.7]
GENERIC = [-0.999, -0.95, -0.8, -0.61, -0.37, -0.11, 0.03, 0.23, 0.45, 0.57, 0.71, 0.88, 0.93, 0.997]
NEAR_KNOT = 1e-6


def psi() -> dict:
    """Tables for every margin: at float32 points, and at the knots rounded to float64."""
    with mp.workdps(60):
        return {"cases": [table(margin) for margin in MARGINS]}


def table(margin) -> dict:
    """One margin. A slope is null where it is infinite: at cos = -1, for a fractional margin."""
    knots = knot_cosines(margin)
    around = np.concatenate([knots - NEAR_KNOT, knots, knots + NEAR_KNOT])
    points = np.concatenate([around, GENERIC, [-1, 0, 1]])
    cosines = np.unique(exact_in_f32(points[np.abs(points) <= 1]) + 0.0)
    result = {
        "margin": margin,
        "cos": cosines.tolist(),
        "psi": [psi_at(c, margin) for c in cosines],
        "slope": [slope_at(c, margin) for c in cosines],
        "knot_cos": knots.tolist(),
        "knot_psi": [psi_at(c, margin) for c in knots],
        "knot_slope": [slope_at(c, margin) for c in knots],
    }
    by_acos = definition.psi(torch.tensor(result["cos"], dtype=torch.float64), margin)
    difference = (by_acos - torch.tensor(result["psi"], dtype=torch.float64)).abs().max()
    assert difference < 1e-13 * margin, f"psi for margin {margin}: acos is off by {difference:.1e}"
    return result


def knot_cosines(margin) -> np.ndarray:
    """cos(k pi / m) for every k pi / m in [0, pi]: the ends of the intervals, in float64."""
    return np.array([float(mp.cospi(k / decimal(margin))) for k in range(int(margin) + 1)])


def psi_at(cosine: float, margin) -> float:
    """(-1)^k cos(m theta) - 2k."""
    theta = mp.acos(mpf(float(cosine)))
    k = min(int(mp.floor(decimal(margin) * theta / mp.pi)), int(mp.ceil(decimal(margin))) - 1)
    return rounded((-1) ** k * mp.cos(decimal(margin) * theta) - 2 * k)


def slope_at(cosine: float, margin) -> float | None:
    """d psi / d cos = m |sin(m theta)| / sin(theta), and its limit m^2 at the ends."""
    if abs(cosine) == 1:
        return rounded(decimal(margin) ** 2) if cosine > 0 or margin == int(margin) else None
    theta = mp.acos(mpf(float(cosine)))
    return rounded(decimal(margin) * abs(mp.sin(decimal(margin) * theta)) / mp.sin(theta))


def rounded(value: mpf) -> float:
    """The nearest float64. What is left of a zero after 60 digits becomes zero."""
    return float(mp.chop(value, tol=mpf("1e-50")))


def decimal(margin) -> mpf:
    """The margin as the float64 that a reader of the file gets."""
    return mpf(float(margin))
