"""Medians, percentiles and ratios of what was measured, and how they are written."""
import statistics


def quantile(values, share):
    """Between the two nearest values, as numpy.quantile()."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def rounded(value):
    """More digits than anything measured has."""
    return float(f"{value:.6g}")


def summary(values):
    return {name: rounded(quantile(values, share)) for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))}


def side_summary(rounds):
    """Of the values of all rounds; `rounds` keeps the median of each."""
    return {**summary([value for values in rounds for value in values]), "rounds": [rounded(statistics.median(values)) for values in rounds]}


def ratio_summary(ours, theirs, better):
    """How many times as good as theirs ours is, above 1 where ours is ahead: of medians of the same round. None for counts that
    are 0 in one of them."""
    pairs = list(zip(ours, theirs) if better == "higher" else zip(theirs, ours))
    return summary([one / other for one, other in pairs]) if all(other for _, other in pairs) else None


def number(value):
    """Three digits: 0.0123, 1.23, 123, 12,300."""
    if value == 0:
        return "0"
    value = float(f"{value:.3g}")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return text.rstrip(".") if "e" not in text else f"{value:.2g}"


def ratio(value):
    return number(value) if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def spread(figures, write=number):
    """12.3 (12.0 to 12.9); the middle alone where all are written the same."""
    middle, low, high = (write(figures[name]) for name in ("median", "p10", "p90"))
    return middle if low == high == middle else f"{middle} ({low} to {high})"
