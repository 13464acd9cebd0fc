"""Shared memory compiles for aarch64 without a warning, and adds up float32 with NEON: aarch64.py ROOT COMPILER FMT SOURCE...

The sources are those that have no instructions of x86. Without a cross compiler nothing is checked, and it says so: exit
code 77.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

# As in cmake/LockstepBuild.cmake and src/CMakeLists.txt.
FLAGS = ["-std=c++20", "-O2", "-DNDEBUG", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wnon-virtual-dtor", "-Werror", "-fPIC"]
VECTORISED = {"kernels.cpp": ["-O3", "-fno-trapping-math"]}


def compile_one(root, compiler, fmt, source, folder):
    """What the compiler says about a source that it does not take."""
    name = os.path.basename(source)
    done = subprocess.run([compiler, *FLAGS, *VECTORISED.get(name, []), "-I" + os.path.join(root, "src"),
                           "-I" + os.path.join(root, "include"), "-I" + fmt, "-c", source, "-o", os.path.join(folder, name + ".o")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"{source}:\n{done.stdout}" if done.returncode else ""


def has_neon_sum(disassembly):
    """Whether some function that sums floats adds four at a time."""
    for function in re.split(r"\n(?=[0-9a-f]+ <)", disassembly):
        head = function.split("\n", 1)[0]
        if re.search(r"<float,[^>]*Sum", head) and re.search(r"\bfadd\s+v\d+\.4s", function):
            return True
    return False


def problems(root, compiler, fmt, sources, folder):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(lambda source: compile_one(root, compiler, fmt, source, folder), sources) if text]
    objdump = shutil.which(re.sub(r"g\+\+(-\d+)?$", "objdump", compiler))
    if found or not objdump:
        return found
    disassembly = subprocess.run([objdump, "-dC", os.path.join(folder, "kernels.cpp.o")],
                                 stdout=subprocess.PIPE, text=True, check=True).stdout
    return [] if has_neon_sum(disassembly) else ["kernels.cpp: no sum of float32 adds with NEON (fadd v.4s)"]


def main(root, compiler, fmt, *sources):
    if not shutil.which(compiler):
        print(f"skipped: {compiler} is not installed (Debian: g++-aarch64-linux-gnu)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        found = problems(root, shutil.which(compiler), fmt, sources, folder)
    print("\n".join(found) or f"{len(sources)} sources compile for aarch64")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
