#!/usr/bin/env python3
"""make_kernels.py OUT: compiles the CUDA kernels for the GPUs of today into the folder OUT, for packages.

It needs NVRTC, which is beside a PyTorch for CUDA, and neither a GPU nor a CUDA toolkit. A library without these files
compiles what it uses at its first use, and so it does for other GPUs. Each file is named by a digest of the kernel's text,
so that no library takes one of another version. `load_or_compile()` in src/kernels/packaged_cubins.cpp reads them.
"""

import argparse
import ctypes
import hashlib
import multiprocessing
import pathlib
import shutil
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src" / "kernels" / "cuda"
# The first of each generation: later ones of it run the same code.
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def find_nvrtc() -> ctypes.CDLL | None:
    folders = [pathlib.Path(path) for path in sys.path if path]
    found = [path for folder in folders for path in sorted(folder.glob("nvidia/*/lib/libnvrtc.so.*"))]
    for name in [*found, "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    return None


def text_of(source: str) -> str:
    """As cuda_text() in src/kernels/cuda_source.cpp puts it together."""
    arguments, prelude, own = [(SOURCES / f"{name}.cu").read_text() for name in ("arguments", "prelude", source)]
    return f'{arguments}\n#line 1 "prelude.cu"\n{prelude}\n#line 1 "{source}.cu"\n{own}'


def checksum_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = checksum_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def check(nvrtc: ctypes.CDLL, result: int, what: str) -> None:
    if result != 0:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(f"make_kernels.py: NVRTC failed to {what}: {nvrtc.nvrtcGetErrorString(result).decode()}")


def compile_kernel(nvrtc: ctypes.CDLL, text: str, instance: str, architecture: str) -> tuple[bytes, bytes]:
    """The kernel's symbol and its code."""
    program = ctypes.c_void_p()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"lockstep.cu", 0, None, None), "begin")
    check(nvrtc, nvrtc.nvrtcAddNameExpression(program, instance.encode()), f"take the name {instance}")
    options = (ctypes.c_char_p * 2)(f"-arch={architecture}".encode(), b"-std=c++17")
    check(nvrtc, nvrtc.nvrtcCompileProgram(program, 2, options), f"compile {instance} for {architecture}")
    symbol, size = ctypes.c_char_p(), ctypes.c_size_t()
    check(nvrtc, nvrtc.nvrtcGetLoweredName(program, instance.encode(), ctypes.byref(symbol)), "name a kernel")
    check(nvrtc, nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "size a kernel")
    code = ctypes.create_string_buffer(size.value)
    check(nvrtc, nvrtc.nvrtcGetCUBIN(program, code), "give a kernel")
    name = symbol.value or b""
    check(nvrtc, nvrtc.nvrtcDestroyProgram(ctypes.byref(program)), "end")
    return name, code.raw


def write_kernel(job: tuple[pathlib.Path, str, str, str]) -> None:
    out, source, instance, architecture = job
    nvrtc = find_nvrtc()
    assert nvrtc is not None
    text = text_of(source)
    symbol, code = compile_kernel(nvrtc, text, instance, architecture)
    body = symbol + b"\n" + code
    key = f"packaged\n{architecture}\n{instance}\n{text}"
    name = hashlib.sha256(key.encode()).hexdigest() + ".cubin"
    (out / name).write_bytes(f"lockstep kernel 1\n{crc32c(body):08x}\n".encode() + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", help="the kernel of this name alone")
    parser.add_argument("--for", dest="architectures", nargs="+", default=ARCHITECTURES, metavar="sm_NN")
    parser.add_argument("--optional", action="store_true", help="without NVRTC, say so and make nothing")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    if find_nvrtc() is None:
        message = "make_kernels.py: without NVRTC (the Python package nvidia-cuda-nvrtc) no kernel is compiled"
        if not arguments.optional:
            raise SystemExit(message)
        print(message, file=sys.stderr)
        return
    arguments.out.mkdir(parents=True)
    kernels = [line.split(": ", 1) for line in (SOURCES / "instances.txt").read_text().splitlines()]
    jobs = [
        (arguments.out, source, instance, architecture)
        for source, instance in kernels
        if arguments.only in (None, instance)
        for architecture in arguments.architectures
    ]
    if not jobs:
        raise SystemExit(f"make_kernels.py: there is no kernel {arguments.only}")
    with multiprocessing.Pool() as pool:
        pool.map(write_kernel, jobs)
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    print(f"{arguments.out}: {len(jobs)} kernels, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
