"""Saving 504 MB of weights and optimizer state, in one run: save.py SAVE_BENCHMARK FOLDER [ROUNDS]

Lockstep's save_state() beside torch.save, safetensors.torch.save_file and torch.distributed.checkpoint, in turns, on the
same disk. Lockstep flushes what it writes and checks it against a manifest; the peers are timed as they are, and with an
fsync of their files. 'stall' is how long a training loop waits for an asynchronous save, 'async' until it is complete. Run
it with a Python that has torch and safetensors. Prints medians in seconds and how many times Lockstep's each is.
"""
import functools
import os
import shutil
import statistics
import subprocess
import sys
import time

from harness.benchmark import OURS, Benchmark, Row

BYTES = 10 * (2048 * 2048 + 2048) * 3 * 4  # Weights and two moments in float32.


@functools.lru_cache(maxsize=None)
def make_state():
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(10)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2048)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def flat(state):
    moments = {f"{key}.{name}": value for key, values in state["optimizer"]["state"].items() for name, value in values.items()}
    return state["model"] | moments


def flush(place):
    for root, _, names in os.walk(place):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())


def timed(times, name, folder, action, with_flush=True):
    place = os.path.join(folder, "peer")
    os.makedirs(place)
    begin = time.perf_counter()
    action(place)
    times.setdefault(name, []).append(time.perf_counter() - begin)
    if with_flush:
        flush(place)
        times.setdefault(name + ", flushed", []).append(time.perf_counter() - begin)
    shutil.rmtree(place)


def save_by_torch(times, folder):
    import torch
    timed(times, "torch.save", folder, lambda place: torch.save(make_state(), os.path.join(place, "state.pt")))


def save_by_safetensors(times, folder):
    import safetensors.torch
    timed(times, "safetensors", folder,
          lambda place: safetensors.torch.save_file(flat(make_state()), os.path.join(place, "state.safetensors")))


def save_distributed(times, folder):
    import torch.distributed.checkpoint as dcp
    timed(times, "torch.distributed.checkpoint", folder, lambda place: dcp.save(make_state(), checkpoint_id=place), with_flush=False)
    place = os.path.join(folder, "peer")
    begin = time.perf_counter()
    future = dcp.async_save(make_state(), checkpoint_id=place)
    times.setdefault("torch.distributed.checkpoint stall", []).append(time.perf_counter() - begin)
    future.result()
    times.setdefault("torch.distributed.checkpoint async", []).append(time.perf_counter() - begin)
    shutil.rmtree(place)


PEERS = (save_by_torch, save_by_safetensors, save_distributed)


def ours(times, program, folder):
    # The second of two rounds: the peers' process is an old one too, and has the memory that a copy needs.
    done = subprocess.run([program, folder, "2"], check=True, text=True, stdout=subprocess.PIPE)
    for name, seconds in [line.split() for line in done.stdout.splitlines()][3:]:
        times.setdefault(f"Lockstep {name}", []).append(float(seconds))


def main():
    program, folder = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    os.makedirs(folder, exist_ok=True)
    times = {}
    for counted in [{}] + [times] * rounds:
        make_state()
        ours(counted, program, folder)
        for peer in PEERS:
            peer(counted, folder)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, middle in medians.items():
        kind = next((kind for kind in ("stall", "async") if name.endswith(kind)), "sync")
        print(f"{name:40} {middle:8.3f} s {middle / medians['Lockstep ' + kind]:8.2f} times Lockstep's {kind}")
    import torch.distributed as dist
    dist.destroy_process_group()


def turn(action, names):
    times = {}
    action(times)
    return {row: times[name] for row, name in names.items()}


def write_plainly(folder):
    data = os.urandom(1 << 20) * 8
    path = os.path.join(folder, "plain")
    begin = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for written in range(0, BYTES, len(data)):
            file.write(data[:BYTES - written])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    os.remove(path)
    return {"sync": seconds, "async": seconds}


def sides(setting):
    make = {OURS: (lambda times: ours(times, setting.program("tests/save_benchmark"), setting.folder),
                   {row: f"Lockstep {row}" for row in ("sync", "stall", "async")}),
            "torch.save, flushed": (lambda times: save_by_torch(times, setting.folder), {"sync": "torch.save, flushed"}),
            "safetensors, flushed": (lambda times: save_by_safetensors(times, setting.folder), {"sync": "safetensors, flushed"}),
            DCP: (lambda times: save_distributed(times, setting.folder),
                  {"sync": DCP, "stall": f"{DCP} stall", "async": f"{DCP} async"})}
    found = {name: lambda action=action, names=names: turn(action, names) for name, (action, names) in make.items()}
    return {**found, PLAIN: lambda: write_plainly(setting.folder)}


DCP, PLAIN = "torch.distributed.checkpoint", "writing and flushing as many bytes"
BENCHMARK = Benchmark(
    "save", "a checkpoint of 504 MB: 42 million parameters with AdamW's state", "checkpoints.md",
    (Row("sync", "saving 504 MB, until on the disk", "s", limit=PLAIN),
     Row("stall", "saving 504 MB asynchronously, the loop waits", "s"),
     Row("async", "saving 504 MB asynchronously, until on the disk", "s", limit=PLAIN)),
    sides, ("tests/save_benchmark",),
    {"torch.save, flushed": ("torch",), "safetensors, flushed": ("torch", "safetensors"), DCP: ("torch",)}, quick_rounds=2, warm_up=True)

if __name__ == "__main__":
    main()
