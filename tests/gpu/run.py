#!/usr/bin/env python3
"""run [--quick]: proves Lockstep on this machine's GPUs, beside Python on the same card.

Needs NVIDIA's driver, glibc and a Python with torch 2.11, whose LibTorch is used; no compiler and no network. Takes at most 8
minutes on one GPU, with --quick at most 3. Leaves results.json and results.md beside itself, or in --output. Without a GPU it
runs what can run, and says what it could not.
"""
import argparse
import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

KIT = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Result:
    name: str
    verdict: str  # passed, failed, skipped
    seconds: float = 0.0
    detail: str = ""


@dataclasses.dataclass
class Figure:
    """Of a benchmark: Lockstep's and Python's value."""
    name: str
    unit: str
    lockstep: float
    python: float

    @property
    def ratio(self):
        return self.lockstep / self.python if self.python else 0.0


class OutOfTime(Exception):
    pass


def last_lines(output):
    return "\n".join(output.splitlines()[-15:])


class Runner:
    def __init__(self, seconds, folder, environment):
        self.end = time.monotonic() + seconds
        self.folder, self.environment = folder, environment
        self.results, self.figures = [], []

    def command(self, *words, limit=120):
        """What the command printed. Raises RuntimeError with its last lines where it failed."""
        left = self.end - time.monotonic()
        if left < 5:
            raise OutOfTime
        process = subprocess.Popen([str(word) for word in words], cwd=self.folder, env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=min(limit, left))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if limit > left:
                raise OutOfTime from None
            raise RuntimeError(last_lines(output) + f"\nno end after {limit} s") from None
        if process.returncode != 0:
            raise RuntimeError(last_lines(output) + f"\nexit status {process.returncode}")
        return output

    def add(self, name, verdict, seconds=0.0, detail=""):
        self.results.append(Result(name, verdict, seconds, detail))
        print(f"[{len(self.results):3}] {verdict:7} {seconds:6.1f} s  {name}" + (f": {detail.splitlines()[-1]}" if detail else ""),
              flush=True)

    def check(self, name, action):
        begin = time.monotonic()
        try:
            detail = action() or ""
            self.add(name, "passed", time.monotonic() - begin, detail)
        except OutOfTime:
            self.add(name, "skipped", time.monotonic() - begin, "the time is up")
        except Exception as error:  # Whatever it is, the next check still runs.
            self.add(name, "failed", time.monotonic() - begin, str(error))


def find_torch():
    """The folder of the torch of this Python."""
    found = importlib.util.find_spec("torch")
    if found is None:
        sys.exit(f"run: {sys.executable} has no torch. Call this script with a Python that has torch 2.11.")
    root = pathlib.Path(found.submodule_search_locations[0])
    version = re.search(r"__version__ = '(\d+\.\d+)", (root / "version.py").read_text()).group(1)
    if version != "2.11":
        sys.exit(f"run: {sys.executable} has torch {version}, and these programs were built for 2.11.")
    return root


def gpus():
    """The names of the GPUs that the driver shows."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    listed = subprocess.run([smi, "--query-gpu=name", "--format=csv,noheader"], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, timeout=60)
    return listed.stdout.strip().splitlines() if listed.returncode == 0 else []


def job_of(ranks, hosts=False):
    """The launcher's words for a job. With `hosts`, NCCL takes its ranks for those of several hosts, so that they can share a GPU."""
    words = [KIT / "bin/lockstep", "run", "--nproc-per-node", ranks]
    return words + ["sh", "-c", 'NCCL_HOSTID=$RANK NCCL_SOCKET_IFNAME=lo PROBE_DEVICE=cuda:0 exec "$@"', "sh"] if hosts else words


