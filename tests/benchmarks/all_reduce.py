#!/usr/bin/env python3
"""All-reduce of 4 KiB to 64 MiB over shared memory, Gloo and, where they are there, Open MPI and MPICH, side by side: medians
in microseconds, and how many times faster than the others shared memory is. "default" is Gloo as users get it, "verified" the
same with a label, as buckets have one: those calls are verified; "gloo" has LOCKSTEP_DEBUG=off. The MPIs are those that Debian's
packages openmpi-bin with libopenmpi-dev, and mpich with libmpich-dev, install beside each other. oneCCL takes part where
ONECCL_ROOT names a virtual environment with the wheels oneccl-devel and impi-devel; it needs libhwloc-dev.

Usage: all_reduce.py BUILD_FOLDER [RANKS ...]      ranks are 2 and 4 unless given
"""

import os
import shutil
import subprocess
import sys
import tempfile

from harness.benchmark import OURS, Benchmark, Row
from harness.turns import Together

HERE = os.path.dirname(os.path.abspath(__file__))
OTHERS = ["gloo", "openmpi", "mpich", "oneccl"]
COLUMNS = ["core_staged", "core_direct", "staged", "direct", *OTHERS, "default", "verified", "memcpy"]
CCL_LIBRARIES = ["-l:libmpi.so.12", "-l:libsvml.so", "-l:libirng.so", "-l:libimf.so", "-l:libintlc.so.5", "-l:libirc.so",
                 "-lhwloc", "-ldl", "-lpthread", "-Wl,--allow-shlib-undefined"]
STARTERS = {"openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"], "mpich": ["mpirun.mpich", "-n"]}


def times_of(command, settings=None):
    """{(transport, bytes): microseconds} from a program's lines."""
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900,
                            env={**os.environ, **(settings or {})}).stdout
    rows = [line.split() for line in output.splitlines()]
    return {(row[0], int(row[1])): float(row[2]) for row in rows if len(row) == 3 and row[0] in [*COLUMNS, "mpi"]}


def mpi_times(which, ranks):
    compiler, starter = f"mpicc.{which}", STARTERS[which]
    if not (shutil.which(compiler) and shutil.which(starter[0])):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "all_reduce_mpi")
        subprocess.run([compiler, "-O2", "-o", program, os.path.join(HERE, "all_reduce_mpi.c")], check=True)
        return {(which, size): time for (_, size), time in times_of([*starter, str(ranks), program]).items()}


def ccl_times(ranks):
    root = os.environ.get("ONECCL_ROOT")
    if not root:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program, places = os.path.join(folder, "all_reduce_ccl"), [f"-I{root}/include", f"-I{root}/include/mpi"]
        subprocess.run(["c++", "-std=c++17", "-O2", *places, "-o", program, os.path.join(HERE, "all_reduce_ccl.cpp"),
                        f"{root}/lib/ccl/cpu/lib/libccl.a", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", *CCL_LIBRARIES], check=True)
        settings = {"I_MPI_ROOT": root, "CCL_ROOT": root, "LD_LIBRARY_PATH": f"{root}/lib", "I_MPI_FABRICS": "shm"}
        return times_of([f"{root}/bin/mpiexec.hydra", "-n", str(ranks), program], settings)


def ratio(times, size, ours):
    return "/".join(f"{times[(name, size)] / times[(ours, size)]:.1f}" if (name, size) in times else "-" for name in OTHERS)


def print_table(ranks, times):
    print(f"{ranks} ranks, median us" + "".join(f"{name:>13}" for name in COLUMNS) + "   " + "/".join(OTHERS) + " to staged, to direct")
    for size in sorted({size for _, size in times}):
        cells = [f"{times[(name, size)]:13.1f}" if (name, size) in times else f"{'-':>13}" for name in COLUMNS]
        print(f"{size:>18}" + "".join(cells), " ", ratio(times, size, "staged"), " ", ratio(times, size, "direct"), flush=True)


def main():
    build = sys.argv[1]
    for ranks in [int(word) for word in sys.argv[2:]] or [2, 4]:
        times = times_of([os.path.join(build, "bin", "lockstep"), "run", "--nproc-per-node", str(ranks),
                          os.path.join(build, "tests", "all_reduce_benchmark")])
        times.update(times_of([os.path.join(build, "tests", "all_reduce_core_benchmark"), str(ranks)]))
        for which in STARTERS:
            times.update(mpi_times(which, ranks))
        times.update(ccl_times(ranks))
        print_table(ranks, times)


def our_times(setting):
    """Of the transports that one program measures in turns, for each side: Lockstep's two, Gloo, and a copy."""
    found = {OURS: {}, "Gloo": {}, COPY: {}}
    for ranks in (2,) if setting.quick else (2, 4):
        times = times_of([setting.launcher, "run", "--nproc-per-node", str(ranks), setting.program("tests/all_reduce_benchmark")])
        for size in SIZES:
            row = f"{ranks}_{SIZES[size]}"
            found[OURS][row], found[OURS][row + "_bucket"] = times["staged", size], times["direct", size]
            found["Gloo"][row] = found["Gloo"][row + "_bucket"] = times["gloo", size]
            found[COPY][row] = times["memcpy", size]
    return found


def mpi_turn(setting, which):
    times = {}
    for ranks in (2,) if setting.quick else (2, 4):
        measured = mpi_times(which, ranks)
        for size in SIZES:
            times[f"{ranks}_{SIZES[size]}"] = times[f"{ranks}_{SIZES[size]}_bucket"] = measured[which, size]
    return times


def sides(setting):
    ours = Together(lambda: our_times(setting))
    found = {name: ours.side(name) for name in (OURS, "Gloo", COPY)}
    for which, title in (("openmpi", "Open MPI"), ("mpich", "MPICH")):
        if shutil.which(f"mpicc.{which}") and shutil.which(STARTERS[which][0]):
            found[title] = lambda which=which: mpi_turn(setting, which)
    return found


COPY = "one copy of as many bytes"
SIZES = {4 << 10: "4k", 64 << 10: "64k", 1 << 20: "1m", 16 << 20: "16m", 64 << 20: "64m"}


def rows():
    for ranks in (2, 4):
        for size, name in SIZES.items():
            text = f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"
            yield Row(f"{ranks}_{name}", f"all-reduce of {text}, {ranks} ranks", "us", limit=COPY)
            # The ranks share the work on memory that all of them see: a copy by one process is no limit.
            yield Row(f"{ranks}_{name}_bucket", f"all-reduce of {text}, {ranks} ranks, a bucket of DDP", "us")


BENCHMARK = Benchmark("all_reduce", "sums of float32 over shared memory beside Gloo, and beside MPIs that are installed", "communication.md",
                      tuple(rows()), sides, ("bin/lockstep", "tests/all_reduce_benchmark"))

if __name__ == "__main__":
    main()
