"""Every lint check is able to fail, and names the place: self_test.py COMPILER LIBTORCH"""
import os
import sys
import tempfile
import unittest

import arrows
import bench_tables
import compile_errors
import headers
import json_texts
import link_lines
import links
import one_header
import one_idea
import sizes
import snippets
import tree

COMPILER, LIBTORCH = sys.argv[1], sys.argv[2]


class MadeUpTree(unittest.TestCase):
    """A tree in a temporary folder, written by give()."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def give(self, **texts):
        """Writes files; `src__comm__a_cpp` is the file src/comm/a.cpp."""
        for name, text in texts.items():
            place, _, ending = name.replace("__", "/").rpartition("_")
            path = os.path.join(self.root, f"{place}.{ending}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def only_problem(self, check, *more):
        found, _ = check(self.root, *more)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def no_problem(self, check, *more):
        found, checked = check(self.root, *more)
        self.assertEqual(found, [])
        self.assertGreater(checked, 0)


class Text(unittest.TestCase):
    def test_comments_and_literals_are_no_code(self):
        blanked = tree.code('int a; // getenv\n/* environ */ f("getenv", \'"\', R"x(getenv")x"); getenv("A");')
        self.assertEqual(blanked.count("getenv"), 1)
        self.assertEqual(blanked.count("\n"), 1)

    def test_includes_know_their_line_and_skip_comments(self):
        text = '// #include "no.hpp"\n/*\n#include <no>\n*/\n#include <a/b.h>\n  #  include "c.hpp"\n'
        self.assertEqual(list(tree.includes(text)), [(5, "a/b.h", False), (6, "c.hpp", True)])


class Arrows(MadeUpTree):
    def test_folders_of_the_launcher_have_one_order(self):
        self.give(launch__agent__a_cpp='#include "rendezvous/r.hpp"\n', launch__rendezvous__r_hpp="",
                  launch__cli__c_cpp='#include "agent/a.hpp"\n', launch__agent__a_hpp="")
        self.no_problem(arrows.problems)
        self.give(launch__rendezvous__r_hpp='#include "agent/a.hpp"\n')
        self.assertIn("launch/rendezvous/r.hpp:1: launch/rendezvous must not include launch/agent",
                      self.only_problem(arrows.problems))

    def test_only_the_command_line_includes_the_agent(self):
        self.give(launch__slurm__s_cpp='#include "agent/a.hpp"\n', launch__agent__a_hpp="")
        self.assertIn("launch/slurm must not include launch/agent", self.only_problem(arrows.problems))

    def test_a_new_folder_of_the_launcher_takes_its_place(self):
        self.give(launch__novel__n_cpp="")
        self.assertIn("launch/novel has no place", self.only_problem(arrows.problems))

    def test_upwards_is_fine(self):
        self.give(src__train__a_cpp='#include "lockstep/core/x.hpp"\n#include "lockstep/train/y.hpp"\n',
                  launch__main_cpp='#include "lockstep/core/x.hpp"\n#include <nlohmann/json.hpp>\n',
                  trainers__t_cpp='#include "lockstep/models/x.hpp"\n')
        self.no_problem(arrows.problems)

    def test_downwards_is_refused(self):
        self.give(include__lockstep__core__a_hpp='\n#include "lockstep/comm/x.hpp"\n')
        self.assertIn("include/lockstep/core/a.hpp:2: core must not include comm", self.only_problem(arrows.problems))

    def test_data_and_parallel_are_strangers(self):
        self.give(src__parallel__a_cpp='#include "lockstep/data/x.hpp"\n')
        self.assertIn("parallel must not include data", self.only_problem(arrows.problems))

    def test_folders_of_the_data_sets_have_one_order(self):
        self.give(src__datasets__readers__r_cpp='#include "datasets/table/t.hpp"\n#include <arrow/type.h>\n',
                  src__datasets__table__t_hpp="", src__datasets__stage_cpp='#include "datasets/readers/r.hpp"\n',
                  src__datasets__readers__r_hpp="")
        self.no_problem(arrows.problems)
        self.give(src__datasets__table__t_hpp='#include "datasets/readers/r.hpp"\n')
        self.assertIn("datasets/table must not include datasets/readers", self.only_problem(arrows.problems))

    def test_headers_of_arrow_stay_in_their_folders(self):
        self.give(src__datasets__map__m_cpp="#include <arrow/type.h>\n")
        self.assertIn("src/datasets/map/m.cpp:1: Arrow's headers belong in", self.only_problem(arrows.problems))

    def test_private_headers_count_as_well(self):
        self.give(src__comm__a_cpp='#include "../train/b.hpp"\n', src__train__b_hpp="")
        self.assertIn("comm must not include train", self.only_problem(arrows.problems))

    def test_launcher_includes_core_only(self):
        self.give(launch__main_cpp='#include "lockstep/comm/store.hpp"\n')
        self.assertIn("launch must not include comm", self.only_problem(arrows.problems))

    def test_commands_are_on_top_of_the_launcher(self):
        self.give(launch__cli__run_cpp='#include "cli/commands.hpp"\n', tests__a_cpp='#include "cli/commands.hpp"\n')
        self.no_problem(arrows.problems)
        self.give(launch__agent__agent_cpp='#include "cli/commands.hpp"\n')
        self.assertIn("launch/agent/agent.cpp:1: launch/cli is on top", self.only_problem(arrows.problems))

    def test_cxxopts_has_one_door(self):
        self.give(src__core__options_parser_cpp="#include <cxxopts.hpp>\n")
        self.no_problem(arrows.problems)
        self.give(trainers__t_cpp="#include <cxxopts.hpp>\n")
        self.assertIn("trainers/t.cpp:1: cxxopts.hpp belongs in", self.only_problem(arrows.problems))

    def test_launcher_may_read_checkpoints(self):
        self.give(launch__main_cpp='#include "checkpoint/shards.hpp"\n', src__checkpoint__shards_hpp="")
        self.no_problem(arrows.problems)
        self.give(src__checkpoint__shards_hpp="#include <ATen/core/Tensor.h>\n")
        self.assertIn("shards.hpp must not include LibTorch", self.only_problem(arrows.problems))

    def test_core_has_no_libtorch(self):
        self.give(src__core__a_cpp="#include <c10/util/Exception.h>\n")
        self.assertIn("core must not include LibTorch", self.only_problem(arrows.problems))

    def test_c10d_stays_in_comm_and_parallel(self):
        include = "#include <torch/csrc/distributed/c10d/Store.hpp>\n"
        self.give(src__comm__a_cpp=include, src__parallel__a_cpp=include, tests__a_cpp=include)
        self.no_problem(arrows.problems)
        self.give(src__train__a_cpp=include)
        self.assertIn("src/train/a.cpp:1: c10d", self.only_problem(arrows.problems))

    def test_environment_is_read_in_one_file(self):
        self.give(src__core__environment_cpp="char** e = environ;\n", tests__a_cpp='getenv("A");\n',
                  src__comm__b_cpp='// getenv\nstd::string environment = "getenv";\n')
        self.no_problem(arrows.problems)
        self.give(trainers__t_cpp='\nauto a = std::getenv("A");\n')
        self.assertIn("trainers/t.cpp:2: getenv", self.only_problem(arrows.problems))

    def test_the_host_is_asked_for_its_name_in_one_file(self):
        self.give(src__core__host_name_hpp="gethostname(name, 9);\n", src__core__a_cpp="// gethostname\n")
        self.no_problem(arrows.problems)
        self.give(tests__a_cpp="\ngethostname(name, 9);\n")
        self.assertIn("tests/a.cpp:2: gethostname", self.only_problem(arrows.problems))


class CompileErrors(MadeUpTree):
    def check(self, text):
        self.give(tests__lint__wrong_calls_cpp="// A comment of its own.\nint f(int);\n" + text)
        return compile_errors.problems(self.root, COMPILER, LIBTORCH)[0]

    def test_one_error_with_the_words(self):
        self.assertEqual(self.check('void g() { f("a"); }  // invalid conversion\n'), [])

    def test_other_words(self):
        self.assertIn("no error says 'too many'", self.check('void g() { f("a"); }  // too many\n')[0])

    def test_more_errors_than_calls(self):
        self.assertIn("1 wrong calls are 2 errors", self.check('void g() { f("a"); f("b"); }  // invalid\n')[0])


class OneHeader(MadeUpTree):
    def setUp(self):
        super().setUp()
        self.give(tests__lint__heavy_headers_txt="", include__lockstep__a__inner_hpp="", include__lockstep__models__m_hpp="",
                  include__lockstep__a__outer_hpp='#include "lockstep/a/inner.hpp"\n')

    def test_what_another_one_includes_is_held(self):
        self.give(include__lockstep__lockstep_hpp='#include "lockstep/a/outer.hpp"\n')
        self.no_problem(one_header.problems)

    def test_a_header_that_is_missing(self):
        self.give(include__lockstep__lockstep_hpp='#include "lockstep/a/inner.hpp"\n')
        self.assertIn("lacks lockstep/a/outer.hpp", self.only_problem(one_header.problems))

    def test_a_heavy_one(self):
        self.give(include__lockstep__lockstep_hpp='#include "lockstep/a/outer.hpp"\n#include "lockstep/models/m.hpp"\n')
        self.assertIn("holds lockstep/models/m.hpp", self.only_problem(one_header.problems))


class OneIdea(MadeUpTree):
    def test_a_source_has_one_anonymous_namespace(self):
        self.give(src__core__a_cpp="namespace lockstep {\nnamespace {\nint a;\n}\nvoid f() {}\nnamespace inner {}\n}\n")
        self.no_problem(one_idea.problems)
        self.give(src__core__a_cpp="namespace lockstep {\nnamespace {\nint a;\n}\nvoid f() {}\nnamespace {\nint b;\n}\n}\n")
        self.assertIn("src/core/a.cpp:6: another anonymous namespace", self.only_problem(one_idea.problems))

    def test_a_header_leads_to_its_source(self):
        header = "class A {\n public:\n  A();\n  void f() const { g(); }\n};\nstd::vector<int> make(A a, B b = {});\n"
        source = "namespace lockstep {\n" "A::A() : b_{1}, c_(2) {}\n\nstd::vector<int> make(A a, B b) {\n  if (a) {}\n  return {};\n}\n}\n"
        self.give(include__lockstep__core__a_hpp="namespace lockstep {\n" + header + "}\n", src__core__a_cpp=source)
        self.no_problem(one_idea.problems)
        self.give(src__core__a_cpp="", src__core__other_cpp=source.replace("A::A", "\nA::A"))
        self.assertIn("src/core/other.cpp:3: lockstep::A::A is declared in include/lockstep/core/a.hpp", self.only_problem(one_idea.problems))
        self.give(src__core__other_cpp="", src__core__b_cpp=source[source.index("std::vector"):-2].join(("namespace lockstep {\n", "}\n")))
        self.assertIn("src/core/b.cpp:2: lockstep::make is declared in", self.only_problem(one_idea.problems))

    def test_other_names_and_spaces(self):
        self.give(src__core__a_hpp="namespace lockstep {\nvoid f(int a);\nstruct A { void g(); };\n}\n",
                  src__net__b_cpp="namespace lockstep {\nnamespace {\nvoid f(int a) {}\n}\nnamespace net {\nvoid f(int a) {}\n}\n"
                                  "struct B { void f(); };\nvoid B::f() {}\nauto x = f(1);\n}\n",
                  src__core__a_more_cpp="namespace lockstep {\nvoid f(int a) {}\n}\n",
                  src__core__a__parts_cpp="void lockstep::A::g() {}\n")
        self.no_problem(one_idea.problems)

    def test_includes_are_written_from_the_root(self):
        self.give(src__core__a_cpp='#include "core/a.hpp"\n#include "lockstep/core/b.hpp"\n#include "strange.h"\n', src__core__a_hpp="")
        self.no_problem(one_idea.problems)
        for include in ("../core/a.hpp", "a.hpp"):
            self.give(src__core__a_cpp=f'#include "{include}"\n')
            self.assertIn(f'src/core/a.cpp:1: "{include}": write includes from the root', self.only_problem(one_idea.problems))


class Headers(MadeUpTree):
    def setUp(self):
        super().setUp()
        self.give(tests__lint__heavy_headers_txt="# a comment\n")

    def check(self):
        return self.only_problem(headers.problems, COMPILER, LIBTORCH)

    def test_header_that_needs_another_first(self):
        self.give(include__lockstep__core__a_hpp="#pragma once\nstd::string a();\n")
        self.assertIn("include/lockstep/core/a.hpp does not compile by itself", self.check())

    def test_core_sees_no_libtorch(self):
        self.give(include__lockstep__core__a_hpp="#pragma once\n#include <c10/util/Exception.h>\n")
        self.assertIn("does not compile by itself", self.check())

    def test_light_header_shows_a_heavy_one(self):
        self.give(include__lockstep__comm__a_hpp="#pragma once\n#include <ATen/core/Tensor.h>\n")
        self.no_problem(headers.problems, COMPILER, LIBTORCH)
        self.give(include__lockstep__comm__a_hpp="#pragma once\n#include <ATen/ATen.h>\n")
        found, _ = headers.problems(self.root, COMPILER, LIBTORCH)
        self.assertEqual(len(found), 2, found)
        self.assertIn("must not show ATen/ATen.h", found[0])
        self.assertIn("does not compile by itself", found[1])

    def test_heaviness_is_passed_on(self):
        names = ["lockstep/models/m.hpp", "lockstep/train/listed.hpp", "lockstep/train/b.hpp", "lockstep/train/c.hpp"]
        texts = {name: "" for name in names}
        texts[names[2]] = '#include "lockstep/train/listed.hpp"\n'
        self.assertEqual(headers.heavy_headers(names, texts, [names[1]]), set(names[:3]))

    def test_list_names_a_header_that_is_gone(self):
        self.give(include__lockstep__core__a_hpp="#pragma once\n", tests__lint__heavy_headers_txt="lockstep/train/x.hpp\n")
        self.assertIn("there is no include/lockstep/train/x.hpp", self.check())


class LinkLines(unittest.TestCase):
    def test_what_a_binary_may_need(self):
        system = ["libc.so.6", "libstdc++.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]
        self.assertEqual(list(link_lines.problems_of("a", [*system, "libtorch_cpu.so", "libc10.so"], True)), [])
        for name in ("libtorch_cuda.so", "libgloo.so.0", "libtorch.so", "libcudart.so.13"):
            self.assertEqual(len(list(link_lines.problems_of("a", [*system, name], True))), 1, name)
        self.assertEqual(len(list(link_lines.problems_of("a", [*system, "libc10.so"], False))), 1)

    def test_a_trainer_on_tensors(self):
        self.assertEqual(list(link_lines.trainer_problems("a", ["liblockstep.so.0", "liblockstep_models.so.0", "libc10.so"])), [])
        for name in ("liblockstep_datasets.so.0", "libarrow.so.2600"):
            self.assertEqual(len(list(link_lines.trainer_problems("a", ["liblockstep.so.0", name]))), 1, name)

    def test_data_sets(self):
        names = ["liblockstep.so.0", "libparquet.so.2600", "libarrow.so.2600", "libc.so.6", "libc10.so"]
        self.assertEqual(list(link_lines.datasets_problems("a", names)), [])
        for name in ("libarrow_compute.so.2600", "liblockstep_models.so.0"):
            self.assertEqual(len(list(link_lines.datasets_problems("a", [*names, name]))), 1, name)

    def test_reads_a_real_binary(self):
        self.assertIn("libc.so.6", link_lines.needed(os.path.realpath(sys.executable)) + link_lines.needed("/bin/sh"))


class Links(MadeUpTree):
    def test_what_is_there(self):
        self.give(README_md="[a](docs/a.md#two-words) [b](https://x.y) `docs/a.md` `build/bin/x` `some/else`\n",
                  docs__a_md="# Two words\n[up](../README.md) [here](#two-words)\n```\n[not](a link)\n# no heading\n```\n")
        self.no_problem(links.problems)

    def test_what_is_not(self):
        for text, reason in (("[a](docs/b.md)", "links to docs/b.md, which does not exist"),
                             ("[a](docs/a.md#x)", "has no such heading"),
                             ("`docs/b.md`", "names `docs/b.md`")):
            self.give(README_md="\n" + text + "\n", docs__a_md="# A\n")
            self.assertIn(reason, self.only_problem(links.problems))
            self.assertTrue(self.only_problem(links.problems).startswith("README.md:2:"))


class Snippets(MadeUpTree):
    def test_lines_of_the_named_file(self):
        for code in ("  f();\n", "f();\n", "f();\n\n{\n  g();\n}\n"):
            self.give(README_md=f"<!-- from examples/a.cpp -->\n```cpp\n{code}```\n",
                      examples__a_cpp="int a;\n  f();\n\n  {\n    g();\n  }\n")
            self.no_problem(snippets.problems)

    def test_pages(self):
        self.give(README_md="", docs__a_md="```cpp\nf();\n```\n")
        self.assertIn("docs/a.md:1: a block of C++ must say", self.only_problem(snippets.problems))

    def test_others(self):
        for head, code, reason in (("", "f();", "must say where it is from"),
                                   ("<!-- from examples/b.cpp -->\n", "f();", "is not there"),
                                   ("<!-- from examples/a.cpp -->\n", "g();", "do not stand in examples/a.cpp"),
                                   ("<!-- from examples/a.cpp -->\n", "();", "do not stand in examples/a.cpp")):
            self.give(README_md=f"{head}```cpp\n{code}\n```\n", examples__a_cpp="f();\n")
            self.assertIn(reason, self.only_problem(snippets.problems))

    def test_lines_of_a_table(self):
        for code, problems in (("f();", 0), ("g();", 1)):
            self.give(README_md="", examples__a_cpp="  f();\n",
                      docs__a_md=f"<!-- lines from examples/a.cpp -->\n| Python | C++ |\n| --- | --- |\n| `f(x)` | `{code}` |\n")
            if problems:
                self.assertIn("`g();` does not stand in examples/a.cpp", self.only_problem(snippets.problems))
            else:
                self.no_problem(snippets.problems)


class BenchTables(MadeUpTree):
    RESULTS = ('{"format": 1, "started": "2026-01-02", "commit": "", "quick": false, "versions": {}, "machine": {"cpu": "C", "cores": 1, '
               '"virtual": false, "memory_gib": 1, "system": "S", "kernel": "K", "others": 0}, "rows": [{"benchmark": "b", "row": "r", '
               '"what": "W", "unit": "ms", "better": "lower", "limit": "", "sides": {"Lockstep": {"median": 1, "p10": 1, "p90": 1}}}]}')
    TABLE = ("Measured on 2026-01-02 at commit unknown, on a machine with 1 core (C), 1 GiB of memory, S, Linux K.\n\n"
             "| what | Lockstep | peer | times as good | limit |\n| --- | --- | --- | --- | --- |\n| W | 1.00 ms |  |  |  |\n")

    def give_page(self, text):
        self.give(README_md="", docs__a_md=text, tests__benchmarks__results__recorded_json=self.RESULTS)

    def test_recorded(self):
        self.give_page(f"<!-- bench: b -->\n{self.TABLE}<!-- end of bench -->\n")
        self.no_problem(bench_tables.problems)

    def test_others(self):
        other = self.TABLE.replace("1.00", "0.99")
        for text, reason in ((f"<!-- bench: b -->\n{other}<!-- end of bench -->\n", "is not that of tests/benchmarks/results"),
                             ("<!-- bench: c -->\n<!-- end of bench -->\n", "the results have no row c"),
                             ("<!-- bench: b -->\nno end\n", "1 marks of tables and 0 ends")):
            self.give_page(text)
            self.assertIn("docs/a.md: ", self.only_problem(bench_tables.problems))
            self.assertIn(reason, self.only_problem(bench_tables.problems))


class FaultTables(MadeUpTree):
    RECORD = '{"faults": [{"fault": "a rank is killed", "promise": "P", "seconds": 0.72, "left": "2 whole checkpoints", "verdict": "kept", "why": ""}]}'
    TABLE = ("| fault | promise | time | left on disk | verdict |\n| --- | --- | --- | --- | --- |\n"
             "| a rank is killed | P | 0.7 s | 2 whole checkpoints | kept |\n")

    def give_page(self, text):
        self.give(README_md="", docs__a_md=text, results_json=self.RECORD, tests__benchmarks__results__recorded_json=BenchTables.RESULTS)

    def test_recorded(self):
        self.give_page(f"<!-- faults: results.json -->\n{self.TABLE}<!-- end of faults -->\n")
        self.no_problem(bench_tables.problems)

    def test_others(self):
        for text, reason in ((f"{self.TABLE.replace('0.7', '0.6')}<!-- end of faults -->\n", "is not that of results.json"),
                             (self.TABLE, "each mark of a table of faults has its end")):
            self.give_page(f"<!-- faults: results.json -->\n{text}")
            self.assertIn(reason, self.only_problem(bench_tables.problems))


class JsonTexts(MadeUpTree):
    def test_dump(self):
        self.give(src__core__json_text_hpp="text = json.dump();", src__comm__a_cpp="recorder.dump(why); json_text(all);  // .dump()",
                  trainers__a_cpp="all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);")
        self.no_problem(json_texts.problems)
        for text in ("int a;\nall.dump(2);", "int a;\nfound->dump();", "int a;\njson({1})\n.dump(-1, ' ', false, error_handler_t::replace);"):
            self.give(src__comm__a_cpp=text)
            self.assertIn("src/comm/a.cpp:", self.only_problem(json_texts.problems))


class Sizes(MadeUpTree):
    def test_long_file(self):
        self.give(src__core__a_cpp="int a;\n" * 500)
        self.no_problem(sizes.problems)
        self.give(src__core__a_cpp="int a;\n" * 501)
        self.assertIn("src/core/a.cpp: 501 lines", self.only_problem(sizes.problems))

    def test_functions_are_measured(self):
        text = "int f(int a) {\n  if (a) {\n    g();\n  }\n  return 1;\n}\nclass A {\n  void h() const {\n    g();\n  }\n};\n"
        self.assertEqual(list(sizes.function_lengths(text)), [(1, 6), (8, 3)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
