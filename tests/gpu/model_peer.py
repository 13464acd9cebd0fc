"""The Python side of model_step: the same models with the weights and the batch that it has written.

Usage: model_peer.py [--graph] MODEL WEIGHTS DEVICE PRECISION STEPS WARMUP [FOLDER]      prints one JSON line, as model_step does

With --graph a step is recorded as a CUDA graph, after 11 others, and replayed. A checkpoint is torch.save of the weights and the optimizer; one beside the training copies them to the host first.
"""
import contextlib
import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional


def read_safetensors(path):
    """The tensors of a safetensors file by name, without the package."""
    dtypes = {"F32": torch.float32, "I64": torch.int64}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(data, dtype=dtypes[entry["dtype"]], count=(end - begin) // dtypes[entry["dtype"]].itemsize,
                                  offset=begin) if end > begin else torch.empty(0, dtype=dtypes[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).clone()
    return tensors


def heads_of(x, count):
    return x.view(x.size(0), x.size(1), count, -1).transpose(1, 2)


class Weights(nn.Module):
    """Parameters by the names in the file; a model below is a function of them."""

    def __init__(self, tensors, buffers=()):
        super().__init__()
        self.names = {name: name.replace(".", "/") for name in tensors}
        for name, tensor in tensors.items():
            if name.endswith(tuple(buffers)) if buffers else False:
                self.register_buffer(self.names[name], tensor)
            else:
                self.register_parameter(self.names[name], nn.Parameter(tensor))

    def __getitem__(self, name):
        return getattr(self, self.names[name])

    def linear(self, name, x):
        return functional.linear(x, self[f"{name}.weight"], self[f"{name}.bias"])

    def norm(self, name, x, eps):
        return functional.layer_norm(x, x.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], eps)


class Mlp(Weights):
    def forward(self, x):
        for layer in range(0, 64, 2):
            x = functional.relu(self.linear(str(layer), x))
        return x


class Gpt2(Weights):
    def forward(self, tokens):
        layers = sum(name.endswith("ln_1.weight") for name in self.names)
        heads = 12 if self["transformer.wte.weight"].size(1) == 768 else 2
        x = self["transformer.wte.weight"][tokens] + self["transformer.wpe.weight"][: tokens.size(1)]
        for layer in range(layers):
            at = f"transformer.h.{layer}"
            # Hugging Face's Conv1D: the weight is [inputs, outputs].
            project = lambda name, y: y @ self[f"{at}.{name}.weight"] + self[f"{at}.{name}.bias"]
            parts = project("attn.c_attn", self.norm(f"{at}.ln_1", x, 1e-5)).chunk(3, 2)
            mixed = functional.scaled_dot_product_attention(*(heads_of(part, heads) for part in parts), is_causal=True)
            x = x + project("attn.c_proj", mixed.transpose(1, 2).reshape(x.shape))
            wide = functional.gelu(project("mlp.c_fc", self.norm(f"{at}.ln_2", x, 1e-5)), approximate="tanh")
            x = x + project("mlp.c_proj", wide)
        return functional.linear(self.norm("transformer.ln_f", x, 1e-5), self["transformer.wte.weight"])


class Bert(Weights):
    def forward(self, tokens):
        layers = sum(name.endswith("attention.self.query.weight") for name in self.names)
        heads = 12 if self["bert.embeddings.word_embeddings.weight"].size(1) == 768 else 2
        embeddings = "bert.embeddings"
        x = (self[f"{embeddings}.word_embeddings.weight"][tokens] + self[f"{embeddings}.token_type_embeddings.weight"][0]
             + self[f"{embeddings}.position_embeddings.weight"][: tokens.size(1)])
        x = self.norm(f"{embeddings}.LayerNorm", x, 1e-12)
        for layer in range(layers):
            at = f"bert.encoder.layer.{layer}"
            parts = (self.linear(f"{at}.attention.self.{name}", x) for name in ("query", "key", "value"))
            mixed = functional.scaled_dot_product_attention(*(heads_of(part, heads) for part in parts))
            mixed = self.linear(f"{at}.attention.output.dense", mixed.transpose(1, 2).reshape(x.shape))
            x = self.norm(f"{at}.attention.output.LayerNorm", x + mixed, 1e-12)
            wide = self.linear(f"{at}.output.dense", functional.gelu(self.linear(f"{at}.intermediate.dense", x)))
            x = self.norm(f"{at}.output.LayerNorm", x + wide, 1e-12)
        pooled = torch.tanh(self.linear("bert.pooler.dense", x[:, 0]))
        return self.linear("classifier", pooled)


