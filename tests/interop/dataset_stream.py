#!/usr/bin/env python3
"""Rows handed over without a copy: dataset_stream.py LIBRARY

LIBRARY is dataset_stream.cpp's. pyarrow, pandas, Polars and DuckDB read a data set of ours through Arrow's C stream
interface. Ends with 77 where there is no `datasets` or pyarrow; Polars and DuckDB are tested where they are.
"""
import ctypes
import importlib.util
import os
import sys
import tempfile

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
try:
    import datasets
    import pyarrow as pa
except ImportError:
    print("this Python has no package datasets or pyarrow: skipped")
    sys.exit(77)

LIBRARY = ctypes.CDLL(sys.argv[1])
LIBRARY.open_stream.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_void_p]
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Rows:
    """A data set of ours, to whoever asks for its stream."""

    def __init__(self, path, seed=-1):
        self.path, self.seed = path, seed

    def __arrow_c_stream__(self, requested_schema=None):
        self.stream = ctypes.create_string_buffer(40)
        if LIBRARY.open_stream(self.path.encode(), self.seed, ctypes.addressof(self.stream)) != 0:
            raise OSError(f"cannot load {self.path}")
        return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(self.stream), b"arrow_array_stream", None)


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-stream-") as folder:
        count = 3000
        data = datasets.Dataset.from_dict({
            "id": list(range(count)), "text": [None if row % 7 == 0 else f"row {row}" for row in range(count)],
            "tokens": [list(range(row % 5)) for row in range(count)]})
        data.save_to_disk(folder + "/rows")
        expected = data.to_list()
        before = pa.total_allocated_bytes()
        table = pa.table(Rows(folder + "/rows"))
        assert table.to_pylist() == expected
        assert pa.total_allocated_bytes() - before < 10_000, "rows that lie in order are not copied"
        shuffled = pa.table(Rows(folder + "/rows", 5))
        assert shuffled.to_pylist() == data.shuffle(seed=5).to_list()
        assert datasets.Dataset(shuffled).features == data.features
        read = ["pyarrow"]
        frame = table.to_pandas()
        assert frame["id"].sum() == count * (count - 1) // 2 and frame["text"].isna().sum() == len(range(0, count, 7))
        read.append("pandas")
        if importlib.util.find_spec("polars"):
            import polars
            assert polars.DataFrame(Rows(folder + "/rows")).to_dicts() == expected
            read.append("Polars")
        if importlib.util.find_spec("duckdb"):
            import duckdb
            rows = pa.RecordBatchReader.from_stream(Rows(folder + "/rows"))
            found = duckdb.sql("SELECT sum(id), count(text), sum(len(tokens)) FROM rows").fetchall()
            assert found == [(sum(range(count)), sum(row["text"] is not None for row in expected),
                              sum(len(row["tokens"]) for row in expected))], found
            read.append("DuckDB")
        print("rows were handed over to " + ", ".join(read))


if __name__ == "__main__":
    main()
