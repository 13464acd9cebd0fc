#!/usr/bin/env python3
"""All benchmarks: Lockstep beside its peers, alternately. `make bench` builds what this runs.

    bench.py [--build BUILD] [--quick] [--only NAME,NAME] [--output FOLDER] [--python PYTHON] [--rounds N]
        measures, and writes results.json, results.md and plots (SVG) into FOLDER (bench)
    bench.py --compare BUILD_OR_COMMIT [--build BUILD] ...
        two builds of Lockstep, alternately: what is slower in BUILD? compare.json, compare.md, compare.svg
    bench.py --write-docs RESULTS.json
        records these results, and writes them into the tables of README.md and docs/
    bench.py --list | --targets [--only NAME,NAME]
        the benchmarks there are; what `cmake --build` has to build for them

Peers are installed into .venv-bench with the versions in harness/peers.py, unless --python names a Python that has them. Those
that cannot be had are named, and the rest is measured. The exit status is 1 if a benchmark failed, and 2 for a wrong command line.
"""
import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from harness import compare, machine, one, pages, peers, plots, results, suite, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 3600  # Of one benchmark.
QUICK_SECONDS = 540  # Of a quick run, so that what a round takes longer than the one before still fits into ten minutes.
ENVIRONMENT = dict(os.environ)  # A benchmark's settings, made when it is loaded, are not those of another one.
BEGIN = time.monotonic()


def tell(text):
    print(f"== {time.monotonic() - BEGIN:4.0f} s: {text}", file=sys.stderr, flush=True)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder (build)")
    parser.add_argument("--quick", action="store_true", help="less of everything: ten minutes on two cores")
    parser.add_argument("--only", default="", help="names of benchmarks")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench", help="the folder of the results (bench)")
    parser.add_argument("--python", help="a Python that has the peers; nothing is installed")
    parser.add_argument("--rounds", type=int, help="rounds of each benchmark, instead of its own number")
    parser.add_argument("--compare", metavar="BUILD_OR_COMMIT", help="another build folder, or a commit that is built first")
    parser.add_argument("--write-docs", metavar="RESULTS", help="write these results into the pages")
    parser.add_argument("--list", action="store_true", help="print the names of the benchmarks")
    parser.add_argument("--targets", action="store_true", help="print what has to be built")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)  # This process measures one benchmark,
    parser.add_argument("--base", type=pathlib.Path, help=argparse.SUPPRESS)  # of this build and --build,
    parser.add_argument("--result", help=argparse.SUPPRESS)  # and writes what came out into this file,
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)  # within about so many seconds.
    options = parser.parse_args(words)
    try:
        options.names = suite.selected(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def run_one(name, options, python, base, place, seconds):
    """One benchmark in a process group of its own, which ends with us: its result, or {"error": text}."""
    output = os.path.join(place, name + ".json")
    words = [python, "-B", os.path.abspath(__file__), "--one", name, "--build", options.build, "--result", output]
    words += ["--quick"] * options.quick + (["--base", base] if base else []) + (["--rounds", str(options.rounds)] if options.rounds else [])
    words += ["--seconds", str(seconds)] if seconds else []
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True)
    try:
        status = child.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        status = f"nothing for {LIMIT_SECONDS} s"
    finally:
        end_group(child)
    if not os.path.exists(output):
        return {"error": f"ended with {status}"}
    with open(output, encoding="utf-8") as file:
        return json.load(file)


