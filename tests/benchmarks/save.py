"""Saving 504 MB of weights and optimizer state, in one run: save.py SAVE_BENCHMARK FOLDER [ROUNDS]

Lockstep's save_state() beside torch.save, safetensors.torch.save_file and torch.distributed.checkpoint, in turns, on the
same disk. Lockstep flushes what it writes and checks it against a manifest; the peers are timed as they are, and with an
fsync of their files. 'stall' is how long a training loop waits for an asynchronous save, 'async' until it is complete. Run
it with a Python that has torch and safetensors. Prints medians in seconds and how many times Lockstep's each is.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

program, folder = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5


def make_state():
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


def timed(times, name, action, with_flush=True):
    place = os.path.join(folder, "peer")
    os.makedirs(place)
    begin = time.perf_counter()
    action(place)
    times.setdefault(name, []).append(time.perf_counter() - begin)
    if with_flush:
        flush(place)
        times.setdefault(name + ", flushed", []).append(time.perf_counter() - begin)
    shutil.rmtree(place)


def save_beside_the_loop(times, state):
    place = os.path.join(folder, "peer")
    begin = time.perf_counter()
    future = dcp.async_save(state, checkpoint_id=place)
    times.setdefault("torch.distributed.checkpoint stall", []).append(time.perf_counter() - begin)
    future.result()
    times.setdefault("torch.distributed.checkpoint async", []).append(time.perf_counter() - begin)
    shutil.rmtree(place)


def peers(times, state):
    timed(times, "torch.save", lambda place: torch.save(state, os.path.join(place, "state.pt")))
    timed(times, "safetensors", lambda place: safetensors.torch.save_file(flat(state), os.path.join(place, "state.safetensors")))
    timed(times, "torch.distributed.checkpoint", lambda place: dcp.save(state, checkpoint_id=place), with_flush=False)
    save_beside_the_loop(times, state)


def ours(times):
    # The second of two rounds: the peers' process is an old one too, and has the memory that a copy needs.
    done = subprocess.run([program, folder, "2"], check=True, text=True, stdout=subprocess.PIPE)
    for name, seconds in [line.split() for line in done.stdout.splitlines()][3:]:
        times.setdefault(f"Lockstep {name}", []).append(float(seconds))


def main():
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    times, state = {}, make_state()
    ours({})
    peers({}, state)
    for _ in range(rounds):
        ours(times)
        peers(times, state)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, middle in medians.items():
        kind = next((kind for kind in ("stall", "async") if name.endswith(kind)), "sync")
        print(f"{name:40} {middle:8.3f} s {middle / medians['Lockstep ' + kind]:8.2f} times Lockstep's {kind}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
