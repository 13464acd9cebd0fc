#!/usr/bin/env python3
"""Streams of Python's `datasets` and `webdataset` and ours on the same files: stream_compare.py PEER

PEER is the program stream_peer. Needs a Python with `datasets`, `torch` and `webdataset`; ends with 77 where there are
none.
"""
import base64
import bz2
import gzip
import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
try:
    import datasets
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    import torch
    import webdataset
except ImportError as error:
    print(f"{error}: skipped")
    sys.exit(77)
from datasets.distributed import split_dataset_by_node

PEER = sys.argv[1]
STRATEGIES = ["auto", "shards", "examples"]
SHARDS = 4
FAILURES = []
CHECKS = 0


def ours(*words):
    done = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(what, found, wanted):
    global CHECKS
    CHECKS += 1
    if found != wanted:
        FAILURES.append(what)
        place = next((i for i, (a, b) in enumerate(itertools.zip_longest(found, wanted)) if a != b), None)
        print(f"{what}: {len(found)} rows instead of {len(wanted)}, the first difference is row {place}:\n"
              f"  ours   {found[place] if place < len(found) else None}\n"
              f"  theirs {wanted[place] if place < len(wanted) else None}")


def write_tables(folder):
    """Shards of different lengths; returns, by format, the loader's name and the shards."""
    found = {}
    row = 0
    for shard in range(SHARDS):
        ids = list(range(row, row + 5 + 3 * shard))
        row += len(ids)
        table = pa.table({"id": ids, "half": [i / 2 for i in ids], "text": [f"text {i} \u00e9" for i in ids]})

        def place(kind, ending):
            path = os.path.join(folder, f"{kind}-{shard:03}{ending}")
            found.setdefault(kind, []).append(path)
            return path

        lines = "".join(json.dumps(one) + "\n" for one in table.to_pylist())
        with open(place("json", ".jsonl"), "w", encoding="utf-8") as file:
            file.write(lines)
        with gzip.open(place("json_gz", ".jsonl.gz"), "wt", encoding="utf-8") as file:
            file.write(lines)
        with pa.CompressedOutputStream(place("json_zst", ".jsonl.zst"), "zstd") as file:
            file.write(lines.encode())
        pa.csv.write_csv(table, place("csv", ".csv"))
        pa.parquet.write_table(table, place("parquet", ".parquet"), row_group_size=3)
        with pa.ipc.new_stream(place("arrow", ".arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    return found


def theirs(stream, operations):
    for name, *values in operations:
        if name == "take":
            stream = stream.take(*values)
        elif name == "skip":
            stream = stream.skip(*values)
        elif name == "batch":
            stream = stream.batch(*values)
        elif name == "batch_drop_last":
            stream = stream.batch(*values, drop_last_batch=True)
        elif name == "map":
            stream = stream.map(lambda one: {"twice": 2 * one["id"]}, remove_columns=["half"])
        elif name == "filter":
            stream = stream.filter(lambda one: one["id"] % 3 != 1)
        elif name == "split":
            rank, ranks, strategy = values
            stream = split_dataset_by_node(stream, rank, ranks, strategy=STRATEGIES[strategy])
    return stream


def words_of(operations):
    return [name + ("=" + ",".join(map(str, values)) if values else "") for name, *values in operations]


CHAINS = [
    [],
    [("skip", 3), ("take", 20)],
    [("take", 9), ("skip", 2)],
    [("filter",), ("map",)],
    [("map",), ("batch", 4)],
    [("batch_drop_last", 7)],
    [("filter",), ("take", 7), ("batch", 3)],
]
SPLITS = [(0, 1, 0)] + [(rank, ranks, 0) for ranks in (2, 3, 4) for rank in range(ranks)] + [
    (rank, 3, strategy) for strategy in (1, 2) for rank in range(3)]


def compare_chains(pattern, load):
    for chain in CHAINS:
        for split in SPLITS:
            for operations in ([*chain, ("split", *split)], [("split", *split), *chain]):
                wanted = list(theirs(load(), operations))
                check(f"{pattern} {operations}", ours(pattern, *words_of(operations)), wanted)
                check(f"{pattern} {operations} resumed", ours(pattern, *words_of(operations), "resume=3"), wanted)


def compare_workers(pattern, load):
    """A loader with workers hands out the rows of its workers in turns."""
    for operations in ([], [("take", 11)], [("split", 1, 2, 0)], [("split", 1, 3, 0), ("filter",)]):
        for workers in (2, 3):
            stream = theirs(load(), operations)
            wanted = list(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers))
            each = [ours(pattern, *words_of(operations), f"worker={w},{workers}") for w in range(workers)]
            turns = [row for rows in itertools.zip_longest(*each) for row in rows if row is not None]
            check(f"{workers} workers, {operations}", turns, wanted)


def write_tar(path, form, members, mode="w"):
    with tarfile.open(path, mode, format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
                continue
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def compare_tars(folder):
    long_name = "x" * 60 + "/" + "y" * 120
    members = [("images", None), ("__about__.json", b"{}")]
    for i in range(40):
        base = f"images/{i:04}" if i % 9 else f"{long_name}\u00e9{i}"
        members += [(base + ".JPG", os.urandom(i * 977)), (base + ".cls", str(i).encode()), (base + ".seg.png", b"")]
    members += [("README", b"no dot, no sample"), ("images/last.txt", b"the end")]
    for name, form, mode in [("gnu", tarfile.GNU_FORMAT, "w"), ("pax", tarfile.PAX_FORMAT, "w"),
                             ("packed", tarfile.PAX_FORMAT, "w:gz")]:
        path = os.path.join(folder, name + (".tar.gz" if mode == "w:gz" else ".tar"))
        write_tar(path, form, members, mode)
        wanted = []
        for sample in webdataset.WebDataset(path, shardshuffle=False):
            sample.pop("__local_path__", None)
            wanted.append({key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                           for key, value in sample.items()})
        assert len(wanted) == 42
        check(f"{name} tar", ours(path), wanted)
        check(f"{name} tar resumed", ours(path, "shuffle=3,7", "resume=5"), ours(path, "shuffle=3,7"))
    compare_careless_tars(folder)
    ustar = os.path.join(folder, "ustar.tar")
    write_tar(ustar, tarfile.USTAR_FORMAT, [("a" * 80 + "/" + "b" * 90 + ".txt", b"ustar's prefix")])
    wanted = ["a" * 80 + "/" + "b" * 90]
    check("ustar", [row["__key__"] for row in ours(ustar)], wanted)


def compare_careless_tars(folder):
    """As webdataset reads them: no mark at the end, absolute names, names in latin-1, and compression under any name."""
    members = [(f"/data/{i}{ending}", os.urandom(600)) for i in range(5) for ending in (".jpg", ".cls")]
    whole = os.path.join(folder, "whole.tar")
    write_tar(whole, tarfile.GNU_FORMAT, members)
    with open(whole, "rb") as file:
        data = file.read()
    end = len(data.rstrip(b"\0")) + 511 & ~511
    latin = io.BytesIO()
    with tarfile.open(fileobj=latin, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        for name, content in [("caf\xe9.txt", b"1"), ("caf\xe8.txt", b"2")]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    cases = {"endless.tar": data[:end], "half.tar": data[:8 * 1536], "whole.tgz": gzip.compress(data), "named.tar": gzip.compress(data),
             "packed.tar.bz2": bz2.compress(data), "packed.tbz2": bz2.compress(data), "latin.tar": latin.getvalue()}
    for name, content in cases.items():
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(content)
        wanted = []
        for sample in webdataset.WebDataset(path, shardshuffle=False):
            sample.pop("__local_path__", None)
            # What is not UTF-8 is a lone surrogate in Python, which no other program reads.
            wanted.append({key: base64.b64encode(value).decode() if isinstance(value, bytes) else
                           value.encode(errors="surrogateescape").decode(errors="backslashreplace") for key, value in sample.items()})
        assert wanted, name
        check(name, ours(path), wanted)


def compare_units(folder):
    """Files that give times in other units than the first one: rows have numbers, in the first file's unit."""
    kinds = {"timestamp": pa.timestamp, "duration": pa.duration}
    for name, kind in kinds.items():
        for units in (("ms", "us", "s"), ("us", "ms", "ns"), ("s", "ns")):
            paths = []
            for number, unit in enumerate(units):
                scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
                times = pa.array([3 * scale, None, -7 * scale], kind(unit))
                table = pa.table({"t": times, "list": pa.array([[2 * scale], [], None], pa.list_(kind(unit))), "i": [number] * 3})
                paths.append(f"{folder}/{name}-{'-'.join(units)}-{number}.parquet")
                pa.parquet.write_table(table, paths[-1])
            stream = datasets.load_dataset("parquet", data_files=paths, split="train", streaming=True)
            wanted = pa.Table.from_pylist(list(stream), schema=stream.features.arrow_schema)
            stored = {"t": wanted["t"].cast(pa.int64()), "list": wanted["list"].cast(pa.list_(pa.int64())), "i": wanted["i"]}
            check(f"{name} in {units}", ours(paths[0].replace("-0.parquet", "-*.parquet")), pa.table(stored).to_pylist())


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder
        tables = write_tables(folder)
        for kind, files in tables.items():
            pattern = files[0].replace("-000.", f"-{{000..{SHARDS - 1:03}}}.")
            builder = kind.split("_")[0]
            # Python reads zstd only with one more package: the rows are those of the plain files.
            files = tables["json"] if kind == "json_zst" else files

            def load(builder=builder, files=files):
                return datasets.load_dataset(builder, data_files=files, split="train", streaming=True)

            if kind == "json":
                compare_chains(pattern, load)
                compare_workers(pattern, load)
            check(f"{kind}", ours(pattern), list(load()))
            check(f"{kind} resumed", ours(pattern, "split=1,3,0", "resume=2"),
                  list(theirs(load(), [("split", 1, 3, 0)])))
        compare_units(folder)
        compare_tars(folder)
    print(f"{CHECKS} comparisons, {len(FAILURES)} differences")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