def gtest(runner, program, limit, tests="*", ranks=1, hosts=False):
    """Each test of a GoogleTest program as a result of its own. With several ranks, as a job: the results of rank 0."""
    report = runner.folder / "gtest-0.json"
    report.unlink(missing_ok=True)
    begin, problem = time.monotonic(), ""
    launcher = job_of(ranks, hosts) if ranks > 1 else ()
    try:
        runner.command(*launcher, KIT / "tests" / program, f"--gtest_filter={tests}",
                       f"--gtest_output=json:{runner.folder}/gtest-{'${local_rank}' if launcher else 0}.json", limit=limit)
    except (OutOfTime, RuntimeError) as error:
        problem = str(error) or "the time is up"
    if not report.exists():
        runner.add(program, "failed", time.monotonic() - begin, problem or "no report")
        return
    named = f"{program}, {ranks} ranks{' over NCCL' if hosts else ''}" if launcher else program
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            failures = "\n".join(failure["failure"] for failure in case.get("failures", []))
            verdict = "failed" if failures else "passed" if case["result"] == "COMPLETED" else "skipped"
            # What a test measured.
        notes = "; ".join(value for key, value in case.items() if key.startswith("note"))
        runner.add(f"{named}: {case['name']}", verdict, float(case["time"].rstrip("s")), failures or notes)


def device_checks(runner, cards):
    """What a training does on its device: on the GPUs, if there are any, and on the CPU."""
    which = "*" if cards else "0"
    gtest(runner, "device_test", 90, "*-*RanksOnDevice*/1:*GroupsOnDevice*/1" if cards else "*/0")
    gtest(runner, "device_test", 90, f"*RanksOnDevice*/{which}:*GroupsOnDevice*/{which}", ranks=2)
    if cards:
        gtest(runner, "fused_kernels_test", 90)


def steps_of(runner, model, device, size, precision, rows, steps, warmup, checkpoints=False, graph=False):
    """The same steps by Lockstep and by Python: both JSON lines."""
    with tempfile.TemporaryDirectory(dir=runner.folder) as name:
        folder = pathlib.Path(name)
        weights, flags = folder / "weights.safetensors", ("--graph",) if graph else ()
        ours = runner.command(KIT / "tests" / "model_step", "--model", model, "--device", device, "--size", size, "--precision",
                              precision, "--rows", rows, "--steps", steps, "--warmup", warmup, "--weights", weights, *flags,
                              *(("--checkpoints", folder / "ours") if checkpoints else ()))
        theirs = runner.command(sys.executable, KIT / "model_peer.py", *flags, model, weights, device, precision, steps, warmup,
                                *((folder / "theirs",) if checkpoints else ()))
    return json.loads(ours.splitlines()[-1]), json.loads(theirs.splitlines()[-1])


def compare_losses(runner, model, device, size, precision, rows):
    ours, theirs = steps_of(runner, model, device, size, precision, rows, 6, 0)
    tolerance = 2e-4 if precision == "no" else 3e-2
    worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(ours["losses"], theirs["losses"]))
    if not worst <= tolerance:
        raise RuntimeError(f"losses {ours['losses']}, Python's {theirs['losses']}: apart by {worst:.2g}")
    if not ours["losses"][-1] < ours["losses"][0]:
        raise RuntimeError(f"the loss does not fall: {ours['losses']}")
    return f"losses of 6 steps apart by {worst:.1e} at most"


