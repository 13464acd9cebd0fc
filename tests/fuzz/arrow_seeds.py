"""Writes the files that arrow_fuzzer starts from: arrow_seeds.py FOLDER. Made with pyarrow 26.0.1."""
import os
import sys

import pyarrow as pa

TABLE = pa.table({
    "word": pa.array(["a", None, "b"]).dictionary_encode(), "number": pa.array([1, None, 3], pa.int16()),
    "list": pa.array([["x"], None, ["y", "x"]]), "pair": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int32(), 2)),
    "inner": pa.array([{"a": True, "b": b"12"}, None, {"a": None, "b": b""}]), "none": pa.nulls(3),
    "large": pa.array(["p", "q", None], pa.large_string()), "when": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
})

with pa.ipc.new_file(os.path.join(sys.argv[1], "file.arrow"), TABLE.schema) as writer:
    writer.write_table(TABLE, 2)
with pa.ipc.new_stream(os.path.join(sys.argv[1], "stream.arrow"), TABLE.schema) as writer:
    writer.write_table(TABLE, 2)
