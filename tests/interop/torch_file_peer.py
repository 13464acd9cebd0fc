"""Writes files of torch.save in every form that models are published in, and what torch.load reads from each.

torch_file_peer.py FOLDER: for each case FOLDER/CASE.bin and FOLDER/CASE.safetensors, whose tensors are those that
torch.load gives. Prints the names of the cases. The case "module" is also in two files, shard1.bin and shard2.bin, with the
index shards.json."""
import collections
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def every_dtype():
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
              torch.uint8, torch.bool, torch.complex64]
    return {str(dtype): torch.arange(6).remainder(2).to(dtype).reshape(2, 3) for dtype in dtypes}


def newer_dtypes():
    dtypes = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz,
              torch.float8_e4m3fnuz]
    return {str(dtype): torch.arange(8, dtype=torch.uint8).remainder(2).view(dtype) for dtype in dtypes}


def views():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {"base": base, "transposed": base.t(), "row": base[2], "column": base[:, 3], "steps": base[1:, ::2],
            "expanded": base[1].expand(3, 6), "scalar": base[3, 5], "empty": base[4:], "channels_last":
            torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
            "sized": torch.empty(0), "emptier": torch.empty(3, 0, 2), "number": torch.tensor(2.5)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight


def cases():
    torch.manual_seed(1)
    net = Net()
    yield "dtypes", every_dtype(), {}
    yield "newer_dtypes", newer_dtypes(), {}
    yield "views", views(), {}
    yield "module", net.state_dict(), {}
    yield "parameters", dict(net.named_parameters()), {}
    yield "none", {}, {}
    yield "many", {f"layer.{i}.weight": torch.full((2,), float(i)) for i in range(3000)}, {}
    yield "names", collections.OrderedDict([("b", torch.ones(1)), ("a", torch.zeros(2)), ("ü漢😀", torch.ones(3)), ("", torch.ones(1))]), {}
    for protocol in (2, 3, 4, 5):
        yield f"protocol{protocol}", net.state_dict(), {"pickle_protocol": protocol}
    for protocol in (2, 3, 4, 5):
        for name, state in (("module", net.state_dict()), ("views", views()), ("dtypes", every_dtype()),
                            ("parameters", dict(net.named_parameters())), ("none", {})):
            yield f"legacy{protocol}_{name}", state, {"pickle_protocol": protocol, "_use_new_zipfile_serialization": False}
    yield "no_checksums", net.state_dict(), {"checksums": False}
    yield "longest", {"embedding.weight": torch.arange(300000, dtype=torch.int32)}, {}


def main():
    folder = Path(sys.argv[1])
    for name, state, options in cases():
        checksums = options.pop("checksums", True)
        torch.serialization.set_crc32_options(checksums)
        path = folder / f"{name}.bin"
        torch.save(state, path, **options)
        loaded = torch.load(path, weights_only=False)
        save_file({key: value.detach().contiguous().clone() for key, value in loaded.items()}, folder / f"{name}.safetensors")
        print(name)
    state = torch.load(folder / "module.bin")
    names = list(state)
    for shard, part in (("1", names[::2]), ("2", names[1::2])):
        torch.save({name: state[name] for name in part}, folder / f"shard{shard}.bin")
    index = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(names)}
    (folder / "shards.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": index}))


main()
