"""Files that are loaded together and differ only in how Arrow stores a column."""
import datasets
import pyarrow as pa
import pyarrow.parquet


def compare(folder, check, printed, rows_of):
    """What dataset_compare.py gives: how a result is compared, our features and rows of a file, and their rows."""
    layouts = {
        "text": (["a", None], pa.string(), pa.large_string()), "bytes": ([b"a", None], pa.binary(), pa.large_binary()),
        "list": ([[1], None], pa.list_(pa.int32()), pa.large_list(pa.int32())),
        "texts": ([["a"], None], pa.list_(pa.string()), pa.large_list(pa.large_string())),
        "struct": ([{"a": "x"}, None], pa.struct({"a": pa.string()}), pa.struct({"a": pa.large_string()})),
    }
    for name, (values, small, large) in layouts.items():
        for order, types in (("small", (small, large)), ("large", (large, small))):
            paths = [f"{folder}/layout-{name}-{order}-{place}.parquet" for place in (0, 1)]
            for path, kind in zip(paths, types):
                pa.parquet.write_table(pa.table({"x": pa.array(values, kind)}), path)
            _, rows = printed(f"{folder}/layout-{name}-{order}-*.parquet")
            check(f"layout {name} {order}", rows, rows_of(datasets.Dataset.from_parquet(paths, cache_dir=folder)))
    for units in (("ms", "us"), ("us", "ms")):
        paths = [f"{folder}/layout-times-{units[0]}-{place}.parquet" for place in (0, 1)]
        for path, unit in zip(paths, units):
            pa.parquet.write_table(pa.table({"x": pa.array([5 * {"ms": 10**3, "us": 10**6}[unit]], pa.timestamp(unit))}), path)
        features, rows = printed(f"{folder}/layout-times-{units[0]}-*.parquet")
        check(f"layout times {units} features", features["x"]["dtype"], "timestamp[us]")  # The finer one loses nothing.
        check(f"layout times {units}", rows, [{"x": 5 * 10**6}] * 2)
