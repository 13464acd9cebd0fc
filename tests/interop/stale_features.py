"""Columns that pyarrow has added, removed, renamed or given another type since `datasets` wrote its features."""
import datasets
import pyarrow as pa
import pyarrow.parquet


def arrays():
    """Arrays of all dimensions, also inside of lists and structures, that only their extension types tell."""
    array2 = datasets.Array2D((None, 2), "float64")
    features = datasets.Features({
        "two": array2, "three": datasets.Array3D((1, 1, 2), "int8"), "four": datasets.Array4D((1, 1, 1, 2), "bool"),
        "five": datasets.Array5D((1, 1, 1, 1, 2), "uint16"), "list": datasets.List(array2), "pair": datasets.List(array2, length=2),
        "inside": {"array": array2, "list": datasets.List({"array": array2, "n": datasets.Value("int64")})}})
    one = [[.5, 1.5]]
    row = {"two": one, "three": [[[1, 2]]], "four": [[[[True, False]]]], "five": [[[[[1, 2]]]]], "list": [one, one], "pair": [one, one],
           "inside": {"array": one, "list": [{"array": one, "n": 1}]}}
    whole = datasets.Dataset.from_list([row, row], features=features)
    return whole.data.table.replace_schema_metadata(None)


def compare(folder, check, printed, rows_of):
    """What dataset_compare.py gives: how a result is compared, our features and rows of a file, and their rows."""
    value = datasets.Value
    features = datasets.Features({"label": datasets.ClassLabel(names=["x", "y"]), "n": value("int64"), "text": value("string"),
                                  "image": datasets.Image(), "pairs": datasets.Array2D((2, 2), "int32"), "when": value("timestamp[us]")})
    whole = datasets.Dataset.from_dict({"label": [0, 1], "n": [1, 2], "text": ["a", "b"], "image": [None, None],
                                        "pairs": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "when": [1000, 2000]}, features=features)
    whole.to_parquet(folder + "/fresh.parquet")
    table = pa.parquet.read_table(folder + "/fresh.parquet")

    def cast(name, kind):
        return table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))

    cases = {
        "added": table.append_column("score", pa.array([.5, 1.5], pa.float32())), "removed": table.drop_columns(["image", "pairs", "n"]),
        "renamed": table.rename_columns(["y", "n", "text", "picture", "pairs", "when"]), "int32": cast("label", pa.int32()),
        "float64": cast("n", pa.float64()), "large_string": cast("text", pa.large_string()), "ms": cast("when", pa.timestamp("ms")),
        "names": table.set_column(3, "image", pa.array(["p", "q"])), "swapped": table.select(["when", "label", "text"]),
    }
    kept = table.rename_columns(["y", "n", "text", "picture", "pairs", "when"]).replace_schema_metadata(table.schema.metadata)
    cases |= {"renamed, with metadata": kept, "reordered": table.select(["pairs", "image", "label", "when"]), "arrays": arrays()}
    for name, case in cases.items():
        path = f"{folder}/stale-{name}"
        pa.parquet.write_table(case, path + ".parquet")
        with pa.ipc.new_stream(path + ".arrow", case.schema) as writer:
            writer.write_table(case)
        theirs = datasets.Dataset.from_parquet(path + ".parquet", cache_dir=folder)
        for ending, peers in ((".parquet", theirs), (".arrow", datasets.Dataset.from_file(path + ".arrow"))):
            found, rows = printed(path + ending)
            check(f"stale features: {name}{ending}", found, peers.features.to_dict())
            plain_rows = peers.cast_column("when", value("int64")) if "when" in peers.column_names else peers
            check(f"rows with stale features: {name}{ending}", rows, rows_of(plain_rows))
