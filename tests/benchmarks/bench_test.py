"""What bench.py does, without a look at any time: bench_test.py BUILD

The driver measures the real launcher beside a made-up torchrun, compares a build with one that is slower, and says what is missing;
its parts order, write and draw made-up figures.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import xml.etree.ElementTree

import bench
from harness import compare, figures, machine, one, pages, plots, results, suite, tables, turns
from harness.benchmark import OURS, Benchmark, Outputs, Row

HERE = pathlib.Path(__file__).resolve().parent
BUILD = sys.argv[1]
# Starts ranks and ends all of them when one fails, as torchrun does, slowly.
TORCHRUN = """
import os, subprocess, sys, time
place = sys.argv.index("--nproc-per-node") + 1
time.sleep(0.2)
ranks = [subprocess.Popen(sys.argv[place + 1:], env={**os.environ, "RANK": str(rank)}) for rank in range(int(sys.argv[place]))]
while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
    time.sleep(0.01)
failed = any(rank.poll() for rank in ranks)
for rank in ranks:
    rank.kill() if failed else None
    rank.wait()
sys.exit(failed)
"""
HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "datasets", "tokenizers"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
"""


def side(*rounds):
    return figures.side_summary([[float(value)] for value in rounds])


def row(name, ours, benchmark="b", better="lower", unit="ms", limit="", **others):
    """A row of results, as one.py makes it."""
    sides = {OURS: [[float(value)] for value in ours], **{peer: [[float(value)] for value in values] for peer, values in others.items()}}
    made = Benchmark(benchmark, "", "performance.md", (), None, ())
    return one.row_text(made, Row(name, f"the row {name}", unit, better, limit), sides, [pathlib.Path("build")])


