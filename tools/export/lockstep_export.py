#!/usr/bin/env python3
"""Writes the training step of a Python module as a folder that lockstep::models::CompiledStep trains without Python.

    python3 lockstep_export.py net.py:make_net out/net            machine code by AOTInductor, which needs g++
    python3 lockstep_export.py --exact net.py:make_net out/net    ATen's calls: the bits of eager PyTorch

`make_net()` returns the module and a tuple of example inputs, whose shapes and dtypes are those of the training. From Python:
`lockstep_export.export_step(module, inputs, folder, exact=False)`. It needs torch 2.11 and nothing else.

The folder holds `step.json` (names, shapes, and with --exact the graphs), `model.safetensors` (parameters and buffers as they
are now) and, without --exact, `step.pt2`. docs/training.md says what a module may have.
"""

import argparse
import contextlib
import importlib.util
import json
import operator
import pathlib
import platform
import struct
import subprocess
import uuid

import torch
from torch._functorch.aot_autograd import (aot_compile_joint_with_descriptors, aot_export_joint_with_descriptors,
                                           aot_export_module)
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.utils import _pytree as pytree

FORMAT = 1
SAFETENSORS_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
                      torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
                      torch.bool: "BOOL"}


class ExportError(Exception):
    """Says what of the module cannot be exported, by name."""


class FlatOutputs(torch.nn.Module):
    """The module with a flat tuple of tensors as its result. An output that is a view becomes a tensor of its own, with the
    same memory: only then is it a result of the graph."""

    def __init__(self, module):
        super().__init__()
        self.module, self.names = module, None

    def forward(self, *inputs):
        leaves = pytree.tree_flatten_with_path(self.module(*inputs))[0]
        self.names = [pytree.keystr(path).strip("[]'.\"") for path, _ in leaves]
        for name, value in zip(self.names, [value for _, value in leaves]):
            if not isinstance(value, torch.Tensor):
                raise ExportError(f"output {name or 'of forward'} is a {type(value).__name__}: expected tensors alone")
        return tuple(torch.ops.aten._unsafe_view(value, value.shape) for _, value in leaves)


def own_name(name):
    """Without the prefix of FlatOutputs."""
    return name.removeprefix("module.")


def text_of(dtype):
    return str(dtype).removeprefix("torch.")


def described(tensor):
    return {"shape": list(tensor.shape), "stride": list(tensor.stride()), "dtype": text_of(tensor.dtype)}


# Graphs: what forward and backward take and give.


def trace_training(module, inputs, partition):
    """Forward and backward as graphs of ATen's calls, the arguments and results of which have descriptors."""
    graphs = {}

    def keep(name):
        def compiler(graph, _):
            graphs[name] = graph
            return graph
        return compiler

    with contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, module, inputs)
        aot_compile_joint_with_descriptors(joint, partition_fn=partition, fw_compiler=keep("forward"),
                                           bw_compiler=keep("backward"))
    if "backward" not in graphs:
        raise ExportError("no output depends on a parameter that requires gradients: there is nothing to train")
    return graphs["forward"], graphs["backward"]


def placeholders(graph):
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def output_node(graph):
    return next(node for node in graph.graph.nodes if node.op == "output")


class Places:
    """Numbers of parameters, buffers and inputs, by which graphs are given them."""

    def __init__(self, module):
        self.parameters = [own_name(name) for name, _ in module.named_parameters()]
        self.buffers = [own_name(name) for name, _ in module.named_buffers()]

    def of(self, descriptor):
        kind = type(descriptor).__name__
        if kind == "ParamAOTInput":
            return ["parameter", self.parameters.index(own_name(descriptor.target))]
        if kind == "BufferAOTInput":
            return ["buffer", self.buffers.index(own_name(descriptor.target))]
        if kind == "PlainAOTInput":
            return ["input", descriptor.idx]
        raise ExportError(f"the graph takes {descriptor}, which a step in C++ does not have")


def split_results(forward, places):
    """What each result of the forward graph is, and what backward keeps: by name, places for what is there anyway, else
    numbers. Takes the former out of the graph's results."""
    given = {node.name: places.of(node.meta["desc"]) for node in placeholders(forward)}
    node, results, kept, values = output_node(forward), [], {}, []
    changed = set()
    for value, descriptor in zip(node.args[0], node.meta["desc"]):
        kind = type(descriptor).__name__
        if kind == "InputMutationAOTOutput":
            place = places.of(descriptor.mutated_input)
            if place[0] != "buffer":
                raise ExportError(f"forward changes {descriptor.mutated_input}: only buffers may change")
            changed.add(tuple(place))
            results.append(place)
        elif kind == "PlainAOTOutput":
            results.append(["output", descriptor.idx])
        elif kind == "SavedForBackwardsAOTOutput":
            if value.name in given:
                kept[value.name] = given[value.name]
                continue
            kept[value.name] = ["saved", sum(place[0] == "saved" for place in kept.values())]
            results.append(kept[value.name])
        else:
            raise ExportError(f"forward returns {descriptor}: return a copy of it (clone()) instead")
        values.append(value)
    for place in kept.values():
        if tuple(place) in changed:
            raise ExportError(f"buffer '{places.buffers[place[1]]}' is changed in forward, and backward needs what it was")
    node.args = (tuple(values),)
    forward.recompile()
    return results, kept


