#!/usr/bin/env python3
"""speed [--quick] [--seconds S] [--only WORDS] [--compile-only]: how fast models train on this machine's GPU, beside Python.

Trains GPT-2 124M, BERT-base and ResNet-50 by a loop of the program's own and by Trainer, and the same models by PyTorch: eager,
torch.compile, and torch.compile(mode="reduce-overhead"), all in one run. Leaves speed.json and speed.md beside itself, or in
--output: times of a step (medians of five windows), MFU, kernels a step, the share of time in which the GPU is busy, memory, the
seconds of the first step, and the most expensive kernels. Needs what `run` needs, and takes 8 minutes at most; compiling the
peers' models takes most of that. --compile-only does nothing else, several at a time, so that other checks can run beside it;
PyTorch keeps the results, and a later call needs seconds for them.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

KIT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(KIT))
import run as kit  # noqa: E402

# Dense bf16 products, by the data sheets: the field counts MFU by it.
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
TABLE_ROWS = 40


class Case:
    """A model with a batch, as both sides train it."""

    def __init__(self, model, rows, steps, size="full", precision="bf16"):
        self.model, self.rows, self.steps, self.size, self.precision = model, rows, steps, size, precision

    @property
    def name(self):
        titles = {"gpt2": "GPT-2 124M", "bert": "BERT-base", "resnet50": "ResNet-50"}
        kinds = {"gpt2": "texts of 1,024 tokens", "bert": "texts of 128 tokens", "resnet50": "images"}
        return f"{titles[self.model]}, {self.rows} {kinds[self.model]}" + ("" if self.size == "full" else f" ({self.size})")

    def flops(self):
        """Of a step. Of texts by nanoGPT's formula: 6 N + 12 layers * width * tokens for each token."""
        if self.model == "resnet50":
            return 3 * 2 * 4.09e9 * self.rows
        parameters, length = {"gpt2": (124.4e6 - 0.8e6, 1024), "bert": (109.5e6 - 0.4e6, 128)}[self.model]
        if self.model == "bert":
            parameters -= 30522 * 768  # Looked up, and no head multiplies by them.
        return (6 * parameters + 12 * 12 * 768 * length) * self.rows * length


CASES = [Case("gpt2", 4, 20), Case("bert", 32, 20), Case("resnet50", 64, 20), Case("gpt2", 32, 5), Case("resnet50", 256, 6)]
PEERS = ("eager", "compile", "reduce-overhead")
# What runs on Lockstep's side: its name, flags, and variables.
OURS = {"trainer": (("--loop", "trainer", "--cuda-graphs", "auto"), {}),
        "plain loop": (("--loop", "plain"), {}),
        "trainer, cuDNN's benchmark": (("--loop", "trainer", "--cuda-graphs", "auto", "--cudnn-benchmark"), {}),
        "trainer, no graphs": (("--loop", "trainer", "--cuda-graphs", "off"), {}),
        "trainer, no fused kernels": (("--loop", "trainer", "--cuda-graphs", "auto"), {"LOCKSTEP_FUSED_KERNELS": "off"}),
        "trainer, neither": (("--loop", "trainer", "--cuda-graphs", "off"), {"LOCKSTEP_FUSED_KERNELS": "off"})}


def read_trace(path, steps=3):
    """Of a Chrome trace: kernels a step, the milliseconds of a step in which the GPU is busy, and the most expensive kernels."""
    events = [event for event in json.loads(pathlib.Path(path).read_text())["traceEvents"]
              if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    names, busy, end = {}, 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event["ts"]):
        begin, finish = event["ts"], event["ts"] + event["dur"]
        busy += max(0.0, finish - max(begin, end))
        end = max(end, finish)
        count, total = names.get(event["name"], (0, 0.0))
        names[event["name"]] = count + 1, total + event["dur"]
    table = sorted(((total / steps / 1000, count / steps, name) for name, (count, total) in names.items()), reverse=True)
    return {"kernels": len(events) / steps, "busy_ms": busy / steps / 1000,
            "table": [{"ms": ms, "calls": calls, "kernel": name[:160]} for ms, calls, name in table[:TABLE_ROWS]]}


