"""The Python side of step_speed: the same models with the weights and the batch that it has written, by the ways in which
people run PyTorch: eager, torch.compile, and torch.compile(mode="reduce-overhead"), one after the other.

Usage: speed_peer.py MODEL WEIGHTS DEVICE PRECISION WARMUP WINDOW_STEPS MODE[,MODE...] [TRACE_FOLDER]
       speed_peer.py calibrate                         products and copies of this card

Prints one JSON line for each mode, as step_speed does, as soon as it is known. The loss is part of what is compiled, as in nanoGPT;
weights are updated by fused AdamW.
"""
import json
import os
import statistics
import sys
import time

import torch
from torch.nn import functional

from model_peer import MODELS, read_safetensors

WINDOWS = 5
COMPILED = {"compile": {}, "reduce-overhead": {"mode": "reduce-overhead"}}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def trace_of(step, device, file):
    """Three steps in the profiler, as a Chrome trace."""
    activities = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
                                on_trace_ready=lambda profiler: profiler.export_chrome_trace(file)) as profiler:
        for _ in range(4):
            step()
            synchronize(device)
            profiler.step()


def measure(model, start, device, precision, warmup, window_steps, mode, trace_folder):
    tensors = {name: tensor.clone() for name, tensor in start.items()}
    x, target = tensors.pop("batch.input").to(device), tensors.pop("batch.target").to(device)
    net = MODELS[model](tensors, ("running_mean", "running_var", "num_batches_tracked", "position_ids")).to(device)
    if x.dim() == 4:
        x, net = x.contiguous(memory_format=torch.channels_last), net.to(memory_format=torch.channels_last)
    adam = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0, fused=True)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")

    def loss_of(x, target):
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            scores = net(x)
        scores = scores.float()
        return functional.cross_entropy(scores.view(-1, scores.size(-1)), target)

    if mode in COMPILED:
        loss_of = torch.compile(loss_of, **COMPILED[mode])

    def step():
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        loss = loss_of(x, target)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad()
        return loss.detach().clone()

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    losses = [step()]
    synchronize(device)
    first = time.perf_counter() - begin
    losses += [step() for _ in range(warmup - 1)]
    windows = []
    for _ in range(WINDOWS):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(window_steps):
            step()
        synchronize(device)
        windows.append((time.perf_counter() - begin) * 1000 / window_steps)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    if trace_folder:
        os.makedirs(trace_folder, exist_ok=True)
        trace_of(step, device, os.path.join(trace_folder, f"{mode}.pt.trace.json"))
    return {"mode": mode, "losses": torch.stack(losses).tolist(), "first_step_s": first, "step_ms": statistics.median(windows),
            "fastest_ms": min(windows), "slowest_ms": max(windows), "peak_bytes": peak}


def calibrate():
    """What the card does at best: TFLOP/s of bf16 products, TB/s of copies (bytes read and written)."""
    def milliseconds(work, repeats=20):
        for _ in range(3):
            work()
        times = []
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(repeats):
                work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / repeats)
        return statistics.median(times)

    results = {}
    shapes = {"8192 x 8192 x 8192": (8192, 8192, 8192), "a block's product, 4096 x 768 x 3072": (4096, 768, 3072),
              "the same of 32 texts, 32768 x 768 x 3072": (32768, 768, 3072),
              "the head, 4096 x 768 x 50257": (4096, 768, 50257), "the padded head, 4096 x 768 x 50304": (4096, 768, 50304)}
    for name, (m, k, n) in shapes.items():
        a, b = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        results[name + ", TFLOP/s"] = 2e-9 * m * k * n / milliseconds(lambda: a @ b.t())
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    results["a copy of 2 GiB, TB/s"] = 2e-9 * source.nbytes / milliseconds(lambda: target.copy_(source), 5)
    return results


def main(model, weights, device, precision, warmup, window_steps, modes, trace_folder=""):
    start = read_safetensors(weights)
    for mode in modes.split(","):
        torch._dynamo.reset()
        try:
            result = measure(model, start, device, precision, int(warmup), int(window_steps), mode, trace_folder)
        except Exception as error:  # The other modes still run.
            result = {"mode": mode, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"}
        if device == "cuda":
            torch.cuda.empty_cache()
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "calibrate":
        print(json.dumps(calibrate()))
    else:
        main(*sys.argv[1:])