def end_group(child):
    """What a benchmark leaves behind would disturb the next one."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def wanted_modules(names):
    return sorted({module for name in names for modules in suite.load(name).peers.values() for module in modules})


def python_of(options):
    """The Python that runs the benchmarks. Two builds need peers as well: some make the texts and images."""
    python, missing = peers.prepare(ROOT, wanted_modules(options.names), tell, options.python)
    if missing:
        tell(f"{python} lacks {', '.join(missing)}: what needs them is left out")
    return python


def measure(options, python, base=None):
    """The text of results.json."""
    watch, started = machine.Watch(), datetime.datetime.now(datetime.timezone.utc)
    found = {"format": results.FORMAT, "started": started.isoformat(timespec="seconds"), "quick": options.quick,
             "commit": machine.commit(ROOT), "machine": machine.describe(), "versions": {}, "rows": [], "others": {}, "outputs": {},
             "missing": {}, "failed": {}, "interrupted": False}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="files-", dir=options.output) as place:  # On the disk of the checkout.
        try:
            for number, name in enumerate(options.names, 1):
                seconds = share_of_rest(options.names[number - 1:], time.monotonic() - begin) if is_hurried(options) else None
                add(found, name, measure_one(name, number, options, python, base, place, seconds))
        except KeyboardInterrupt:
            found["interrupted"] = True
    found["machine"]["others"] = watch.others()
    found["seconds"] = round(time.monotonic() - BEGIN)
    return found


def is_hurried(options):
    return options.quick and not options.rounds


def share_of_rest(names, used):
    """Seconds for the first of the benchmarks that remain: what one does not need, the later ones get."""
    shares = [suite.load(name).quick_share for name in names]
    return max(0.1, (QUICK_SECONDS - used) * shares[0] / sum(shares))


def measure_one(name, number, options, python, base, place, seconds):
    benchmark = suite.load(name)
    tell(f"{name} ({number} of {len(options.names)}): {benchmark.what}")
    for build in filter(None, (base, options.build)):
        lacking = suite.missing_programs(benchmark, build)
        if lacking:
            return {"error": f"{build} lacks {', '.join(lacking)}: cmake --build {build} --target {' '.join(suite.targets([name]))}"}
    return run_one(name, options, python, base, place, seconds)


def add(found, name, result):
    if "error" in result:
        found["failed"][name] = result["error"]
        tell(f"{name} failed: {result['error']}")
        return
    found["rows"] += result["rows"]
    found["versions"].update(result["versions"])
    found["others"][name], found["outputs"][name] = result["others"], result["outputs"]
    found["missing"].update({f"{name}: {side}": modules for side, modules in result["missing"].items()})


def write_file(path, text):
    if text:
        path.write_text(text, encoding="utf-8")


def remarks(found):
    """What a reader of the tables has to know."""
    yield machine.sentence(found)
    if found["quick"]:
        yield "A quick run has few rounds of small sizes: its ratios vary more than those of a full one."
    single = sorted({row["benchmark"] for row in found["rows"] if max(len(side["rounds"]) for side in row["sides"].values()) == 1})
    if single:
        yield f"One round alone: {', '.join(single)}."
    for side, modules in sorted(found["missing"].items()):
        yield f"Not measured: {side} (not installed: {', '.join(modules)})."
    for name, error in found["failed"].items():
        yield f"Failed: {name}: {error}"
    if found["interrupted"]:
        yield "Interrupted: not all was measured."


def show(found, folder):
    """Prints the table; writes it, and the plots."""
    rows = results.ordered(found["rows"])
    print("\n".join(remarks(found)) + "\n\n" + (tables.terminal(rows) if rows else "Nothing was measured.\n"), flush=True)
    if not rows:
        return
    for name in ("overview", *suite.NAMES):  # Those of an earlier run.
        (folder / f"{name}.svg").unlink(missing_ok=True)
    note = machine.sentence(found)
    write_file(folder / "results.md", "# Benchmarks\n\n" + "\n\n".join(remarks(found)) + "\n\n" + tables.markdown(rows))
    write_file(folder / "overview.svg", plots.overview(rows, note))
    for name in sorted({row["benchmark"] for row in rows}):
        of_one = [row for row in found["rows"] if row["benchmark"] == name]
        write_file(folder / f"{name}.svg", plots.bars(f"{name}: {suite.load(name).what}", of_one, note))
    tell(f"{folder}: results.json, results.md and {len(list(folder.glob('*.svg')))} plots")


def show_changes(found, folder):
    rows = compare.ordered(found["rows"])
    builds = "\n".join(f"{which}: {build}" for which, build in zip(("first", "second"), found["builds"]))
    print("\n".join(remarks(found)) + f"\n{builds}\n\n" + (compare.terminal(rows) if rows else "Nothing was measured.\n"), flush=True)
    if rows:
        text = "\n\n".join(["# Two builds", *remarks(found), *builds.splitlines(), compare.markdown(rows)])
        write_file(folder / "compare.md", text)
        write_file(folder / "compare.svg", plots.changes(rows, builds.replace("\n", "; ") + ". " + machine.sentence(found)))


def interrupt(*_):
    raise KeyboardInterrupt


def run(options):
    signal.signal(signal.SIGTERM, interrupt)  # The benchmark that runs has to end, too.
    python = python_of(options)
    base = compare.base_build(ROOT, options.compare, options.names, tell) if options.compare else None
    if base == options.build:
        raise ValueError(f"{base} would be compared with itself: name another build folder, or a commit")
    options.output.mkdir(parents=True, exist_ok=True)
    found = measure(options, python, base)
    if base:
        found["builds"] = [str(base), str(options.build)]
    results.write(found, options.output / ("compare.json" if base else "results.json"))
    (show_changes if base else show)(found, options.output)
    return 130 if found["interrupted"] else 1 if found["failed"] else 0


def main(words):
    options = parse(words)
    options.build = options.build.resolve()
    if options.one:
        builds = [options.base, options.build] if options.base else [options.build]
        one.run(options.one, builds, options.quick, options.result, options.rounds, options.seconds)
    elif options.list:
        for name in options.names:
            print(f"{name:20} {suite.load(name).what}")
    elif options.targets:
        print(" ".join(suite.targets(options.names)))
    else:
        try:
            if options.write_docs:
                print("written: " + ", ".join(pages.write(ROOT, options.write_docs)))
                return 0
            return run(options)
        except (ValueError, OSError, subprocess.CalledProcessError) as error:
            print(f"bench.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