class Speed:
    def __init__(self, folder, environment, seconds, device):
        self.folder, self.environment, self.device = folder, environment, device
        self.end = time.monotonic() + seconds
        self.rows, self.notes = [], []

    def left(self):
        return self.end - time.monotonic()

    def command(self, words, variables=None, limit=150):
        words = [str(word) for word in words]
        return subprocess.run(words, cwd=self.folder, env=self.environment | (variables or {}), text=True, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=max(5, min(limit, self.left()))).stdout

    def weights(self, case):
        """The file with which both sides begin."""
        file = self.folder / f"{case.model}-{case.rows}.safetensors"
        if not file.exists():
            self.command([KIT / "tests/step_speed", "--model", case.model, "--size", case.size, "--device", self.device, "--rows", case.rows,
                          "--precision", case.precision, "--warmup", 1, "--window-steps", 1, "--weights", file])
        return file

    @contextlib.contextmanager
    def noting(self, what):
        """What fails is told, and the rest still runs."""
        begin = time.monotonic()
        try:
            yield
        except subprocess.CalledProcessError as error:
            self.note(f"{what}: {kit.last_lines(error.stderr or error.stdout or str(error))}")
        except subprocess.TimeoutExpired as error:
            self.note(f"{what}: no end after {error.timeout:.0f} s")
        except Exception as error:  # noqa: BLE001
            self.note(f"{what}: {type(error).__name__}: {error}")
        print(f"  {time.monotonic() - begin:5.1f} s  {what}", flush=True)

    def note(self, text):
        self.notes.append(text)
        print(text, flush=True)

    def add(self, case, side, result, trace):
        row = {"case": case.name, "side": side} | result
        if trace is not None and trace.exists():
            row |= read_trace(trace)
        self.rows.append(row)
        print(f"  {case.name}, {side}: {row['step_ms']:.2f} ms", flush=True)

    def measure_ours(self, case, side, trace=True):
        flags, variables = OURS[side]
        with self.noting(f"{case.name}, {side}"):
            traces = self.folder / f"trace-{case.model}-{case.rows}-{re.sub('[^a-z]+', '-', side)}"
            output = self.command([KIT / "tests/step_speed", "--model", case.model, "--size", case.size, "--device", self.device,
                                   "--rows", case.rows, "--precision", case.precision, "--warmup", 30, "--window-steps", case.steps,
                                   *(("--trace", traces) if trace else ()), *flags], variables)
            self.add(case, side, json.loads(output.splitlines()[-1]), next(iter(sorted(traces.glob("*.json"))), None))

    def measure_peers(self, case, modes, trace):
        with self.noting(f"{case.name}, PyTorch"):
            traces = self.folder / f"trace-{case.model}-{case.rows}-peers"
            output = self.command([sys.executable, KIT / "speed_peer.py", case.model, self.weights(case), self.device, case.precision,
                                   30, case.steps, ",".join(modes), *((traces,) if trace else ())], limit=240)
            for line in output.splitlines():
                result = json.loads(line)
                mode = result.pop("mode")
                if "error" in result:
                    self.note(f"{case.name}, PyTorch {mode}: {result['error']}")
                else:
                    self.add(case, f"PyTorch, {mode}", result, traces / f"{mode}.pt.trace.json")

    def compile_peers(self, cases):
        """Fills PyTorch's cache: what compiling costs before the first step."""
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            def compiled(case):
                with self.noting(f"{case.name}, compiling"):
                    return self.command([sys.executable, KIT / "speed_peer.py", case.model, self.weights(case), self.device, case.precision,
                                         2, 1, "compile,reduce-overhead"], limit=300)
            for case, output in zip(cases, pool.map(compiled, cases)):
                for line in (output or "").splitlines():
                    result = json.loads(line)
                    if "error" in result:
                        self.note(f"{case.name}, compiling, {result['mode']}: {result['error']}")
                    else:
                        self.note(f"{case.name}: PyTorch, {result['mode']}, compiled in {result['first_step_s']:.0f} s, "
                                  f"{len(cases)} models at a time")

    def calibrate(self):
        with self.noting("products and copies"):
            for name, value in json.loads(self.command([sys.executable, KIT / "speed_peer.py", "calibrate"]).splitlines()[-1]).items():
                self.note(f"{name}: {value:.2f}")


def check_losses(speed):
    """Each side's first losses beside eager PyTorch's."""
    for row in speed.rows:
        eager = next((other for other in speed.rows if other["case"] == row["case"] and other["side"] == "PyTorch, eager"), None)
        if eager is None or row is eager:
            continue
        row["loss_gap"] = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(row["losses"], eager["losses"]))


