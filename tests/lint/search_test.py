"""Where CMake looks for LibTorch and for the tests' Python, on made-up ones: search_test.py CMAKE SOURCE"""
import os
import subprocess
import sys
import tempfile
import unittest

CMAKE, SOURCE = sys.argv[1], sys.argv[2]


class Search(unittest.TestCase):
    script = "LibTorchSearch.cmake"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, path, text, mode=0o644):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def libtorch(self, name, version, header="torch/headeronly/version.h"):
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        self.write(f"{name}/include/{header}", "".join(f"#define TORCH_VERSION_{k} {v}\n" for k, v in parts))
        self.write(f"{name}/share/cmake/Torch/TorchConfig.cmake", "")
        return os.path.join(self.folder, name)

    def python(self, name, printed, status=0):
        """A Python that answers every question with the same line."""
        return self.write(name, f"#!/bin/sh\necho '{printed}'\nexit {status}\n", 0o755)

    def search(self, *defines, **environment):
        """What a run of the script prints as its last line, or its error when it fails."""
        path = environment.pop("PATH", os.path.join(self.folder, "bin"))
        done = subprocess.run([CMAKE, *defines, "-P", os.path.join(SOURCE, "cmake", self.script)], text=True, check=False,
                              capture_output=True, env={"PATH": path, **environment}, cwd=self.folder)
        if done.returncode:
            return " ".join(done.stderr.split())
        return done.stdout.split("\n")[-2]


class LibTorch(Search):
    def test_none(self):
        self.assertEqual(self.search(), "")

    def test_named_by_prefix(self):
        good = self.libtorch("good", "2.11.3")
        self.assertEqual(self.search(f"-DCMAKE_PREFIX_PATH={good}"), good)
        self.assertEqual(self.search(f"-DCMAKE_PREFIX_PATH={good}/share/cmake"), good)
        self.assertEqual(self.search(CMAKE_PREFIX_PATH=f"/nowhere:{good}"), good)

    def test_named_by_torch_dir(self):
        good = self.libtorch("good", "2.11.0")
        self.assertEqual(self.search(f"-DTorch_DIR={good}/share/cmake/Torch"), good)
        self.assertEqual(self.search(Torch_DIR=f"{good}/share/cmake/Torch", CMAKE_PREFIX_PATH="/nowhere"), good)

    def test_named_of_a_wrong_version(self):
        self.python("bin/python3", self.libtorch("good", "2.11.0"))
        for name, header in (("new", "torch/headeronly/version.h"), ("old", "torch/csrc/api/include/torch/version.h")):
            bad = self.libtorch(name, "2.1.10", header)
            for answer in (self.search(f"-DCMAKE_PREFIX_PATH={bad}"), self.search(Torch_DIR=f"{bad}/share/cmake/Torch")):
                self.assertIn("which is version 2.1.10. Lockstep needs 2.11.x", answer)

    def test_named_but_not_there(self):
        self.python("bin/python3", self.libtorch("good", "2.11.0"))
        self.assertIn("which does not exist", self.search("-DTorch_DIR=/nowhere/share/cmake/Torch"))
        self.assertIn("no such folder exists", self.search(CMAKE_PREFIX_PATH="/nowhere:/nor/here"))
        os.mkdir(os.path.join(self.folder, "empty"))
        self.assertIn("holds no LibTorch", self.search(f"-DTorch_DIR={self.folder}/empty/share/cmake/Torch"))

    def test_prefix_of_other_libraries_is_passed_over(self):
        good = self.libtorch("good", "2.11.0")
        self.python("bin/python3", good)
        os.mkdir(os.path.join(self.folder, "other"))
        self.assertEqual(self.search(f"-DCMAKE_PREFIX_PATH={self.folder}/other"), good)

    def test_active_python_with_and_without_torch(self):
        self.python("bin/python3", self.libtorch("good", "2.11.0"))
        self.assertEqual(self.search(), os.path.join(self.folder, "good"))
        self.python("bin/python3", self.libtorch("old", "2.10.0"))
        self.assertEqual(self.search(), "")
        self.python("bin/python3", "no torch", status=1)
        self.assertEqual(self.search(), "")

    def test_venv_comes_last(self):
        venv, active = self.libtorch("venv", "2.11.0"), self.libtorch("active", "2.11.1")
        self.python(".venv/bin/python", venv)
        define = f"-DLOCKSTEP_VENV={self.folder}/.venv"
        self.assertEqual(self.search(define), venv)
        self.python("bin/python3", active)
        self.assertEqual(self.search(define), active)

    def test_recorded_comes_after_named(self):
        recorded, good = self.libtorch("recorded", "2.11.0"), self.libtorch("good", "2.11.0")
        self.python("bin/python3", good)
        self.assertEqual(self.search(f"-DLOCKSTEP_RECORDED_TORCH={recorded}"), recorded)
        self.assertEqual(self.search(f"-DLOCKSTEP_RECORDED_TORCH={recorded}", CMAKE_PREFIX_PATH=good), good)
        self.assertEqual(self.search("-DLOCKSTEP_RECORDED_TORCH=/gone"), good)


class TestPython(Search):
    script = "FindTestPython.cmake"

    def test_named(self):
        good, bad = self.python("good", "2.11.0+cpu"), self.python("bad", "2.10.0")
        self.assertEqual(self.search(f"-DLOCKSTEP_TEST_PYTHON={good}"), good)
        self.assertEqual(self.search(LOCKSTEP_TEST_PYTHON=good), good)
        self.assertIn("is not a Python with torch 2.11.x, numpy and safetensors", self.search(LOCKSTEP_TEST_PYTHON=bad))
        self.assertIn("which is not a Python", self.search(LOCKSTEP_TEST_PYTHON="/nowhere"))

    def test_active_then_venv(self):
        venv = self.python(".venv/bin/python", "2.11.0")
        define = f"-DLOCKSTEP_VENV={self.folder}/.venv"
        self.assertEqual(self.search(), "")
        self.assertEqual(self.search(define), venv)
        active = self.python("bin/python3", "no safetensors", status=1)
        self.assertEqual(self.search(define), venv)
        self.python("bin/python3", "2.11.0")
        self.assertEqual(self.search(define), active)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
