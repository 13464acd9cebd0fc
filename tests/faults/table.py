"""One line for each fault: what happens, what is promised, how long it took, what is left on disk, and whether the promise was kept.

    python3 tests/faults/table.py BUILD [--quick] [--only NAME,NAME] [--seed 1] [--slack 20] [--record FILE.json]
    python3 tests/faults/table.py --list
    python3 tests/faults/table.py --write FILE.json PAGE.md     # the table of a recorded run into a page

BUILD is a build folder of the `tests` preset with the targets lockstep_launcher, checkpoint_probe and probe. Each verdict comes
from facts: exit status, time, the line that names cause and rank, no process left, checkpoints whose every byte is verified, no
half-written file, and the losses and the last state of a training that goes on afterwards, bit for bit those of an undisturbed
one. The exit status is 1 if a promise was not kept. --quick makes faults that come at random moments once instead of four times,
and the storm of losses with 3 kills instead of 10. What a machine cannot make (small file systems need root) is skipped, with the reason.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import promises
import trials
from traces import trace

COLUMNS = ("fault", "promise", "time", "left on disk", "verdict")
PLACE = re.compile(r"(<!-- faults: (\S+) -->\n).*?(<!-- end of faults -->)", re.DOTALL)


def own_mounts():
    """Mounts of this process and its children are theirs alone, and gone with them. Without root there are none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.unshare(0x00020000) == 0 and libc.mount(None, b"/", None, 0x4000 | 0x40000, None) == 0


class Undisturbed:
    """The trace of a training to which nothing happens; made when it is first asked for."""

    def __init__(self, build, folder):
        self.build, self.folder, self.found = build, folder, None

    def __call__(self):
        if self.found is None:
            self.folder.mkdir()
            job = trials.Trial(self.build, self.folder, random, True, None).start(step_time=0)
            assert job.wait() == 0, job.errors()[-3000:]
            self.found = trace(self.folder, trials.RANKS)
        return self.found


def tried(name, options, undisturbed):
    """The record of one fault."""
    happens, promise, function = promises.FAULTS[name]
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as folder:
        trial = trials.Trial(options.build, pathlib.Path(folder), random.Random(f"{options.seed} {name}"), options.quick, undisturbed)
        begin, why = time.monotonic(), ""
        try:
            function(trial)
            verdict = "kept"
        except promises.Skipped as reason:
            verdict, why = "skipped", str(reason)
        except (AssertionError, OSError, trials.subprocess.SubprocessError) as error:
            verdict, why = "BROKEN", trial.without_places(str(error) or type(error).__name__)
        finally:
            trial.end()
    return {"name": name, "fault": happens, "promise": promise, "seconds": None if trial.seconds is None else round(trial.seconds, 2),
            "left": trial.left, "said": trial.said, "verdict": verdict, "why": why, "all_seconds": round(time.monotonic() - begin, 1),
            "quick": options.quick, "seed": options.seed, "load": round(os.getloadavg()[0], 1)}


def record_in(path, found):
    """The records in a file, with these in their places."""
    known = {record["name"]: record for record in json.loads(path.read_text())["faults"]} if path.exists() else {}
    known.update({record["name"]: record for record in found})
    faults = [known[name] for name in promises.FAULTS if name in known]
    path.write_text(json.dumps({"cpus": len(os.sched_getaffinity(0)), "faults": faults}, indent=1) + "\n")


def cells(record):
    seconds = "" if record["seconds"] is None else f"{record['seconds']:.1f} s"
    first = record["why"].splitlines()[0] if record["why"] else ""
    return record["fault"], record["promise"], seconds, record["left"], record["verdict"] + (f": {first[:200]}" if first else "")


def row(words):
    return "| " + " | ".join(str(word).replace("|", "\\|") for word in words) + " |"


def as_markdown(result):
    return "\n".join([row(COLUMNS), row(["---"] * len(COLUMNS)), *(row(cells(record)) for record in result["faults"])]) + "\n"


def write(result, page):
    text = page.read_text()
    written, count = PLACE.subn(lambda place: place[1] + as_markdown(result) + place[3], text)
    assert count == 1, f"{page} has {count} places `<!-- faults: FILE -->` ... `<!-- end of faults -->`"
    page.write_text(written)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="NAME,NAME", type=lambda text: text.split(","), default=list(promises.FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slack", type=float, default=trials.SLACK, help="seconds that a busy machine may take more than an idle one")
    parser.add_argument("--record", type=pathlib.Path, help="keeps what was found; what it has of other faults stays there")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, nargs=2, metavar=("FILE.json", "PAGE.md"))
    options = parser.parse_args()
    if unknown := set(options.only) - set(promises.FAULTS):
        parser.error(f"no fault has the name {', '.join(sorted(unknown))}; --list shows them all")
    if not (options.build or options.list or options.write):
        parser.error("BUILD is missing")
    return options


def main():
    options = arguments()
    if options.list:
        print("\n".join(f"{name:22}{happens}" for name, (happens, _, _) in promises.FAULTS.items()))
        return 0
    if options.write:
        write(json.loads(options.write[0].read_text()), options.write[1])
        return 0
    options.build = options.build.resolve()
    own_mounts()
    trials.SLACK, found = options.slack, []
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as folder:
        undisturbed = Undisturbed(options.build, pathlib.Path(folder) / "undisturbed")
        print(row(COLUMNS), row(["---"] * len(COLUMNS)), sep="\n", flush=True)
        for name in options.only:
            found.append(tried(name, options, undisturbed))
            print(row(cells(found[-1])), flush=True)
            if options.record:
                record_in(options.record, found)
    broken = [record for record in found if record["verdict"] == "BROKEN"]
    for record in broken:
        print(f"\nBROKEN: {record['name']}: {record['why']}", file=sys.stderr)
    counts = {verdict: sum(record["verdict"] == verdict for record in found) for verdict in ("kept", "BROKEN", "skipped")}
    print(f"\n{counts['kept']} promises kept, {counts['BROKEN']} broken, {counts['skipped']} skipped")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
