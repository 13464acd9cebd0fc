"""One benchmark in a process of its own, run by the Python that has the peers."""
import contextlib
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import traceback

from harness import figures, machine, suite, turns
from harness.benchmark import OURS, Outputs, Setting


def find(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def absent_peers(benchmark):
    """{side: the modules that this Python does not have}."""
    missing = {side: [module for module in modules if not find(module)] for side, modules in benchmark.peers.items()}
    return {side: modules for side, modules in missing.items() if modules}


def sides_of(benchmark, setting, builds):
    """All sides of one build; or our side alone, of each of two builds, under the names of the builds."""
    absent = absent_peers(benchmark)
    if len(builds) == 1:
        return {name: turn for name, turn in benchmark.sides(setting(builds[0])).items() if name not in absent}
    return {str(build): benchmark.sides(setting(build))[OURS] for build in builds if OURS not in absent}


def measure(benchmark, builds, quick, folder, tell, rounds=None, seconds=None):
    """What results.json says of a benchmark."""
    outputs, watch = Outputs(), machine.Watch()

    def setting(build):
        return Setting(build, pathlib.Path(tempfile.mkdtemp(dir=folder)), quick, outputs)

    count = rounds or (benchmark.quick_rounds if quick else benchmark.rounds)
    found = turns.take(sides_of(benchmark, setting, builds), count, tell, benchmark.warm_up and not quick, seconds)
    ours = {str(build) for build in builds} if len(builds) > 1 else {OURS}
    rows = [row_text(benchmark, row, found[row.name], builds) for row in benchmark.rows if ours <= found.get(row.name, {}).keys()]
    return {"rows": rows, "others": watch.others(), "outputs": outputs.values, "versions": machine.versions(),
            "missing": {side: modules for side, modules in absent_peers(benchmark).items() if len(builds) == 1 or side == OURS}}


def row_text(benchmark, row, sides, builds):
    ours = str(builds[0]) if len(builds) > 1 else OURS
    summaries = {name: figures.side_summary(rounds) for name, rounds in sides.items()}
    limits = benchmark.limits()
    for name, summary in summaries.items():
        if name != ours and ours in summaries and (name not in limits or name == row.limit):
            summary["ratio"] = figures.ratio_summary(summaries[ours]["rounds"], summary["rounds"], row.better)
    return {"benchmark": benchmark.name, "row": row.name, "what": row.what, "unit": row.unit, "better": row.better,
            "page": benchmark.page, "limit": row.limit if row.limit in summaries and ours in summaries else "", "sides": summaries}


def run(name, builds, quick, output, rounds=None, seconds=None):
    """Writes the result, or {"error": what went wrong}, as JSON into the file `output`."""
    def tell(text):
        print(f"   {name}, {text}", file=sys.stderr, flush=True)

    # What a peer prints is no part of ours.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(output)) as folder, contextlib.redirect_stdout(sys.stderr):
        try:
            result = measure(suite.load(name), builds, quick, folder, tell, rounds, seconds)
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
    with open(output + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(output + ".new", output)
