"""What scripts/setup does on machines that lack something: setup_test.py SOURCE

A copy of the script runs with a PATH that holds a few real tools and impostors of dpkg-query, apt-get, sudo and Python's
pip, which write down how they were called. Nothing is installed.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = sys.argv[1]
TOOLS = ["bash", "dirname", "grep", "sed", "tail", "cat", "env", "rm", "mkdir", "sh", "chmod", "cmake", "sleep"]
HEADERS = "libgloo-dev nlohmann-json3-dev libcxxopts-dev libfmt-dev libxxhash-dev " \
    "libjpeg62-turbo-dev libpng-dev zlib1g-dev"
INSTALLED = "cmake ninja-build g++ ccache help2man libgtest-dev iproute2 python3 python3-venv slurm-wlm munge " \
    "g++-aarch64-linux-gnu chromium fonts-dejavu-core prometheus doxygen libonig-dev libcurl4-openssl-dev " + HEADERS


def lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Machine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.realpath(folder.name)
        for name in ("scripts", "cmake"):
            shutil.copytree(os.path.join(SOURCE, name), os.path.join(self.root, "tree", name))
        os.mkdir(os.path.join(self.root, "bin"))
        for tool in TOOLS:
            os.symlink(shutil.which(tool), os.path.join(self.root, "bin", tool))
        self.log = os.path.join(self.root, "calls")
        self.installed(INSTALLED)
        self.give_torch()

    def impostor(self, name, script, folder="bin"):
        path = os.path.join(self.root, folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "{name} $*" >>"{self.log}"\n{script}\n')
        os.chmod(path, 0o755)
        return path

    def installed(self, packages):
        """These packages are there; apt-get adds what it is asked for."""
        listed = os.path.join(self.root, "installed")
        with open(listed, "w", encoding="utf-8") as file:
            file.write(packages.replace(" ", "\n") + "\n")
        self.impostor("dpkg-query", f'grep -qxF -- "$4" "{listed}" && echo "install ok installed"')
        self.impostor("apt-get", f'for word in "$@"; do echo "$word" >>"{listed}"; done')

    def give_torch(self):
        """An active Python with everything."""
        arrow = os.path.join(self.root, "pyarrow", "include", "parquet", "arrow")
        os.makedirs(arrow)
        with open(os.path.join(arrow, "reader.h"), "w", encoding="utf-8"):
            pass
        include = os.path.join(self.root, "torch", "include", "torch", "headeronly")
        os.makedirs(include)
        with open(os.path.join(include, "version.h"), "w", encoding="utf-8") as file:
            file.write("".join(f"#define TORCH_VERSION_{k} {v}\n" for k, v in (("MAJOR", 2), ("MINOR", 11), ("PATCH", 0))))
        self.impostor("python3", f'case "$*" in *find_spec*) echo "{self.root}/torch" ;; *) echo 2.11.0 ;; esac')

    def give_bare_python(self):
        """An active Python without torch, whose environments have a pip that writes down what it should install."""
        pip = self.impostor("python", 'case "$*" in *--version*|-c*) exit 0 ;; *broken*) exit 1 ;; esac', "fake-venv")
        self.impostor("python3", 'case "$*" in *find_spec*|*importlib.metadata*) exit 1 ;;\n'
                      f'"-m venv "*) mkdir -p "$3/bin" && cat "{pip}" >"$3/bin/python" && chmod +x "$3/bin/python" ;; esac')

    def command(self, level, root):
        """The words that start the script, and what else subprocess needs."""
        script = os.path.join(self.root, "tree", "scripts", "setup")
        self.believe(script, root)
        return [os.path.join(self.root, "bin", "bash"), script, level], {
            "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
            "env": {"PATH": os.path.join(self.root, "bin"), "HOME": self.root}}

    def setup(self, level, root=True, **environment):
        """(exit status, everything printed, the calls of the impostors as one text)."""
        if os.path.exists(self.log):
            os.remove(self.log)
        words, options = self.command(level, root)
        options["env"].update(environment)
        done = subprocess.run(words, check=False, timeout=100, **options)
        calls = ""
        if os.path.exists(self.log):
            with open(self.log, encoding="utf-8") as file:
                calls = file.read()
        return done.returncode, done.stdout, calls

    def believe(self, script, root):
        """The script believes to run as root or as an ordinary user, whoever runs the test."""
        shutil.copy(os.path.join(SOURCE, "scripts", "setup"), script)
        with open(script, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text.count("EUID == 0"), 1)
        with open(script, "w", encoding="utf-8") as file:
            file.write(text.replace("EUID == 0", f"{int(root)} == 1"))

    def test_nothing_to_do(self):
        for level in ("demo", "build", "test"):
            status, printed, calls = self.setup(level)
            self.assertEqual((status, printed), (0, ""))
            self.assertNotIn("apt-get", calls)
            self.assertNotIn("pip", calls)

    def test_missing_packages_are_installed_at_once(self):
        self.installed("")
        self.impostor("sudo", 'if [ "$1" = -n ]; then shift; fi; "$@"')
        for root in (True, False):
            self.installed("")
            status, printed, calls = self.setup("demo", root=root)
            self.assertEqual(status, 0, printed)
            self.assertIn(f"--no-install-recommends ninja-build g++ ccache {HEADERS}\n", calls)
            self.assertEqual("sudo" in calls, not root)
            self.assertEqual(self.setup("demo", root=root)[1], "")

    def test_tests_need_more(self):
        self.installed(INSTALLED.replace("libgtest-dev", "").replace("libonig-dev", ""))
        self.assertIn("--no-install-recommends libonig-dev libgtest-dev\n", self.setup("test")[2])

    def test_slurm_is_for_root_and_can_be_missed(self):
        without = INSTALLED.replace("slurm-wlm munge", "")
        self.installed(without)
        self.assertIn("--no-install-recommends slurm-wlm munge\n", self.setup("test")[2])
        self.assertNotIn("apt-get", self.setup("test")[2])
        for level, root in (("test", False), ("demo", True)):
            self.installed(without)
            self.assertNotIn("apt-get", self.setup(level, root=root)[2])
        self.impostor("apt-get", "exit 100")
        status, printed, _ = self.setup("test")
        self.assertEqual(status, 0, printed)
        self.assertIn("could not install slurm-wlm munge: the tests on a real Slurm are skipped", printed)

    def test_what_tests_can_miss_is_asked_for_apart(self):
        self.installed(INSTALLED.replace("g++-aarch64-linux-gnu ", "").replace("slurm-wlm munge", ""))
        self.impostor("apt-get", 'case "$*" in *slurm-wlm*) exit 100 ;; esac')
        status, printed, calls = self.setup("test")
        self.assertEqual(status, 0, printed)
        self.assertIn("--no-install-recommends g++-aarch64-linux-gnu\n", calls)
        self.assertNotIn("the tests that compile for aarch64 are skipped", printed)

    def test_no_root_and_no_sudo(self):
        self.installed("cmake g++ ninja-build ccache")
        for sudo in (None, "exit 1"):
            if sudo:
                self.impostor("sudo", sudo)
            status, printed, calls = self.setup("demo", root=False)
            self.assertEqual(status, 1)
            self.assertIn(f"    apt-get install --no-install-recommends {HEADERS}\n", printed)
            self.assertTrue(all(len(line) < 160 for line in printed.split("\n")), printed)
            self.assertNotIn("apt-get", calls)

    def test_check_can_be_left_out(self):
        self.installed("")
        status, printed, calls = self.setup("demo", PACKAGES="no")
        self.assertEqual(status, 1)
        self.assertIn("these programs are not on PATH: ninja g++. Install them", printed)
        self.assertNotIn("pip", calls)
        for program in ("ninja", "g++"):
            self.impostor(program, "")
        self.assertEqual(self.setup("demo", PACKAGES="no")[:2], (0, ""))

    def test_apt_fails(self):
        self.installed("")
        self.impostor("apt-get", "echo 'E: no space left'; exit 100")
        status, printed, _ = self.setup("demo")
        self.assertEqual(status, 1)
        self.assertIn("E: no space left", printed)
        self.assertIn("apt-get could not install: ninja-build g++", printed)

    def test_venv_is_made_once(self):
        self.give_bare_python()
        status, printed, calls = self.setup("demo")
        self.assertEqual(status, 0, printed)
        self.assertIn("-m venv .venv", calls)
        self.assertIn("torch==2.11.0", calls)
        self.assertNotIn("safetensors\n", calls)
        status, printed, calls = self.setup("demo")
        self.assertEqual((status, printed), (0, ""))
        self.assertNotIn("pip", calls)
        self.assertIn("safetensors", self.setup("test")[2])
        self.assertEqual(self.setup("test")[1], "")

    def test_data_sets_need_arrow(self):
        self.give_bare_python()
        self.assertEqual(self.setup("demo")[0], 0)
        status, printed, calls = self.setup("build")
        self.assertEqual(status, 0, printed)
        self.assertIn("pyarrow==26.0.1", calls)
        self.assertNotIn("safetensors", calls)
        self.assertEqual(self.setup("build")[:2], (0, ""))

    def test_a_torch_without_arrow_is_not_enough_for_data_sets(self):
        shutil.rmtree(os.path.join(self.root, "pyarrow"))
        self.assertEqual(self.setup("demo")[:2], (0, ""))
        self.impostor("python3", f'case "$*" in *find_spec*) echo "{self.root}/torch" ;; "-m venv "*) exit 7 ;; *) echo 2.11.0 ;; esac')
        self.assertIn("fetching", self.setup("build")[1])

    def test_interrupted_venv_is_completed(self):
        self.give_bare_python()
        self.assertEqual(self.setup("demo")[0], 0)
        os.remove(os.path.join(self.root, "tree", ".venv", "lockstep-complete"))
        _, _, calls = self.setup("demo")
        self.assertIn("pip install", calls)
        self.assertNotIn("-m venv", calls)

    def test_pip_fails(self):
        self.give_bare_python()
        self.impostor("python", 'case "$*" in *install*) echo "no route to host"; exit 1 ;; esac', "fake-venv")
        status, printed, _ = self.setup("demo")
        self.assertEqual(status, 1)
        self.assertIn("no route to host", printed)
        self.assertIn("name an existing LibTorch: make demo CMAKE_PREFIX_PATH=", printed)
        self.assertFalse(os.path.exists(os.path.join(self.root, "tree", ".venv", "lockstep-complete")))

    def test_pip_is_shown_at_work(self):
        self.give_bare_python()
        self.impostor("python", 'case "$*" in *--version*|-c*) exit 0 ;; *install*) echo "Downloading torch (530 MB)"; sleep 3 ;; esac',
                      "fake-venv")
        status, printed, _ = self.setup("demo")
        self.assertEqual(status, 0, printed)
        self.assertIn("Downloading torch (530 MB)", printed)
        self.assertEqual(printed.count("Downloading"), 1, printed)

    def test_pip_fails_while_something_compiles(self):
        self.give_bare_python()
        self.impostor("python", 'case "$*" in *install*) sleep 1; exit 1 ;; esac', "fake-venv")
        os.remove(os.path.join(self.root, "bin", "cmake"))
        self.impostor("cmake", f'case "$*" in "--build "*) sleep 60; touch "{self.root}/compiled" ;; esac')
        start = time.monotonic()
        status, printed, _ = self.setup("demo")
        self.assertEqual(status, 1)
        self.assertIn("pip could not install", printed)
        self.assertLess(time.monotonic() - start, 40, "it waited for the compiler")
        self.assertFalse(os.path.exists(os.path.join(self.root, "compiled")))

    def test_an_interrupt_ends_what_runs_in_the_background(self):
        self.give_bare_python()
        self.impostor("python", 'case "$*" in *install*) echo $$ >>"$HOME/pids"; exec sleep 60 ;; esac', "fake-venv")
        os.remove(os.path.join(self.root, "bin", "cmake"))
        self.impostor("cmake", 'case "$*" in "--build "*) echo $$ >>"$HOME/pids"; exec sleep 60 ;; esac')
        words, options = self.command("demo", True)
        with subprocess.Popen(words, start_new_session=True, **options) as script:
            pids = os.path.join(self.root, "pids")
            end = time.monotonic() + 30
            while time.monotonic() < end and not (os.path.exists(pids) and len(lines(pids)) == 2):
                time.sleep(0.05)
            os.killpg(script.pid, signal.SIGINT)
            script.communicate(timeout=30)
            self.assertEqual(script.returncode, 130)
        started = lines(pids)
        end = time.monotonic() + 10
        while time.monotonic() < end and any(runs(pid) for pid in started):
            time.sleep(0.05)
        self.assertEqual([pid for pid in started if runs(pid)], [])

    def test_named_libtorch_that_does_not_fit_ends_it(self):
        self.give_bare_python()
        status, printed, calls = self.setup("demo", CMAKE_PREFIX_PATH="/nowhere")
        self.assertEqual(status, 1)
        self.assertIn("no such folder exists", printed)
        self.assertNotIn("pip", calls)

    def test_unknown_level(self):
        status, printed, _ = self.setup("demos")
        self.assertEqual(status, 1)
        self.assertIn("expected demo, build, package, test, tools or docs, not 'demos'", printed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
