"""The Python side of hooks_interop_test: DDP over Gloo with each of PyTorch's communication hooks.

  hooks_peer.py FOLDER   writes FOLDER/start.safetensors, first weights and every rank's inputs, and
                         FOLDER/python.safetensors, the weights of rank 0 after each step with each hook
"""
import logging
import os
import pathlib
import sys
import types

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import multiprocessing, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, ROWS = 2, 4, 8
# Several buckets, and gradients both worth compressing and not.
WIDTHS, BUCKET_MB = (24, 40, 40, 12), 0.01


def net():
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def mend_batched_hook():
    """PyTorch 2.11's batched_powerSGD_hook gives matrices to a function that insists on a batch of them."""
    insisting = powerSGD_hook._orthogonalize
    powerSGD_hook._orthogonalize = lambda matrices, epsilon=0: insisting(
        matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)


def mend_quantization_hooks():
    """They expect a gathering's future to hold one tensor for all ranks, as NCCL's does; Gloo's holds a list."""
    def all_gather(outputs, tensor, **options):
        future = dist.all_gather(outputs, tensor, **options).get_future().then(lambda done: [torch.stack(done.value())])
        return types.SimpleNamespace(get_future=lambda: future)

    quantization_hooks.dist = types.SimpleNamespace(all_gather=all_gather, group=dist.group)


def power(**options):
    return powerSGD_hook.PowerSGDState(dist.group.WORLD, start_powerSGD_iter=2, **options)


def cases():
    world, plain, batched = dist.group.WORLD, powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook
    return {
        "none": None,
        "all_reduce": (world, default_hooks.allreduce_hook),
        "fp16": (world, default_hooks.fp16_compress_hook),
        "bf16": (world, default_hooks.bf16_compress_hook),
        "power": (power(min_compression_rate=1.0), plain),
        "power_2": (power(matrix_approximation_rank=2, random_seed=7, orthogonalization_epsilon=1e-8), plain),
        "power_4": (power(matrix_approximation_rank=4), plain),
        "power_cold": (power(warm_start=False, use_error_feedback=False), plain),
        "power_shapes": (power(batch_tensors_with_same_shape=True), plain),
        "power_fp16": (power(), default_hooks.fp16_compress_wrapper(plain)),
        "power_batched": (power(random_seed=3), batched),
        "quantized": (world, quantization_hooks.quantization_pertensor_hook),
        "quantized_512": (world, quantization_hooks.quantization_perchannel_hook),
        "local": (PostLocalSGDState(world, None, 2, post_local_gradient_allreduce=False), post_localSGD_hook),
    }


def train(name, hook, start, rank):
    model = net()
    model.load_state_dict({key[2:]: value for key, value in start.items() if key.startswith("w.")})
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    if hook is not None:
        ddp.register_comm_hook(*hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    weights = {}
    for step in range(STEPS):
        ddp.zero_grad()
        ddp(start[f"x.{rank}.{step}"]).square().sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
        if name == "local":
            averager.average_parameters(model.parameters())
        weights |= {f"{name}.{step}.{key}": value.clone() for key, value in model.state_dict().items()}
    return weights


def train_joined(name, divide, start, rank):
    """Rank 0 has half the batches."""
    model = nn.Sequential(net(), nn.BatchNorm1d(WIDTHS[-1]))
    model[0].load_state_dict({key[2:]: value for key, value in start.items() if key.startswith("w.")})
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    with ddp.join(divide_by_initial_world_size=divide):
        for step in range(STEPS // 2 if rank == 0 else STEPS):
            ddp.zero_grad()
            ddp(start[f"x.{rank}.{step}"]).pow(3).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)
    return {f"{name}.{key}": value.clone() for key, value in model.state_dict().items()}


def work(rank, folder, start):
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    mend_batched_hook()
    mend_quantization_hooks()
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{folder}/store")
    weights = {}
    for name, hook in cases().items():
        weights |= train(name, hook, start, rank)
    weights |= train_joined("join", True, start, rank)
    weights |= train_joined("join_active", False, start, rank)
    if rank == 0:
        save_file(weights, folder / "python.safetensors")
    dist.destroy_process_group()
    # Without Python's own end, during which a thread of c10d that releases an object aborts the process.
    os._exit(0)


def main(folder):
    torch.manual_seed(1)
    start = {"w." + key: value for key, value in net().state_dict().items()}
    for rank in range(RANKS):
        start |= {f"x.{rank}.{step}": torch.randn(ROWS, WIDTHS[0]) for step in range(STEPS)}
    save_file(start, folder / "start.safetensors")
    multiprocessing.spawn(work, (folder, start), RANKS)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