def compare_models(runner, device, precisions):
    """Several at once: most of their time goes into starting Python."""
    where = "GPU" if device == "cuda" else "CPU"
    with concurrent.futures.ThreadPoolExecutor(max(1, os.cpu_count() // 4)) as pool:
        compared = {f"{model}, tiny, {precision}, on the {where} beside Python":
                    pool.submit(compare_losses, runner, model, device, "tiny", precision, 4)
                    for precision in precisions for model in ("mlp", "gpt2", "bert", "resnet50")}
        for name, losses in compared.items():
            runner.check(name, losses.result)


def measure(runner, model, size, precision, rows, rounds, device="cuda", steps=60, graph=False):
    """Step times and memory in turns, as medians."""
    pairs = [steps_of(runner, model, device, size, precision, rows, steps, 15 if graph else 5, model == "gpt2", graph)
             for _ in range(rounds)]
    name = f"{model} {size}, {precision}, {rows} rows" + (", as a CUDA graph" if graph else "")
    measured = {}
    for key, unit, scale in (("step_ms", "ms a step", 1.0), ("peak_bytes", "MiB at the peak", 2.0**-20),
                             ("save_ms", "ms a checkpoint", 1.0),
                             ("first_stall_ms", "ms held up by the first checkpoint beside the training", 1.0),
                             ("stall_ms", "ms held up by the next one", 1.0),
                             ("batch_ms", "ms for 64 images from the host", 1.0)):
        if key in pairs[0][0]:
            ours, theirs = (statistics.median(pair[side][key] for pair in pairs) * scale for side in (0, 1))
            measured[key] = Figure(name, unit, ours, theirs)
    runner.figures += measured.values()
    return f"{measured['step_ms'].ratio:.2f} of Python's time, {measured['peak_bytes'].ratio:.2f} of its memory"


def compare_program(runner, kind, device):
    """A program from Python gives Python's outputs."""
    file = runner.folder / ("program.pt" if kind == "script" else "program.pt2")
    theirs = json.loads(runner.command(sys.executable, KIT / "program_peer.py", kind, device, file).splitlines()[-1])
    ours = json.loads(runner.command(KIT / "tests/model_step", "--device", device, "--program", file).splitlines()[-1])
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if worst > 1e-5:
        raise RuntimeError(f"outputs {ours}, Python's {theirs}")
    return f"outputs apart by {worst:.1e} at most"


def check_compiled_program(runner, device, quick):
    name = f"a compiled model on {device} beside Python"
    if quick:
        runner.add(name, "skipped", detail="left out by --quick")
    elif shutil.which("g++"):
        runner.check(name, lambda: compare_program(runner, "compiled", device))
    else:
        runner.add(name, "skipped", detail="compiling one needs g++, which is not here")


def ranks_of(launcher):
    """The launcher's children that run the trainer: not the process that ends them should the launcher die."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children if "image_classification" in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]]


def kill_a_rank(runner, device, backend="gloo"):
    """Of two ranks that share a device one is killed: the launcher says which, and the other one ends."""
    out = runner.folder / f"killed-{device.replace(':', '-')}-{backend}"
    words = job_of(2, hosts=backend == "nccl") + [KIT / "bin/image_classification", "--device", device, "--backend", backend,
                                                  "--epochs", 1000, "--output-dir", out]
    process = subprocess.Popen([str(word) for word in words], cwd=runner.folder, env=runner.environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        end, first_line = time.monotonic() + 60, ""
        while time.monotonic() < end and "loss" not in first_line:
            first_line = process.stdout.readline()
        ranks = ranks_of(process.pid)
        if len(ranks) != 2:
            raise RuntimeError(f"two ranks were to train, but there are {len(ranks)}: {first_line}")
        os.kill(ranks[1], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == 0 or "SIGKILL" not in output:
        raise RuntimeError(f"exit status {process.returncode}:\n{output[-800:]}")
    return next(line for line in output.splitlines() if "SIGKILL" in line)


def train_digits(runner, device, *flags, job=job_of(1)):
    out = runner.folder / f"digits-{device}"
    shutil.rmtree(out, ignore_errors=True)
    text = runner.command(*job, KIT / "bin/image_classification", "--device", device, "--output-dir", out, *flags)
    accuracy = float(re.search(r"test accuracy (\d\.\d+)", text).group(1))
    if accuracy < 0.95:
        raise RuntimeError(f"test accuracy {accuracy}, expected 0.95 at least")
    return f"test accuracy {accuracy}"


def cpu_checks(runner):
    runner.check("the installation, two ranks on the CPU",
                 lambda: runner.command(KIT / "bin/lockstep", "test", "--device", "cpu").splitlines()[-1])
    compare_models(runner, "cpu", ("no",))
    runner.check("checkpoints and batches of a tiny gpt2 on the CPU beside Python",
                 lambda: measure(runner, "gpt2", "tiny", "no", 4, 1, "cpu", 5))
    runner.check("TorchScript on the CPU beside Python", lambda: compare_program(runner, "script", "cpu"))
    runner.check("a rank is killed, on the CPU", lambda: kill_a_rank(runner, "cpu"))
    runner.check("digits on the CPU", lambda: train_digits(runner, "cpu"))


def gpu_checks(runner, quick):
    launcher = KIT / "bin/lockstep"
    gtest(runner, "nccl_test", 150)
    runner.check("the installation, one rank over NCCL", lambda: runner.command(
        launcher, "test", "--nproc-per-node", 1, "--device", "cuda").splitlines()[-1])
    compare_models(runner, "cuda", ("bf16",) if quick else ("no", "bf16", "fp16"))
    runner.check("TorchScript on the GPU beside Python", lambda: compare_program(runner, "script", "cuda:0"))
    check_compiled_program(runner, "cuda:0", quick)
    runner.check("a rank is killed, of two that share the GPU", lambda: kill_a_rank(runner, "cuda:0"))
    runner.check("digits on the GPU", lambda: train_digits(runner, "cuda"))
    runner.check("digits on the GPU, bf16", lambda: train_digits(runner, "cuda", "--mixed-precision", "bf16"))
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer and not quick:
        # Without errors of CUDA's calls: NCCL tries some that fail, and does without them.
        runner.check("compute-sanitizer over a training", lambda: runner.command(
            sanitizer, "--error-exitcode", 1, "--report-api-errors", "no", KIT / "tests/model_step", "--model", "mlp",
            "--device", "cuda", limit=120) and "")
    else:
        runner.add("compute-sanitizer over a training", "skipped", detail="left out by --quick" if quick else "not installed")


# What a rank of tests/probe does, what the launcher's last lines say then, and its flags.
FAULTS = [
    (("killed_in_all_reduce",), "root cause: rank 1 ", ()),
    (("killed_in_sharded_backward",), "root cause: rank 1 ", ()),
    (("throws",), "exception: sample 17 has no label", ()),
    (("mismatch", "shape"), "'second' is parameter Float [3] with gradient on rank 0", ()),
    (("leaves_early", "1"), "barrier #1 failed: rank 1 ", ()),
    (("stops",), "barrier #1 timed out after 1000 ms: rank 1 did not arrive", ()),
    (("leaves_in_collectives",), "all_reduce (Float [16], cuda:0) failed: NCCL error", ()),
    (("awaited", "sleeps", "nccl"), "Watchdog caught collective operation timeout", ()),
    (("hangs", "3"), "root cause: rank 1 ", ("--heartbeat-timeout", 6)),
]


def fault_checks(runner, job):
    """Ranks over NCCL that die, leave, stop or hang: the job ends soon, and its last lines name the cause."""
    def end_of(fault):
        words, _, flags = fault
        try:
            runner.command(*job[:2], *flags, *job[2:], KIT / "tests/probe", *words, limit=60)
        except (OutOfTime, RuntimeError) as error:
            return str(error) or "the time is up"
        return "the job did not fail"

    def expect(text, end):
        if text not in end:
            raise RuntimeError(f"expected '{text}':\n{end}")

    # They mostly wait.
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(end_of, FAULTS))
    for (words, text, _), end in zip(FAULTS, ends):
        runner.check(f"over NCCL, a rank fails: {' '.join(words)}", lambda: expect(text, end))


def shared_gpu_checks(runner):
    """Ranks that share a GPU, over NCCL: all but its connections between GPUs."""
    gtest(runner, "device_test", 120, "*RanksOnDevice*/1:*GroupsOnDevice*/1", ranks=2, hosts=True)
    gtest(runner, "device_test", 120, "*GroupsOnDevice*/1", ranks=4, hosts=True)
    runner.check("the installation, two ranks over NCCL", lambda: runner.command(
        *job_of(2, hosts=True), KIT / "bin/lockstep-test", "--device", "cuda:0").splitlines()[-1])
    runner.check("digits on the GPU, two ranks over NCCL", lambda: train_digits(runner, "cuda:0", job=job_of(2, hosts=True)))
    runner.check("a rank is killed, of two over NCCL", lambda: kill_a_rank(runner, "cuda:0", "nccl"))
    fault_checks(runner, job_of(2, hosts=True))


def many_gpu_checks(runner, count):
    launcher = KIT / "bin/lockstep"
    ranks = min(count, 8)
    gtest(runner, "device_test", 120, "*GroupsOnDevice*/1", ranks=ranks)
    fault_checks(runner, job_of(2))
    runner.check(f"the installation, {ranks} ranks over NCCL", lambda: runner.command(
        launcher, "test", "--nproc-per-node", ranks, "--device", "cuda").splitlines()[-1])
    runner.check(f"connections and sums of {ranks} ranks", lambda: runner.command(
        launcher, "check", "--nproc-per-node", ranks).splitlines()[-1])
    runner.check(f"bus bandwidth of {ranks} ranks", lambda: runner.command(
        launcher, "bench", "comm", "--nproc-per-node", ranks, "--device", "cuda", "--collective", "all_reduce",
        "--max-bytes", "256M", "--json", runner.folder / "comm.json").splitlines()[-1])


def benchmarks(runner, quick):
    rounds = 1 if quick else 2
    plan = [("mlp", "full", "no", 8), ("gpt2", "full", "bf16", 4), ("bert", "full", "bf16", 32), ("resnet50", "full", "bf16", 64)]
    for model, size, precision, rows in plan:
        runner.check(f"step time of {model}, {size}, {precision}",
                     lambda row=(model, size, precision, rows): measure(runner, *row, rounds))
    runner.check("step time of mlp as a CUDA graph", lambda: measure(runner, "mlp", "full", "no", 8, rounds, graph=True))


def write_results(runner, cards, torch_root, output, seconds):
    counts = {verdict: sum(result.verdict == verdict for result in runner.results) for verdict in ("passed", "failed", "skipped")}
    document = {"gpus": cards, "torch": str(torch_root), "seconds": round(seconds), "counts": counts,
                "results": [dataclasses.asdict(result) for result in runner.results],
                "figures": [dataclasses.asdict(figure) | {"ratio": figure.ratio} for figure in runner.figures]}
    (output / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    lines = ["# Lockstep on " + (", ".join(cards) or "a machine without a GPU"), "",
             ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f"; {seconds:.0f} s.", ""]
    if runner.figures:
        lines += ["| what | Lockstep | Python | Lockstep / Python |", "| --- | --- | --- | --- |"]
        lines += [f"| {f.name}, {f.unit} | {f.lockstep:.2f} | {f.python:.2f} | {f.ratio:.2f} |" for f in runner.figures] + [""]
    lines += ["| test | verdict | seconds | |", "| --- | --- | --- | --- |"]
    lines += [f"| {r.name} | {r.verdict} | {r.seconds:.1f} | {' '.join(r.detail.split())[:300]} |" for r in runner.results]
    (output / "results.md").write_text("\n".join(lines) + "\n")
    return counts


def environment_for(torch_root):
    """This process's, with the kit's libraries finding LibTorch: by a link beside them, or by LD_LIBRARY_PATH."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PROBE_DEVICE="cuda")
    link = KIT / "libtorch"
    try:
        if not link.exists() or link.resolve() != torch_root.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(torch_root)
    except OSError:
        environment["LD_LIBRARY_PATH"] = f"{torch_root / 'lib'}:{environment.get('LD_LIBRARY_PATH', '')}"
    return environment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="at most 3 minutes")
    parser.add_argument("--output", type=pathlib.Path, default=KIT, help="folder of the results")
    arguments = parser.parse_args()
    torch_root, cards, begin = find_torch(), gpus(), time.monotonic()
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(f"Lockstep on {', '.join(cards) or 'a machine without a GPU'}, with the LibTorch in {torch_root}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(175 if arguments.quick else 470, pathlib.Path(folder), environment_for(torch_root))
        runner.check("versions and host", lambda: runner.command(KIT / "bin/lockstep", "env") and "")
        device_checks(runner, cards)
        # What only a GPU can show comes first: the time is limited.
        if cards:
            gpu_checks(runner, arguments.quick)
        else:
            runner.add("all tests and benchmarks on GPUs", "skipped", detail="this machine shows no NVIDIA GPU")
        if len(cards) > 1:
            many_gpu_checks(runner, len(cards))
        elif cards:
            shared_gpu_checks(runner)
            runner.add("several GPUs over NCCL", "skipped", detail="this machine has one GPU")
        if cards:
            benchmarks(runner, arguments.quick)
        if cards and arguments.quick:
            runner.add("the same on the CPU beside Python", "skipped", detail="left out by --quick")
        else:
            cpu_checks(runner)
        counts = write_results(runner, cards, torch_root, arguments.output, time.monotonic() - begin)
    print(f"{counts}; see {arguments.output / 'results.md'}")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
