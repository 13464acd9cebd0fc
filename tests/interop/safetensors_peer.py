"""The Python side of safetensors_interop_test.

  safetensors_peer.py write FOLDER   writes FOLDER/NAME.safetensors for every case
  safetensors_peer.py check FOLDER   reads FOLDER/NAME.safetensors, which the C++ side wrote, and compares
Both sides make the tensors by the same rules; see cases().
"""

import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 uint64 complex64 "
    "float8_e5m2 float8_e5m2fnuz float8_e4m3fn float8_e4m3fnuz float8_e8m0fnu"
).split()


def typed(dtype, elements):
    """`elements` elements of any dtype, out of the bytes 0 1 0 1 ..., which every dtype can hold."""
    kind = getattr(torch, dtype)
    return (torch.arange(elements * kind.itemsize, dtype=torch.uint8) % 2).view(kind)


def cases():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    yield "dtypes", {dtype: typed(dtype, 6) for dtype in DTYPES}, None
    yield "shapes", {
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0),
        "empty3": torch.empty(3, 0, 2, dtype=torch.float16),
        "long": torch.ones(1, 1, 1, 1, 1, 1, 1, 1),
    }, None
    yield "views", {"transposed": base.t().contiguous(), "strided": base[:, ::2].contiguous()}, None
    names = ["b", "a", "ü", "漢", "😀", "a.b", "a\"b\\c\n\t\r\b\f\x01\x1f\x7f/", "", " ", "Z", "\u2028", "\uffff", "\U0010ffff"]
    yield "names", {name: torch.full((2,), float(i)) for i, name in enumerate(names)}, None
    yield "metadata", {"w": torch.ones(2)}, {"é\"\\\n\x1f": "漢😀\x7f\t"}
    yield "format", {"w": torch.ones(3, dtype=torch.uint8)}, {"format": "pt"}
    yield "nothing", {}, None
    for length in range(1, 10):
        yield f"padding{length}", {"n" * length: torch.ones(1)}, None


def write(folder):
    for name, tensors, metadata in cases():
        save_file(tensors, folder / f"{name}.safetensors", metadata=metadata)


def check(folder):
    for name, tensors, metadata in cases():
        path = folder / f"{name}.safetensors"
        loaded = load_file(path)
        assert loaded.keys() == tensors.keys(), (name, loaded.keys())
        for key, tensor in tensors.items():
            got = loaded[key]
            assert got.dtype == tensor.dtype and got.shape == tensor.shape, (name, key)
            assert got.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8)), (name, key)
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == metadata, (name, file.metadata())
        print(name)


{"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
