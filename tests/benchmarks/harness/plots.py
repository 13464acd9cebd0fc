"""Plots of results as SVG, which a browser and GitHub show by themselves; in the reader's light or dark colors."""
import html
import math

from harness import figures, results
from harness.benchmark import OURS

STYLE = """<style>
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 } .small { font-size: 12px; fill: #57606a }
.paper { fill: #ffffff } .ours { fill: #0969da } .peer { fill: #8c959f } .limit { fill: none; stroke: #57606a; stroke-dasharray: 4 3 }
.behind { fill: #cf222e } .whisker { stroke: #1f2328; stroke-width: 1.5 } .grid { stroke: #d0d7de } .one { stroke: #57606a; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9da7b1 } .paper { fill: #0d1117 } .ours { fill: #4493f8 } .peer { fill: #7d8590 } .limit { stroke: #9da7b1 }
.behind { fill: #f85149 } .whisker { stroke: #e6edf3 } .grid { stroke: #30363d } .one { stroke: #9da7b1 } }
</style>"""
MARGIN, LINE, BAR = 16, 22, 14
PLOT = 420  # Width of the part with bars or points.


def width_of(text, size=13):
    """An upper bound: no letter of the usual fonts is wider on average than this share of its size."""
    return math.ceil(len(text) * size * 0.64) + 4


class Drawing:
    """Elements from top to bottom. `right` is where the widest one ends."""

    def __init__(self, title, notes=()):
        self.parts, self.y, self.right = [], MARGIN, 0
        self.write(title, "title", 16)
        for note in notes:
            self.write(note, "small", 12)
        self.y += 8

    def write(self, text, kind, size):
        self.y += LINE
        self.text(MARGIN, self.y - 6, text, kind, size)

    def text(self, x, y, text, kind="", size=13, anchor="start"):
        place = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{place}>{html.escape(text)}</text>')
        self.right = max(self.right, x + {"start": 1, "middle": 0.5, "end": 0}[anchor] * width_of(text, size))

    def rectangle(self, x, y, width, height, kind):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}" class="{kind}"/>')
        self.right = max(self.right, x + width)

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def svg(self):
        width, height = math.ceil(self.right + MARGIN), math.ceil(self.y + MARGIN)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        return "\n".join([head, STYLE, f'<rect width="{width}" height="{height}" class="paper"/>', *self.parts, "</svg>"]) + "\n"


def wrapped(text, limit=110):
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > limit:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def bars(title, rows, note):
    """A group of bars for each row: all sides, with whiskers from the 10th to the 90th percentile, on a scale of its own."""
    drawing = Drawing(title, wrapped(note))
    left = MARGIN + max(width_of(name) for row in rows for name in row["sides"]) + 8
    for row in rows:
        direction = "lower is better" if row["better"] == "lower" else "higher is better"
        drawing.write(f"{row['what']}, {row['unit']} ({direction})", "", 13)
        longest = max(side["p90"] for side in row["sides"].values()) or 1
        for name, side in row["sides"].items():
            y, scale = drawing.y, PLOT / longest
            kind = "limit" if name == row["limit"] else "ours" if name == OURS else "peer"
            drawing.text(left - 8, y + 11, name, anchor="end")
            drawing.rectangle(left, y, side["median"] * scale, BAR, kind)
            drawing.line(left + side["p10"] * scale, y + BAR / 2, left + side["p90"] * scale, y + BAR / 2, "whisker")
            drawing.text(left + PLOT + 10, y + 11, figures.spread(side))
            drawing.y += LINE - 3
        drawing.y += 8
    return drawing.svg()


def ticks(low, high):
    """Round numbers of a logarithmic scale, few enough to be read."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) <= 3 else (1,)
    return [tick for decade in decades for digit in digits if low <= (tick := digit * 10.0**decade) <= high]


def overview(rows, note):
    """A point for each peer of each row: how many times as good as this peer Lockstep is, on a logarithmic scale."""
    points = [(row, name, row["sides"][name]["ratio"]) for row in rows for name in results.compared(row)]
    if not points:
        return None
    drawing = Drawing("How many times as good as its peers Lockstep is (right of the line: ahead)", wrapped(note))
    labels = [f"{row['what']}, beside {name}" for row, name, _ in points]
    left = MARGIN + max(width_of(label) for label in labels) + 12
    low = min(0.8, *(ratio["p10"] for _, _, ratio in points)) / 1.05
    high = max(1.25, *(ratio["p90"] for _, _, ratio in points)) * 1.05

    def place(value):
        return left + PLOT * math.log(value / low) / math.log(high / low)

    top = drawing.y
    bottom = top + LINE * len(points) + 4
    for tick in ticks(low, high):
        drawing.line(place(tick), top, place(tick), bottom, "one" if tick == 1 else "grid")
        drawing.text(place(tick), bottom + 16, f"{tick:g}", "small", 12, "middle")
    for (_, _, ratio), label in zip(points, labels):
        y = drawing.y + LINE / 2 + 2
        drawing.text(left - 12, y + 4, label, anchor="end")
        drawing.line(place(ratio["p10"]), y, place(ratio["p90"]), y, "whisker")
        kind = "behind" if ratio["median"] < 1 else "ours"
        drawing.parts.append(f'<circle cx="{place(ratio["median"]):.1f}" cy="{y:.1f}" r="5" class="{kind}"/>')
        drawing.text(left + PLOT + 14, y + 4, figures.spread(ratio, figures.ratio))
        drawing.y += LINE
    drawing.y = bottom + 20
    return drawing.svg()


def scaled(ratio):
    """Twice as long is as far from the middle as half as long."""
    return math.log(max(ratio, 1e-6))


def changes(rows, note):
    """A point for each row: the second build's time relative to the first's."""
    drawing = Drawing("The second build relative to the first (right of the line: worse)", wrapped(note))
    left = MARGIN + max(width_of(row["what"]) for row in rows) + 12
    reach = max(0.05, *(abs(scaled(edge)) for _, ratio in rows_with_changes(rows) for edge in (ratio["p10"], ratio["p90"])))
    top = drawing.y
    bottom = top + LINE * len(rows) + 4

    def place(value):
        return left + PLOT * (scaled(value) + reach) / (2 * reach)

    for tick in (math.exp(-reach), 1, math.exp(reach)):
        drawing.line(place(tick), top, place(tick), bottom, "one" if tick == 1 else "grid")
        drawing.text(place(tick), bottom + 16, f"{tick:.2f}", "small", 12, "middle")
    for row, ratio in rows_with_changes(rows):
        y = drawing.y + LINE / 2 + 2
        drawing.text(left - 12, y + 4, row["what"], anchor="end")
        drawing.line(place(ratio["p10"]), y, place(ratio["p90"]), y, "whisker")
        kind = "behind" if ratio["p10"] > 1 else "ours"
        drawing.parts.append(f'<circle cx="{place(ratio["median"]):.1f}" cy="{y:.1f}" r="5" class="{kind}"/>')
        drawing.text(left + PLOT + 14, y + 4, figures.spread(ratio, lambda value: f"{value:.3f}"))
        drawing.y += LINE
    drawing.y = bottom + 20
    return drawing.svg()


def rows_with_changes(rows):
    return [(row, next(side["ratio"] for side in row["sides"].values() if "ratio" in side)) for row in rows]