def write_results(speed, cards, output):
    peak = next((flops for name, flops in PEAK_FLOPS.items() if cards and name in cards[0]), None)
    flops = {case.name: case.flops() for case in CASES}
    lines = ["# Speed on " + (", ".join(cards) or "a machine without a GPU"), "",
             "| model | by | ms a step | fastest, slowest | MFU | kernels a step | GPU busy | MiB at the peak | first step | losses apart |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in speed.rows:
        if peak and row["case"] in flops:
            row["mfu"] = flops[row["case"]] / (row["step_ms"] / 1000) / peak
        share = f"{row['busy_ms']:.2f} ms, {min(1.0, row['busy_ms'] / row['step_ms']):.0%}" if row.get("busy_ms") else ""
        lines.append(f"| {row['case']} | {row['side']} | {row['step_ms']:.2f} | {row['fastest_ms']:.2f}, {row['slowest_ms']:.2f} | "
                     f"{row.get('mfu', 0):.1%} | {row.get('kernels', 0):.0f} | {share} | {row['peak_bytes'] / 2**20:.0f} | "
                     f"{row['first_step_s']:.2f} s | {row.get('loss_gap', 0):.1e} |")
    lines += [""] + [f"- {' '.join(note.split())}" for note in speed.notes]
    for row in speed.rows:
        if row.get("table"):
            lines += ["", f"## Kernels of {row['case']}, {row['side']}", "", "| ms a step | calls | kernel |", "| --- | --- | --- |"]
            lines += [f"| {entry['ms']:.3f} | {entry['calls']:.0f} | `{entry['kernel']}` |" for entry in row["table"]]
    (output / "speed.json").write_text(json.dumps({"gpus": cards, "rows": speed.rows, "notes": speed.notes}, indent=1) + "\n")
    (output / "speed.md").write_text("\n".join(lines) + "\n")
    table_end = lines.index("")
    print("\n".join(lines[: next(i for i in range(table_end + 1, len(lines)) if lines[i] == "")]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="GPT-2 with 4 texts alone")
    parser.add_argument("--seconds", type=float, default=470, help="no measurement begins later")
    parser.add_argument("--only", default="", help="cases such as gpt2-4,bert-32")
    parser.add_argument("--sides", default="trainer;plain loop", help="of " + "; ".join(OURS))
    parser.add_argument("--all-sides-of", default="gpt2-4", help="the case of which all of these are measured, with traces of the peers")
    parser.add_argument("--no-peers", action="store_true", help="only Lockstep")
    parser.add_argument("--compile-only", action="store_true", help="only compile the peers' models")
    parser.add_argument("--output", type=pathlib.Path, default=KIT, help="folder of the results")
    arguments = parser.parse_args()
    torch_root, cards = kit.find_torch(), kit.gpus()
    environment = kit.environment_for(torch_root) | {"OMP_NUM_THREADS": str(max(1, min(8, (os.cpu_count() or 1) // 2)))}
    arguments.output.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only.split(",") if arguments.only else ["gpt2-4"] if arguments.quick else None
    cases = [case for case in CASES if wanted is None or f"{case.model}-{case.rows}" in wanted]
    if not cards:  # What can be tried without one: that both sides train the same.
        cases = [Case(case.model, 2, 1, "tiny", "no") for case in cases[:1]]
    with tempfile.TemporaryDirectory() as folder:
        speed = Speed(pathlib.Path(folder), environment, arguments.seconds, "cuda" if cards else "cpu")
        if arguments.compile_only:
            speed.compile_peers(cases)
            return
        if cards and not arguments.no_peers:
            speed.calibrate()
        for case in cases:
            whole = f"{case.model}-{case.rows}" == arguments.all_sides_of
            sides = [side for side in OURS if "cuDNN" not in side or case.model == "resnet50"] if whole else arguments.sides.split(";")
            for side in sides:
                speed.measure_ours(case, side)
            if not arguments.no_peers:
                speed.measure_peers(case, PEERS if cards else PEERS[:1], trace=whole)
            check_losses(speed)
            write_results(speed, cards, arguments.output)
    gap = max((row.get("loss_gap", 0) for row in speed.rows), default=0)
    print(f"{len(speed.rows)} measurements, {len(speed.notes)} notes; see {arguments.output / 'speed.md'}")
    sys.exit(0 if speed.rows and gap < 5e-2 else 1)


if __name__ == "__main__":
    main()
