"""What a build from nothing costs, without a compiler cache: build_cost.py [--target demo] [--source CHECKOUT]

Configures a build folder of its own, builds the target, and prints the wall time, the CPU seconds of all compilers, and
the files that cost most. CPU seconds are what can be compared on one machine: beside other work the wall time says little.
Across machines, and beside work that shares their caches, what can be compared is a file's cost beside that of LibTorch's
own headers, which the same build has precompiled: the last column. --source names another checkout, so that two states of
the tree are measured on one machine. --limit R fails when one file costs more than R times LibTorch's headers. --log FILE
reads what a build has written whose compiler launcher was this script:

    LOCKSTEP_BUILD_COST_LOG=/tmp/costs.txt CMAKE_CXX_COMPILER_LAUNCHER="python3;$PWD/tests/benchmarks/build_cost.py;--compile" make test
"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOG = "LOCKSTEP_BUILD_COST_LOG"


def compile_one(command):
    """Runs one compiler, as CMake's compiler launcher, and notes what it cost."""
    status = subprocess.run(command).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else "?"
    with open(os.environ[LOG], "a") as log:  # One short line: appended whole.
        log.write(f"{usage.ru_utime + usage.ru_stime:.2f} {usage.ru_maxrss} {output}\n")
    return status


def build(source, folder, target, jobs):
    log = folder / "costs.txt"
    environment = dict(os.environ, **{LOG: str(log)}, CCACHE_DISABLE="1")
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--compile"
    subprocess.run(["cmake", "--preset", "tests" if target != "demo" else "default", "-B", folder / "build",
                    f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"],
                   cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
    start = time.monotonic()
    subprocess.run(["cmake", "--build", folder / "build", "--target", target, "-j", str(jobs)], env=environment,
                   check=True)
    return time.monotonic() - start, read(log)


def read(log):
    rows = [line.split(" ", 2) for line in log.read_text().splitlines()]
    return sorted(((float(cpu), int(memory), name) for cpu, memory, name in rows), reverse=True)


def yardstick(files):
    """The CPU seconds of LibTorch's headers: the largest precompiled header holds nothing else."""
    return max(cpu for cpu, _, name in files if name.endswith(".gch"))


def short(name):
    return name.replace("CMakeFiles/", "").removesuffix(".o")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="demo", help="what to build: demo, or all")
    parser.add_argument("--source", type=pathlib.Path, default=ROOT, help="the checkout to build")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, help="fail when one file costs more than this many times LibTorch's headers")
    parser.add_argument("--log", type=pathlib.Path, help="build nothing: what an earlier build has written")
    arguments = parser.parse_args()
    if arguments.log:
        files, wall = read(arguments.log), ""
    else:
        with tempfile.TemporaryDirectory(prefix="lockstep-build-") as folder:
            seconds, files = build(arguments.source.resolve(), pathlib.Path(folder), arguments.target, arguments.jobs)
        wall = f", {seconds:.0f} s of wall time with {arguments.jobs} jobs"
    print(f"{arguments.log or arguments.target}: {sum(cpu for cpu, _, _ in files):.0f} CPU s in {len(files)} compilers{wall}")
    headers = yardstick(files)
    for cpu, memory, name in files[:20]:
        print(f"{cpu:7.1f} CPU s {memory // 1024:6d} MiB {cpu / headers:5.2f} of LibTorch's headers  {short(name)}")
    if arguments.limit and files[0][0] > arguments.limit * headers:
        sys.exit(f"{short(files[0][2])} costs more than {arguments.limit:g} times LibTorch's headers ({headers:.1f} CPU s)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        sys.exit(compile_one(sys.argv[2:]))
    main()
