"""Curves as SVG: panels below each other over one axis, for values over time and for models."""
import dataclasses
import math
from typing import Dict, List, Tuple

from harness import plots

WIDTH, HEIGHT, GAP = 640, 110, 46
COLORS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#57606a")
STYLE = "<style>" + " ".join(f".curve{number} {{ fill: none; stroke: {color}; stroke-width: 1.6 }} .name{number} {{ fill: {color} }}"
                             for number, color in enumerate(COLORS)) + "</style>"


@dataclasses.dataclass(frozen=True)
class Panel:
    """Lines of points (x, y) by name; the scale of y begins at 0."""
    title: str
    lines: Dict[str, List[Tuple[float, float]]]
    highest: float = 0  # Of the scale, at least.


def steps_of(highest):
    """Round numbers from 0 to a little more than the highest value, at most five."""
    step = 10 ** math.floor(math.log10(highest)) if highest > 0 else 1
    step = next(size for size in (step / 5, step / 2, step, step * 2) if highest / size <= 4.5)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


class Scale:
    """From values to places on the drawing; `logarithmic` for powers of two."""

    def __init__(self, low, high, start, length, logarithmic=False):
        self.map = math.log if logarithmic else float
        self.low, self.start, self.length = self.map(low), start, length
        self.span = (self.map(high) - self.low) or 1

    def __call__(self, value):
        return self.start + (self.map(value) - self.low) / self.span * self.length


def panel_drawn(drawing, panel, across):
    drawing.write(panel.title, "", 13)
    top, left = drawing.y + 4, across.start
    values = [y for line in panel.lines.values() for _, y in line]
    marks = steps_of(max([panel.highest, *values]))
    down = Scale(0, marks[-1], top + HEIGHT, -HEIGHT)
    for mark in marks:
        drawing.line(left, down(mark), left + WIDTH, down(mark), "grid")
        drawing.text(left - 8, down(mark) + 4, f"{mark:g}", "small", 12, "end")
    places = []
    for number, (name, line) in enumerate(panel.lines.items()):
        kind = number % len(COLORS)
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line)
        drawing.parts.append(f'<polyline points="{path}" class="curve{kind}"/>')
        places.append((down(line[-1][1]), kind, name))
    lowest = -math.inf
    for place, kind, name in sorted(places):  # Names beside the ends of their lines, apart from each other.
        lowest = max(place + 4, lowest + 14)
        drawing.text(left + WIDTH + 8, lowest, name, f"name{kind}", 12)
    drawing.y = top + HEIGHT


def axis_drawn(drawing, across, ticks, words):
    for tick in ticks:
        drawing.text(across(tick), drawing.y + 16, f"{tick:,g}", "small", 12, "middle")
    drawing.text(across.start + WIDTH / 2, drawing.y + 34, words, "small", 12, "middle")


def drawn(title, note, panels, axis, marks=(), logarithmic=False):
    """The text of the SVG. `marks` are places on the axis that get a tick above the curves; a logarithmic axis has a tick at
    every point of the first line."""
    drawing = plots.Drawing(title, plots.wrapped(note))
    drawing.parts.append(STYLE)
    xs = [x for panel in panels for line in panel.lines.values() for x, _ in line]
    across = Scale(min(xs) if logarithmic else 0, max(xs), plots.MARGIN + 64, WIDTH, logarithmic)
    for mark in marks:
        drawing.line(across(mark), drawing.y, across(mark), drawing.y + 7, "one")
    drawing.y += 8 if marks else 0
    first = next(iter(panels[0].lines.values()))
    ticks = [x for x, _ in first] if logarithmic else steps_of(max(xs))
    for panel in panels:
        panel_drawn(drawing, panel, across)
        axis_drawn(drawing, across, [tick for tick in ticks if tick <= max(xs)], axis if panel is panels[-1] else "")
        drawing.y += GAP - 22 if panel is not panels[-1] else GAP - 8
    return drawing.svg()
