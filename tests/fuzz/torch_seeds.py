"""Writes the first inputs of torch_file_fuzzer to the folder torch_seeds beside it: small files of torch.save."""
from pathlib import Path

import torch

folder = Path(__file__).parent / "torch_seeds"
base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
state = {"a": base, "b": base.t(), "c": torch.tensor(1, dtype=torch.int64), "p": torch.nn.Parameter(torch.ones(2))}
torch.save(state, folder / "archive.bin")
for protocol in (2, 4):
    torch.save(state, folder / f"legacy{protocol}.bin", _use_new_zipfile_serialization=False, pickle_protocol=protocol)
torch.save({"x": torch.ones(2, dtype=torch.uint16)}, folder / "newer.bin")