class ResNet50(Weights):
    def batch_norm(self, name, x):
        return functional.batch_norm(x, self[f"{name}.running_mean"], self[f"{name}.running_var"], self[f"{name}.weight"],
                                     self[f"{name}.bias"], training=True)

    def forward(self, x):
        small = self["conv1.weight"].size(2) == 3
        x = functional.conv2d(x, self["conv1.weight"], stride=1 if small else 2, padding=1 if small else 3)
        x = functional.relu(self.batch_norm("bn1", x))
        if not small:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            for block in range(sum(name.startswith(f"layer{stage}.") and name.endswith("conv1.weight") for name in self.names)):
                at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
                y = functional.relu(self.batch_norm(f"{at}.bn1", functional.conv2d(x, self[f"{at}.conv1.weight"])))
                y = functional.conv2d(y, self[f"{at}.conv2.weight"], stride=stride, padding=1)
                y = functional.relu(self.batch_norm(f"{at}.bn2", y))
                y = self.batch_norm(f"{at}.bn3", functional.conv2d(y, self[f"{at}.conv3.weight"]))
                if block == 0:
                    x = self.batch_norm(f"{at}.downsample.1",
                                        functional.conv2d(x, self[f"{at}.downsample.0.weight"], stride=stride))
                x = functional.relu(x + y)
        return self.linear("fc", x.mean((2, 3)))


MODELS = {"mlp": Mlp, "gpt2": Gpt2, "bert": Bert, "resnet50": ResNet50}


def milliseconds_of(work):
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def batch_milliseconds(device, rows=64, batches=4, epochs=10):
    images = torch.utils.data.TensorDataset(torch.rand(rows * batches, 3, 224, 224))
    loader = torch.utils.data.DataLoader(images, rows, num_workers=2, pin_memory=device == "cuda", persistent_workers=True)

    def read():
        for _ in range(epochs):
            for image, in loader:
                total = image.to(device, non_blocking=True).sum()
        total.item()

    return milliseconds_of(read) / (batches * epochs)


def extras(net, optimizer, device, folder):
    os.makedirs(folder, exist_ok=True)
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    # As a program without a library for it: what the training waits for is the copy to the host.
    copy = lambda: [tensor.to("cpu", copy=True) for tensor in state["model"].values()] + [
        value.to("cpu", copy=True) for values in state["optimizer"]["state"].values() for value in values.values()]
    return {"save_ms": milliseconds_of(lambda: torch.save(state, os.path.join(folder, "peer.pt"))),
            "first_stall_ms": milliseconds_of(copy), "stall_ms": milliseconds_of(copy),
            "batch_ms": batch_milliseconds(device)}


def graphed(step, warmup=11):
    """The step of PyTorch's notes on CUDA graphs ("whole-network capture")."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    calls, loss = 0, None

    def call():
        nonlocal calls, loss
        calls += 1
        if calls <= warmup:
            with torch.cuda.stream(stream):
                return step()
        if loss is None:
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                loss = step()
        graph.replay()
        return loss.clone()

    return call


def main(model, weights, device, precision, steps, warmup, folder="", graph=False):
    tensors = read_safetensors(weights)
    x, target = tensors.pop("batch.input").to(device), tensors.pop("batch.target").to(device)
    net = MODELS[model](tensors, ("running_mean", "running_var", "num_batches_tracked", "position_ids")).to(device)
    if x.dim() == 4:
        x, net = x.contiguous(memory_format=torch.channels_last), net.to(memory_format=torch.channels_last)
    adam = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4, fused=True, capturable=graph)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    losses, steps, warmup = [], int(steps), int(warmup)

    def train_step():
        with torch.autocast(device, dtype) if dtype else contextlib.nullcontext():
            scores = net(x)
        scores = scores.float()
        loss = functional.cross_entropy(scores.view(-1, scores.size(-1)), target)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        adam.zero_grad()
        return loss.detach()

    call = graphed(train_step) if graph else train_step
    begin = time.perf_counter()
    for step in range(warmup + steps):
        if step == warmup:
            if step:
                losses[-1].item()
            begin = time.perf_counter()
        losses.append(call())
    values = torch.stack(losses).cpu().tolist()
    took = (time.perf_counter() - begin) * 1000
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    result = {"losses": values, "step_ms": took / steps, "peak_bytes": peak}
    print(json.dumps(result | (extras(net, adam, device, folder) if folder else {})), flush=True)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--graph"]
    main(*words, graph="--graph" in sys.argv)
