#!/usr/bin/env python3
"""Two builds of Lockstep side by side, in turns: launch (time and memory), the end of a job after a rank's death, all-reduce
of 4 KiB to 64 MiB, and DDP steps. Prints the medians of both and the ratio of the second build to the first.

Usage: compare_builds.py FIRST_BUILD SECOND_BUILD [PART ...]      parts: launch death all_reduce ddp
Each build has had `cmake --build BUILD --target lockstep_launcher benchmarks`. REPEATS=n in the environment: rounds of each
comparison (7). Run it with a Python that has torch.
"""

import collections
import os
import statistics
import sys

import all_reduce
import ddp_step
import launch

REPEATS = int(os.environ.get("REPEATS", "7"))


def launcher(build):
    return os.path.join(build, "bin", "lockstep")


def in_turns(builds, measure):
    """{what: ([values of the first build], [values of the second])}; measure(build) gives {what: value}."""
    results = collections.defaultdict(lambda: ([], []))
    for turn in range(REPEATS):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        for which in order:
            for what, value in measure(builds[which]).items():
                results[what][which].append(value)
    return results


def print_ratios(title, unit, results):
    for what, values in results.items():
        if not all(values):
            continue  # Only one of the builds measures this.
        first, second = (statistics.median(one) for one in values)
        print(f"{title:10} {what:32} {first:10.2f} {second:10.2f} {unit:4} {second / first:6.3f}", flush=True)


def compare_launch(builds):
    for ranks, runs in ((2, 5), (8, 3), (64, 1)):
        def once(build):
            command = [launcher(build), "run", "--standalone", "--nproc-per-node", str(ranks)]
            return {f"{ranks} ranks, ms": statistics.median(launch.seconds(command) for _ in range(runs)) * 1000,
                    f"{ranks} ranks, MiB": launch.mebibytes(command)}
        print_ratios("launch", "", in_turns(builds, once))


def compare_deaths(builds):
    def once(build):
        return {"SIGKILL to the job's end": 1000 * launch.time_to_end([launcher(build), "run", "--standalone",
                                                                       "--nproc-per-node", "2"])}
    print_ratios("death", "ms", in_turns(builds, once))


def compare_all_reduce(builds):
    for ranks in (2, 4):
        def once(build):
            program = os.path.join(build, "tests", "all_reduce_benchmark")
            times = all_reduce.times_of([launcher(build), "run", "--nproc-per-node", str(ranks), program])
            return {f"{ranks} ranks, {name}, {size >> 10} KiB": time for (name, size), time in times.items() if name != "memcpy"}
        print_ratios("all_reduce", "us", in_turns(builds, once))


def compare_steps(builds):
    for model in ("mlp", "resnet", "gpt"):
        for name, flags in (("default, bucket views", ["--view"]), ("gloo", ["--backend", "gloo"])):
            def once(build):
                command = ddp_step.lockstep(os.path.join(build, "tests", "ddp_step"), *flags)(model)
                return {f"{model}, {name}": statistics.median(ddp_step.times(launcher(build), command))}
            print_ratios("ddp", "ms", in_turns(builds, once))


PARTS = {"launch": compare_launch, "death": compare_deaths, "all_reduce": compare_all_reduce, "ddp": compare_steps}


def main(first, second, *parts):
    print(f"{'':10} {'':32} {'first':>10} {'second':>10} {'':4} {'ratio':>6}")
    for part in parts or PARTS:
        PARTS[part]((first, second))


if __name__ == "__main__":
    main(*sys.argv[1:])
