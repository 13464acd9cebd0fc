"""An optimizer's step on the parameters of a small GPT, one thread: optimizer_step.py OPTIMIZER_STEP [ROUNDS] [STEPS]

Lockstep's optimizers and LibTorch's own (the program prints both) beside Python's torch.optim with fused=True and with its
default, in turns. Run it with a Python that has torch. Prints medians in milliseconds and what each is of Lockstep's.
"""
import re
import statistics
import subprocess
import sys
import time

import torch

import ddp_peer

program = sys.argv[1]
rounds, steps = ([int(word) for word in sys.argv[2:4]] + [3, 15][len(sys.argv) - 2:])[:2]
PEERS = {
    "AdamW": lambda all, **how: torch.optim.AdamW(all, **how),
    "Adam": lambda all, **how: torch.optim.Adam(all, **how),
    "SGD, momentum": lambda all, **how: torch.optim.SGD(all, lr=1e-4, momentum=0.9, weight_decay=0.01, **how),
}


def milliseconds(optimizer):
    times = []
    for step in range(steps + 2):
        begin = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[2:])  # State is made in the first steps.


def measure(times):
    done = subprocess.run([program, str(steps)], check=True, text=True, stdout=subprocess.PIPE)
    for line in done.stdout.splitlines():
        name, ours, theirs = re.match(r"(.+?) +lockstep::optim +([\d.]+) +torch::optim +([\d.]+)", line).groups()
        times.setdefault((name, "Lockstep"), []).append(float(ours))
        times.setdefault((name, "LibTorch"), []).append(float(theirs))
    torch.set_num_threads(1)
    all = list(ddp_peer.Gpt().parameters())
    for parameter in all:
        parameter.grad = torch.randn_like(parameter) * 0.01
    for name, make in PEERS.items():
        times.setdefault((name, "Python, fused"), []).append(milliseconds(make(all, fused=True)))
        times.setdefault((name, "Python, default"), []).append(milliseconds(make(all)))


def main():
    times = {}
    for _ in range(rounds):
        measure(times)
    medians = {key: statistics.median(values) for key, values in times.items()}
    for name, who in sorted(medians):
        print(f"{name:16} {who:16} {medians[name, who]:8.2f} ms {medians[name, who] / medians[name, 'Lockstep']:6.2f}")


if __name__ == "__main__":
    main()