def split_backward(backward, kept, places):
    arguments, tangents = [], {}
    for node in placeholders(backward):
        descriptor = node.meta.get("desc")
        if type(descriptor).__name__ == "TangentAOTInput":
            arguments.append(["tangent", descriptor.output.idx])
            tangents[descriptor.output.idx] = described(node.meta["val"])
        else:
            arguments.append(kept[node.name])
    node, results, values = output_node(backward), [], []
    for value, descriptor in zip(node.args[0], node.meta["desc"]):
        if value is None:
            continue
        place = places.of(descriptor.grad_of)
        if place[0] == "input":
            raise ExportError(f"example input {place[1]} requires gradients: only parameters have them")
        results.append(place)
        values.append(value)
    node.args = (tuple(values),)
    backward.recompile()
    return arguments, tangents, results


def trace_evaluation(module, inputs, places):
    module.eval()
    with torch.no_grad():
        graph, signature = aot_export_module(module, list(inputs), trace_joint=False)
    arguments, user = [], 0
    for node in placeholders(graph):
        if node.name in signature.inputs_to_parameters:
            arguments.append(["parameter", places.parameters.index(own_name(signature.inputs_to_parameters[node.name]))])
        elif node.name in signature.inputs_to_buffers:
            arguments.append(["buffer", places.buffers.index(own_name(signature.inputs_to_buffers[node.name]))])
        else:
            arguments.append(["input", user])
            user += 1
    results, outputs = [], 0
    for value in output_node(graph).args[0]:
        if value.name in signature.buffers_to_mutate:
            results.append(["buffer", places.buffers.index(own_name(signature.buffers_to_mutate[value.name]))])
        else:
            results.append(["output", outputs])
            outputs += 1
    return graph, arguments, results


# Graphs as JSON, for CompiledStep to call one operation after the other.


