"""Tables of results, for a terminal and in Markdown."""
from harness import figures, results
from harness.benchmark import OURS


def with_unit(side, unit):
    return f"{figures.spread(side)} {unit}"


def limit_cell(row):
    """How much of what the machine can do Lockstep reaches."""
    if not row["limit"]:
        return ""
    limit = row["sides"][row["limit"]]
    return f"{row['limit']}: {figures.number(limit['median'])} {row['unit']} ({100 * limit['ratio']['median']:.0f} %)"


def ratio_text(ratio):
    return figures.spread(ratio, figures.ratio) if ratio else ""


def is_behind(ratio):
    return bool(ratio) and ratio["median"] < 1


def lines(rows):
    """(cells, whether Lockstep is behind) of each line: a row has one for each peer, or one of its own where there is none."""
    for row in rows:
        ours = with_unit(row["sides"][OURS], row["unit"]) if OURS in row["sides"] else "-"
        first = [row["what"], ours]
        for name in results.peers_of(row) or [None]:
            peer, ratio, behind = "", "", False
            if name:
                side = row["sides"][name]
                peer, ratio = f"{name}: {with_unit(side, row['unit'])}", ratio_text(side["ratio"])
                behind = is_behind(side["ratio"])
            yield [*first, peer, ratio, limit_cell(row) if first[0] else ""], behind
            first = ["", ""]


HEAD = ["what", OURS, "peer", "times as good", "limit"]


def markdown(rows):
    """Lockstep's ratio is bold where it is behind."""
    out = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    for cells, behind in lines(rows):
        if behind:
            cells[3] = f"**{cells[3]}**"
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def middle(row, name):
    return f"{figures.number(row['sides'][name]['median'])} {row['unit']}" if name in row["sides"] else "-"


def short(rows, docs):
    """In Markdown, beside the peer that did best; `docs` leads to the folder of the pages."""
    out = ["| what | Lockstep | best peer | times as good | page |", "|" + " --- |" * 5]
    for row in rows:
        best = min(results.compared(row), key=lambda name: row["sides"][name]["ratio"]["median"], default=None)
        peer, ratio = (f"{best}: {middle(row, best)}", figures.ratio(row["sides"][best]["ratio"]["median"])) if best else ("", "")
        page = f"[{row['page'].removesuffix('.md')}]({docs}{row['page']})"
        out.append(f"| {row['what']} | {middle(row, OURS)} | {peer} | {ratio} | {page} |")
    return "\n".join(out) + "\n"


def narrow(row):
    """(cells, whether Lockstep is behind), as lines(), for a terminal: medians alone."""
    first = [row["what"], middle(row, OURS)]
    limit = f"{100 * row['sides'][row['limit']]['ratio']['median']:.0f} % of {row['limit']}" if row["limit"] else ""
    for name in results.peers_of(row) or [None]:
        ratio = row["sides"][name]["ratio"] if name else None
        peer, times = (f"{middle(row, name)} {name}", ratio_text(ratio)) if name else ("", "")
        yield [*first, peer, times, limit], is_behind(ratio)
        first, limit = ["", ""], ""


def aligned(table):
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table) + "\n"


def terminal(rows):
    """Lines in which Lockstep is behind begin with an exclamation mark."""
    body = [["!" if behind else "", *cells] for row in rows for cells, behind in narrow(row)]
    return aligned([["", *HEAD], *body])