def found(*rows):
    return {"format": results.FORMAT, "started": "2026-01-02T03:04:05+00:00", "quick": False, "commit": "0123abcd", "rows": list(rows),
            "machine": {"cpu": "A CPU", "cores": 2, "virtual": True, "memory_gib": 8, "kernel": "6.1", "system": "Debian", "load": [0, 0, 0],
                        "others": 0.0},
            "versions": {"torch": "2.11.0"}, "others": {}, "outputs": {}, "missing": {}, "failed": {}, "interrupted": False, "seconds": 1}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def give(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(textwrap.dedent(text), encoding="utf-8")
        return place


class Driver(InFolder):
    """bench.py as a process."""

    def bench(self, *words, modules="none", status=0):
        done = subprocess.run([sys.executable, "-B", HERE / "bench.py", "--python", sys.executable, "--output", self.folder / "out", *words],
                              env={**os.environ, "PYTHONPATH": str(self.folder / modules)}, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def read(self, name):
        return json.loads((self.folder / "out" / name).read_text(encoding="utf-8"))

    def test_lockstep_beside_a_peer(self):
        for name, text in (("torch/__init__.py", ""), ("torch/distributed/__init__.py", ""), ("torch/distributed/run.py", TORCHRUN)):
            self.give("fake/" + name, text)
        done = self.bench("--build", BUILD, "--quick", "--only", "launch", "--rounds", "2", modules="fake")
        self.assertIn("launch, round 2 of 2: torchrun", done.stderr)
        self.assertIn("starting 2 ranks", done.stdout)
        self.assertIn(" ms torchrun", done.stdout)
        measured = self.read("results.json")
        self.assertEqual([row["row"] for row in measured["rows"]], ["start_2", "memory_2", "death"])
        self.assertEqual(measured["failed"], {})
        self.assertTrue(measured["quick"])
        self.assertEqual(set(measured["machine"]), {"cpu", "cores", "virtual", "memory_gib", "kernel", "system", "load", "others"})
        for row in measured["rows"]:
            for name in (OURS, "torchrun"):
                figures_ = row["sides"][name]
                self.assertEqual(len(figures_["rounds"]), 2)
                self.assertTrue(0 < figures_["p10"] <= figures_["median"] <= figures_["p90"], row)
            self.assertGreater(row["sides"]["torchrun"]["ratio"]["median"], 0)
        self.assertEqual(measured["rows"][0]["limit"], "starting the programs alone")
        self.assertEqual(results.peers_of(measured["rows"][0]), ["torchrun"])
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()}, {"results.json", "results.md", "overview.svg", "launch.svg"})
        for name in ("overview.svg", "launch.svg"):
            xml.etree.ElementTree.parse(self.folder / "out" / name)

    def test_peers_that_are_missing(self):
        self.give("hidden/sitecustomize.py", HIDE)
        done = self.bench("--build", BUILD, "--quick", "--only", "launch,store", "--rounds", "1", modules="hidden")
        self.assertIn("Not measured: launch: torchrun (not installed: torch).", done.stdout)
        measured = self.read("results.json")
        self.assertEqual({row["benchmark"] for row in measured["rows"]}, {"launch"})
        self.assertNotIn("torchrun", measured["rows"][0]["sides"])

    def test_a_slower_build(self):
        for name in ("lockstep",):
            script = self.give(f"slow/bin/{name}", f'#!/bin/sh\nsleep 0.7\nexec "{BUILD}/bin/{name}" "$@"\n')
            script.chmod(0o755)
        done = self.bench("--compare", BUILD, "--build", self.folder / "slow", "--quick", "--only", "launch", "--rounds", "3")
        measured = self.read("compare.json")
        self.assertEqual(measured["builds"], [os.path.realpath(BUILD), os.path.realpath(self.folder / "slow")])
        ordered = compare.ordered(measured["rows"])
        self.assertEqual((ordered[0]["row"], compare.verdict(ordered[0])), ("start_2", "slower"))
        self.assertRegex(done.stdout, r"starting 2 ranks.* slower\n")
        self.assertEqual(done.stdout.count("slower\n"), 1 + (compare.verdict(ordered[1]) == "slower") + (compare.verdict(ordered[2]) == "slower"))
        xml.etree.ElementTree.parse(self.folder / "out" / "compare.svg")

    def test_a_build_without_the_programs(self):
        self.give("empty/CMakeCache.txt", "")
        done = self.bench("--build", self.folder / "empty", "--only", "save", status=1)
        self.assertRegex(done.stderr, r"save failed: .*/empty lacks tests/save_benchmark: cmake --build .*/empty --target save_benchmark")
        self.assertEqual(self.read("results.json")["rows"], [])

    def test_an_interrupted_run_ends_what_it_has_started(self):
        started = self.folder / "started"
        os.mkfifo(started)
        self.give("slow/bin/lockstep", f'#!/bin/sh\necho $$ >"{started}"\nexec sleep 200\n').chmod(0o755)
        words = ["--python", sys.executable, "--output", self.folder / "out", "--build", self.folder / "slow", "--only", "launch"]
        with subprocess.Popen([sys.executable, "-B", HERE / "bench.py", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
            rank = int(started.read_text(encoding="utf-8"))  # Waits for it.
            run.terminate()
            self.assertIn("Interrupted: not all was measured.\n", run.communicate()[0])
        self.assertEqual(run.returncode, 130)
        self.assertTrue(self.read("results.json")["interrupted"])
        self.assertEqual([path.name for path in (self.folder / "out").iterdir()], ["results.json"])
        stat = machine.read(f"/proc/{rank}/stat")  # Gone, or not yet collected by init.
        self.assertTrue(not stat or stat.rpartition(") ")[2].startswith("Z"), stat)

    def test_wrong_command_lines(self):
        self.assertIn("there is no benchmark lunch: there are launch, ", self.bench("--only", "launch,lunch", status=2).stderr)
        done = self.bench("--compare", "no-such-commit", "--only", "launch", status=1)
        self.assertTrue(done.stderr.endswith("bench.py: no-such-commit is neither a build folder nor a commit of this checkout\n"), done.stderr)
        self.give("old.json", '{"format": 0}')
        self.assertIn("has format 0", self.bench("--write-docs", self.folder / "old.json", status=1).stderr)


class Commits(InFolder):
    """A commit to compare with is checked out beside the build folder and built there, by a cmake that only notes how it was called."""

    CMAKE = """#!/bin/sh
    echo "$PWD: $*" >>"$CALLS"
    """

    def test_a_commit_is_built(self):
        self.give("bin/cmake", self.CMAKE).chmod(0o755)
        self.give("root/scripts/jobs", "#!/bin/sh\necho 3\n").chmod(0o755)
        (self.folder / "root/.venv").mkdir()
        root, git = self.folder / "root", ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", self.folder / "root"]
        for words in (["init", "-q"], ["add", "scripts"], ["commit", "-q", "-m", "First"]):
            subprocess.run([*git, *words], check=True)
        commit = machine.commit(root)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(PATH=f"{self.folder}/bin:{before['PATH']}", CALLS=str(self.folder / "calls"))
        os.environ.pop("JOBS", None)
        for _ in range(2):  # The second time, the checkout is there.
            build = compare.base_build(root, "HEAD", ["launch", "map"], lambda text: None)
        source = build.parent
        self.assertEqual(source.parent, root / "build/compare")
        self.assertTrue(source.name.startswith(commit))
        self.assertEqual((source / "scripts/jobs").read_text(encoding="utf-8"), "#!/bin/sh\necho 3\n")
        self.assertTrue((source / ".venv").samefile(root / ".venv"))
        calls = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual(calls[0], f"{source}: --preset tests")
        self.assertTrue(calls[1].endswith(f": --build {build} -j 3 --target lockstep_launcher lockstep_tokenizer_tool map_benchmark"), calls)


class Suite(unittest.TestCase):
    def test_each_loads_without_its_peers(self):
        code = HIDE + "from harness import suite\nfor name in suite.NAMES: print(name, suite.load(name).name)\n"
        done = subprocess.run([sys.executable, "-B", "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
        self.assertEqual([line.split() for line in done.stdout.splitlines()], [[name, name] for name in suite.NAMES])

    def test_pages_rows_and_targets_are_there(self):
        lists = "".join(path.read_text(encoding="utf-8") for folder in ("launch", "tools", "trainers", "tests")
                        for path in (HERE.parents[1] / folder).rglob("CMakeLists.txt"))
        for name in suite.NAMES:
            benchmark = suite.load(name)
            self.assertTrue((HERE.parents[1] / "docs" / benchmark.page).exists(), benchmark.page)
            names = [row.name for row in benchmark.rows]
            self.assertEqual(len(names), len(set(names)), name)
            self.assertEqual({row.better for row in benchmark.rows} - {"lower", "higher"}, set())
            for target in suite.targets([name]):
                self.assertRegex(lists, rf"\b{target}\b")


class Turns(unittest.TestCase):
    def test_sides_alternate(self):
        order = []
        sides = {name: lambda name=name: order.append(name) or {"row": len(order)} for name in "ab"}
        measured = turns.take(sides, 3, lambda text: None, warm_up=True)
        self.assertEqual("".join(order), "ba" + "ab" + "ba" + "ab")
        self.assertEqual(measured, {"row": {"a": [[3], [6], [7]], "b": [[4], [5], [8]]}})

    def test_rounds_for_which_the_time_does_not_suffice_are_left_out(self):
        said, sides = [], {"a": lambda: time.sleep(0.05) or {"row": 1}}
        measured = turns.take(sides, 1000, said.append, seconds=0.5)["row"]["a"]
        self.assertTrue(1 <= len(measured) < 12, measured)
        self.assertEqual(said[-1], f"{len(measured)} of 1000 rounds: its 0 s are over")
        self.assertEqual(len(turns.take(sides, 2, said.append, seconds=1e-9)["row"]["a"]), 1)

    def test_benchmarks_share_the_time_of_a_quick_run(self):
        every = [bench.share_of_rest(suite.NAMES[number:], 0) for number in range(len(suite.NAMES))]
        self.assertEqual(every[-1], bench.QUICK_SECONDS)
        shares = [suite.load(name).quick_share for name in suite.NAMES]
        self.assertAlmostEqual(every[0] / bench.QUICK_SECONDS, shares[0] / sum(shares))
        self.assertEqual(bench.share_of_rest(suite.NAMES, 2 * bench.QUICK_SECONDS), 0.1)

    def test_one_run_serves_several_sides_once(self):
        runs = []
        together = turns.Together(lambda: runs.append(1) or {"a": {"row": len(runs)}, "b": {"row": -len(runs)}})
        values = [together.side(name)()["row"] for name in "abba"]
        self.assertEqual(values, [1, -1, -2, 2])

    def test_outputs_that_differ(self):
        outputs = Outputs()
        outputs.same("tokens", 3)
        outputs.same("tokens", 3)
        with self.assertRaisesRegex(AssertionError, "the sides differ: tokens is 4 here and was 3 before"):
            outputs.same("tokens", 4)


class Figures(unittest.TestCase):
    def test_quantiles(self):
        self.assertEqual(figures.summary([3, 1, 2]), {"median": 2, "p10": 1.2, "p90": 2.8})
        self.assertEqual(figures.summary([5]), {"median": 5, "p10": 5, "p90": 5})

    def test_a_ratio_is_of_the_same_round_and_above_one_where_we_are_ahead(self):
        self.assertEqual(figures.ratio_summary([1, 10], [2, 20], "lower")["p10"], 2)
        self.assertEqual(figures.ratio_summary([2, 20], [1, 10], "higher")["median"], 2)

    def test_a_count_of_nothing_has_no_ratio(self):
        self.assertIsNone(figures.ratio_summary([0, 1], [5, 5], "lower"))
        counted = row("counted", [0, 0], peer=[3, 3])
        self.assertIsNone(counted["sides"]["peer"]["ratio"])
        self.assertEqual(tables.markdown([counted]).splitlines()[2], "| the row counted | 0 ms | peer: 3.00 ms |  |  |")
        self.assertIn("peer", tables.terminal([counted]))
        self.assertIn("the row counted", tables.short([counted], ""))
        self.assertEqual(results.ordered([counted]), [counted])
        self.assertIsNone(plots.overview([counted], "note"))

    def test_numbers(self):
        self.assertEqual([figures.number(value) for value in (0, 0.01234, 1.2, 12.34, 123.4, 1234, 107890)],
                         ["0", "0.0123", "1.20", "12.3", "123", "1,230", "108,000"])
        self.assertEqual(figures.spread({"median": 2.0, "p10": 1.0, "p90": 3.0}), "2.00 (1.00 to 3.00)")
        self.assertEqual(figures.spread({"median": 2.0, "p10": 2.0, "p90": 2.0}), "2.00")


class Tables(unittest.TestCase):
    ROWS = [row("fine", [1, 1], peer=[2, 2]), row("behind", [4, 4], peer=[3, 3]), row("alone", [5, 5]),
            row("far_behind", [10, 10], better="higher", peer=[40, 40], other=[5, 5]), row("limited", [8, 8], limit="copy", copy=[6, 6])]

    def test_rows_behind_come_first(self):
        self.assertEqual([row["row"] for row in results.ordered(self.ROWS)], ["far_behind", "behind", "fine", "alone", "limited"])

    def test_markdown(self):
        lines = tables.markdown(results.ordered(self.ROWS)).splitlines()
        self.assertEqual(lines[2], "| the row far_behind | 10.0 ms | peer: 40.0 ms | **0.25** |  |")
        self.assertEqual(lines[3], "|  |  | other: 5.00 ms | 2.00 |  |")
        self.assertEqual(lines[-1], "| the row limited | 8.00 ms |  |  | copy: 6.00 ms (75 %) |")

    def test_terminal(self):
        lines = tables.terminal(results.ordered(self.ROWS)).splitlines()
        self.assertEqual([line[0] for line in lines], [" ", "!", " ", "!", " ", " ", " "])
        self.assertEqual(len({line.index(words) for line, words in zip(lines[1:3], ("40.0 ms peer", "5.00 ms other"))}), 1)
        self.assertTrue(lines[-1].endswith("75 % of copy"), lines[-1])

    def test_a_busy_machine_is_named(self):
        measured = found()
        self.assertNotIn("busy", machine.sentence(measured))
        measured["machine"]["others"] = 1.5
        self.assertIn("The machine was busy: other programs used 1.5 cores", machine.sentence(measured))


class Plots(unittest.TestCase):
    def check(self, text):
        """Every text lies within the picture, by an estimate that no font exceeds."""
        picture = xml.etree.ElementTree.fromstring(text)
        width = float(picture.get("width"))
        texts = [element for element in picture.iter() if element.tag.endswith("text")]
        for element in texts:
            size, x = {"title": 16, "small": 12}.get(element.get("class"), 13), float(element.get("x"))
            length = plots.width_of(element.text, size)
            begin = x - {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")] * length
            self.assertGreaterEqual(begin, 0, element.text)
            self.assertLessEqual(begin + length, width, element.text)
        self.assertIn("prefers-color-scheme: dark", text)
        return [element.text for element in texts]

    def test_bars_and_points(self):
        rows = Tables.ROWS + [row("a < b & c, " + "long " * 20, [1e-3, 2e-3], **{"a peer with a long name": [5e5, 6e5]})]
        self.assertIn("the row a < b & c, " + "long " * 20 + ", ms (lower is better)", self.check(plots.bars("title", rows, "word " * 80)))
        self.assertIn("the row behind, beside peer", self.check(plots.overview(rows, "note")))
        self.assertIsNone(plots.overview([row("alone", [1, 1])], "note"))

    def test_changes(self):
        made = Benchmark("b", "", "performance.md", (), None, ())
        sides = {"/a": [[1.0], [1.0]], "/b": [[1.5], [1.6]]}
        changed = one.row_text(made, Row("r", "the row r", "ms"), sides, [pathlib.Path("/a"), pathlib.Path("/b")])
        self.assertEqual(compare.verdict(changed), "slower")
        self.check(plots.changes([changed], "note"))


class Pages(InFolder):
    PAGE = "# Page\n\n<!-- bench: b.fine -->\nold\n<!-- end of bench -->\n\nEnd.\n"

    def test_tables_are_written_and_become_stale(self):
        page = self.give("docs/page.md", self.PAGE)
        other = self.give("docs/other.md", "no marks\n")
        measured = self.give("measured.json", json.dumps(found(*Tables.ROWS)))
        self.assertEqual(pages.write(self.folder, measured), ["docs/page.md"])
        text = page.read_text(encoding="utf-8")
        self.assertIn("<!-- bench: b.fine -->\nMeasured on 2026-01-02 at commit 0123abcd, on a virtual machine with 2 cores (A CPU)", text)
        self.assertIn("| the row fine | 1.00 ms | peer: 2.00 ms | 2.00 |  |\n<!-- end of bench -->\n\nEnd.\n", text)
        self.assertEqual(other.read_text(encoding="utf-8"), "no marks\n")
        self.assertEqual(list(pages.stale(self.folder)), [])
        page.write_text(text.replace("2.00 |", "3.00 |"), encoding="utf-8")
        self.assertRegex("".join(pages.stale(self.folder)), "docs/page.md: a marked table is not that of tests/benchmarks/results/recorded.json")

    def test_the_plot_of_all_ratios(self):
        self.give("docs/page.md", self.PAGE + "\n![Ratios](figures/benchmarks.svg)\n")
        pages.write(self.folder, self.give("measured.json", json.dumps(found(*Tables.ROWS))))
        plot = self.folder / pages.PLOT
        self.assertIn("the row behind, beside peer", "".join(xml.etree.ElementTree.parse(plot).getroot().itertext()))
        self.assertEqual(list(pages.stale(self.folder)), [])
        plot.write_text("<svg/>", encoding="utf-8")
        self.assertRegex("".join(pages.stale(self.folder)), "docs/figures/benchmarks.svg: not the plot of")

    def test_a_short_table_has_the_best_peer_and_links(self):
        self.give("docs/b.md", "# B\n")
        page = self.give("README.md", "<!-- bench short: b.far_behind b.alone -->\n<!-- end of bench -->\n")
        pages.write(self.folder, self.give("measured.json", json.dumps(found(*Tables.ROWS))))
        lines = page.read_text(encoding="utf-8").splitlines()
        self.assertEqual(lines[5], "| the row far_behind | 10.0 ms | peer: 40.0 ms | 0.25 | [performance](docs/performance.md) |")
        self.assertEqual(lines[6], "| the row alone | 5.00 ms |  |  | [performance](docs/performance.md) |")

    def test_a_row_that_was_not_measured(self):
        page = self.give("docs/page.md", self.PAGE)
        measured = self.give("measured.json", json.dumps(found(Tables.ROWS[1])))
        with self.assertRaisesRegex(ValueError, "the results have no row b.fine"):
            pages.write(self.folder, measured)
        self.assertEqual(page.read_text(encoding="utf-8"), self.PAGE)
        self.assertFalse((self.folder / pages.RECORDED).exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