def plain(value, slots):
    """An argument of an operation. Types of torch are numbers in a boxed call, as in c10's enumerations."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, torch.fx.Node):
        return {"slot": slots[value.name]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": text_of(value)}
    if isinstance(value, (torch.layout, torch.memory_format)):
        return {"enum": text_of(value)}
    if isinstance(value, (list, tuple)):
        return [plain(element, slots) for element in value]
    raise ExportError(f"an operation has an argument of type {type(value).__name__}, which cannot be written")


def arguments_of(node, slots):
    """All arguments in the order of the schema, defaults included."""
    schema, values = node.target._schema, []
    for i, argument in enumerate(schema.arguments):
        if i < len(node.args):
            values.append(plain(node.args[i], slots))
        elif argument.name in node.kwargs:
            values.append(plain(node.kwargs[argument.name], slots))
        else:
            values.append({"default": True})
    return values


def written_graph(graph):
    """Values have numbers, slots: first the arguments, then the results of each operation. Constants come with their values."""
    slots, constants, calls, count = {}, [], [], 0
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            slots[node.name] = count
            count += 1
        elif node.op == "get_attr":
            tensor = operator.attrgetter(node.target)(graph)
            constants.append({"slot": count, **described(tensor), "values": plain(tensor.flatten().tolist(), slots)})
            slots[node.name] = count
            count += 1
        elif node.target is operator.getitem:
            slots[node.name] = slots[node.args[0].name] + node.args[1]
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            value = node.meta["val"]
            if isinstance(value, tuple) and any(isinstance(one, (list, tuple)) for one in value):
                raise ExportError(f"{node.target} returns lists among other values, which cannot be written")
            slots[node.name] = count
            calls.append({"name": node.target._schema.name, "overload": node.target._schema.overload_name,
                          "arguments": arguments_of(node, slots), "slot": count})
            count += len(value) if isinstance(value, (list, tuple)) else 1
        elif node.op != "output":
            raise ExportError(f"the graph has {node.op} {node.target}, which cannot be written")
    return {"slots": count, "constants": constants, "calls": calls,
            "results": [slots[value.name] for value in output_node(graph).args[0]]}


# Machine code.


def instructions():
    """The sets of instructions that code compiled for this machine may use, as /proc/cpuinfo has them."""
    flags = next((line.split(":", 1)[1].split() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("flags")), [])
    macros = subprocess.run(["g++", "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    names = {line.split()[1].lower().replace("_", "") for line in macros.splitlines() if len(line.split()) > 1}
    return sorted(flag for flag in flags if flag.replace("_", "") in names)


def refuse_random_numbers(graph):
    """AOTInductor draws others than eager PyTorch, in code that no test of ours has covered."""
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise ExportError(f"forward draws random numbers ({node.target}), as dropout does: export it with exact (--exact)")


def compile_graphs(graphs, path, identity):
    import torch._inductor as inductor
    from torch._inductor.package import package_aoti

    # Precompiled headers pay where one machine compiles often.
    options = {"aot_inductor.package": True, "aot_inductor.link_libtorch": False, "cpp.dynamic_threads": True,
               "aot_inductor.precompile_headers": False,
               "aot_inductor.metadata": {"lockstep_step": identity}}
    files = {}
    for name, graph in graphs.items():
        examples = tuple(torch.empty_strided(node.meta["val"].shape, node.meta["val"].stride(),
                                             dtype=node.meta["val"].dtype).zero_() for node in placeholders(graph))
        with torch.no_grad():
            files[name] = inductor.aot_compile(graph, examples, options=dict(options))
    package_aoti(str(path), files)


# Files.


def save_tensors(path, tensors):
    """As safetensors: the length of a header in JSON, the header, the bytes."""
    header, chunks, offset = {}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": SAFETENSORS_DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        chunks.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def refuse_what_does_not_fit(module, inputs):
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device.type != "cpu":
            raise ExportError(f"'{name}' is on {tensor.device}: a step is exported for the CPU")
        if tensor.dtype not in SAFETENSORS_DTYPES:
            raise ExportError(f"'{name}' is in {tensor.dtype}, which safetensors do not hold")
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ExportError(f"example input {i} is a {type(value).__name__}: expected tensors alone")


def export_step(module, inputs, folder, exact=False):
    """Writes `folder`. `inputs`: the tensors of one training step. The module stays as it is. Raises ExportError."""
    folder, inputs = pathlib.Path(folder), tuple(inputs)
    modes = [(part, part.training) for part in module.modules()]
    refuse_what_does_not_fit(module, inputs)
    net = FlatOutputs(module)
    places = Places(net)
    state = {own_name(name): tensor.detach().clone() for name, tensor in [*net.named_parameters(), *net.named_buffers()]}
    try:
        net.train()
        partition = default_partition if exact else min_cut_rematerialization_partition
        forward, backward = trace_training(net, inputs, partition)
        names = net.names
        results, kept = split_results(forward, places)
        arguments, tangents, gradients = split_backward(backward, kept, places)
        evaluation, evaluation_arguments, evaluation_results = trace_evaluation(net, inputs, places)
    finally:
        for part, is_training in modes:
            part.training = is_training
    if not exact:
        refuse_random_numbers(forward)
    graphs = {"forward": forward, "backward": backward, "evaluation": evaluation}
    identity = str(uuid.uuid4())
    parameters, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    saved = sorted((place[1], name) for name, place in kept.items() if place[0] == "saved")
    step = {
        "format": FORMAT, "identity": identity, "exact": exact, "torch": torch.__version__.split("+")[0],
        "machine": platform.machine(), "instructions": [] if exact else instructions(),
        "parameters": [{"name": own_name(name), **described(value), "requires_grad": value.requires_grad}
                       for name, value in parameters.items()],
        "buffers": [{"name": own_name(name), **described(value)} for name, value in buffers.items()],
        "inputs": [described(value) for value in inputs],
        "outputs": [{"name": name, "tangent": tangents.get(i)} for i, name in enumerate(names)],
        "saved": len(saved),
        "forward": {"arguments": [places.of(node.meta["desc"]) for node in placeholders(forward)], "results": results},
        "backward": {"arguments": arguments, "results": gradients},
        "evaluation": {"arguments": evaluation_arguments, "results": evaluation_results},
    }
    folder.mkdir(parents=True, exist_ok=True)
    if exact:
        for name, graph in graphs.items():
            step[name]["graph"] = written_graph(graph)
    else:
        compile_graphs(graphs, folder / "step.pt2", identity)
    save_tensors(folder / "model.safetensors", state)
    (folder / "step.json").write_text(json.dumps(step))


def made_by(text):
    """What FILE:FUNCTION returns."""
    file, _, function = text.rpartition(":")
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)()


def main():
    parser = argparse.ArgumentParser(description="Writes the training step of a Python module for models::CompiledStep.")
    parser.add_argument("function", metavar="FILE:FUNCTION", help="returns the module and a tuple of example inputs")
    parser.add_argument("folder", help="what is written")
    parser.add_argument("--exact", action="store_true", help="ATen's calls instead of machine code: the bits of eager PyTorch")
    options = parser.parse_args()
    module, inputs = made_by(options.function)
    try:
        export_step(module, inputs, options.folder, options.exact)
    except ExportError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
