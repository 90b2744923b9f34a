"""Draws docs/psi.svg: the function ψ for m = 1 to 4, and the gap it opens between two classes.

    python reference/draw_psi.py
"""

import math
from pathlib import Path

COLOURS = {1: "#8a8f98", 2: "#2a78b5", 3: "#d9822b", 4: "#b5363c"}
INK, FAINT = "#24292f", "#d0d7de"


def psi(theta: float, m: int) -> float:
    k = min(int(m * theta / math.pi), m - 1)
    return (-1) ** k * math.cos(m * theta) - 2 * k


def text(x, y, words, anchor="middle", colour=INK, size=13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{words}</text>'


def line(x1, y1, x2, y2, colour=FAINT, width=1.0, extra="") -> str:
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width}" {extra}/>')


def curves(left: float, top: float, width: float, height: float) -> list[str]:
    low, high = -7.2, 1.2
    at = lambda theta, value: (left + width * theta / math.pi, top + height * (high - value) / (high - low))
    parts = [text(left + width / 2, top - 16, "the label's cosine becomes ψ(θ)", size=15)]
    for value in range(-7, 2, 2):
        (x1, y), (x2, _) = at(0, value), at(math.pi, value)
        parts += [line(x1, y, x2, y), text(x1 - 8, y + 4, str(value).replace("-", "−"), "end")]
    for degrees in (0, 45, 90, 135, 180):
        x, y = at(math.radians(degrees), low)
        parts += [line(x, y, x, y + 5, INK), text(x, y + 20, f"{degrees}°")]
    parts.append(text(left + width / 2, top + height + 40, "angle θ between the sample and its class"))
    for m, colour in COLOURS.items():
        points = (at(math.pi * i / 180, psi(math.pi * i / 180, m)) for i in range(181))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        x, y = at(math.pi, psi(math.pi, m))
        parts.append(text(x + 8, y + 4, f"m = {m}" + (" (softmax)" if m == 1 else ""), "start", colour))
    return parts


def fan(cx: float, cy: float, radius: float, m: int) -> list[str]:
    """Two classes at 90°: what each claims in training, and the gap between them."""
    between = math.pi / 2
    claim = between / (m + 1)
    at = lambda theta, r: (cx + r * math.cos(theta), cy - r * math.sin(theta))

    def sector(a, b, colour):
        (x1, y1), (x2, y2) = at(a, radius), at(b, radius)
        return (f'<path d="M{cx:.1f},{cy:.1f} L{x1:.1f},{y1:.1f} A{radius},{radius} 0 0 0 {x2:.1f},{y2:.1f} Z" '
                f'fill="{colour}" fill-opacity="0.25"/>')

    parts = [sector(0, claim, COLOURS[2]), sector(between - claim, between, COLOURS[4])]
    for theta, name in ((0.0, "W₁"), (between, "W₂")):
        x, y = at(theta, radius)
        parts += [line(cx, cy, x, y, INK, 1.8), text(*at(theta, radius + 14), name)]
    margin = (m - 1) / (m + 1) * 90
    parts.append(text(*at(between / 2, radius * 0.68), f"{margin:.0f}°" if m > 1 else "", size=13))
    parts.append(text(cx + radius / 2, cy + 24, f"m = {m}", colour=COLOURS[m]))
    return parts


def main() -> None:
    width, height = 860, 400
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="system-ui, sans-serif">', f'<rect width="{width}" height="{height}" fill="white"/>']
    parts += curves(50, 50, 330, 280)
    parts.append(text(680, 34, "and opens a gap between classes", size=15))
    for m in COLOURS:
        column, row = (m - 1) % 2, (m - 1) // 2
        parts += fan(540 + 165 * column, 175 + 165 * row, 105, m)
    parts.append("</svg>\n")
    target = Path(__file__).resolve().parent.parent / "docs" / "psi.svg"
    target.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
