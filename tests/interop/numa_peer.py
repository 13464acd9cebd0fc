"""What torch.numa.binding answers on made-up hosts: numa_peer.py CASES

A line of CASES is `FOLDER MODE GPUS ALLOWED`: a folder with a made-up /sys, a mode, the number of GPUs (GPU n at the
address 0000:<n+1>:00.0) and the CPUs that may be used. Prints a line for each: the CPUs of every GPU with ';' between,
or 'error' for a GPU that it refuses.
"""
import builtins
import os
import sys
import types

import torch
from torch.numa import binding


def on_host(folder, gpus, allowed):
    """Lets the module see the made-up host and nothing else."""
    def there(path):
        return folder + path

    binding.open = lambda path, *rest: builtins.open(there(path), *rest)
    binding.os = types.SimpleNamespace(path=os.path, listdir=lambda path: os.listdir(there(path)),
                                       sched_getaffinity=lambda process: set(allowed))
    torch.cuda.device_count = lambda: gpus
    torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(
        pci_domain_id=0, pci_bus_id=index + 1, pci_device_id=0)


def answer(mode, gpu):
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    try:
        cpus = binding._get_logical_cpus_to_bind_to(gpu_index=gpu, numa_options=options)
        return binding._get_ranges_str_from_ints(cpus) or "error"
    except Exception:
        return "error"


def main():
    for line in open(sys.argv[1], encoding="utf-8"):
        folder, mode, gpus, allowed = line.split()
        on_host(folder, int(gpus), binding._get_set_of_int_from_ranges_str(allowed))
        print(";".join(answer(mode, gpu) for gpu in range(int(gpus))))


main()
