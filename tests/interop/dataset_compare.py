#!/usr/bin/env python3
"""Python's `datasets` and ours on the same files: dataset_compare.py PEER

PEER is the program dataset_peer. Files go both ways, and the same operations give the same rows. Needs a Python with
`datasets` and `pyarrow`; ends with 77 where there are none.
"""
import decimal
import json
import math
import os
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
try:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet
except ImportError:
    print("this Python has no package datasets or pyarrow: skipped")
    sys.exit(77)

PEER = sys.argv[1]
FAILURES = []
CHECKS = 0


def peer(*words):
    done = subprocess.run([PEER, *map(str, words)], capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr}")
    return done.stdout


def printed(*words):
    """Our features and rows."""
    features, *rows = peer(*words).split("\n")[:-1]
    return json.loads(features), [json.loads(row) for row in rows]


def plain(value):
    """A value as it goes through JSON: bytes as base64, decimals as text, times as numbers, not-a-number as a text."""
    if isinstance(value, bytes):
        import base64
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def rows_of(dataset):
    return [plain(row) for row in dataset.with_format("arrow")[:].to_pylist()] if len(dataset) else []


def check(name, ours, theirs):
    global CHECKS
    CHECKS += 1
    if plain(ours) != plain(theirs):
        FAILURES.append(name)
        print(f"DIFFERENT {name}\n  ours   {str(ours)[:600]}\n  theirs {str(theirs)[:600]}")


def same(name, dataset, *words):
    """The rows and features that the peer prints are those of a Python data set."""
    features, rows = printed(*words)
    check(name, rows, rows_of(dataset))
    check(name + " features", features, dataset.features.to_dict())


def sample(count=103):
    """All the types that there are, with nulls."""
    def maybe(row, value):
        return None if row % 7 == 3 else value

    columns = {
        "text": [maybe(row, f"row {row} \u00e9\u4e2d\n\"q\"") for row in range(count)],
        "number": [maybe(row, (row * 37) % 11 - 5) for row in range(count)],
        "real": [float("nan") if row % 13 == 5 else maybe(row + 1, row * 0.37 - 5) for row in range(count)],
        "flag": [maybe(row, row % 3 == 0) for row in range(count)],
        "label": [(row * row) % 3 for row in range(count)],
        "tokens": [maybe(row, list(range(row % 5))) for row in range(count)],
        "words": [[maybe(row + place, f"w{place}") for place in range(row % 4)] for row in range(count)],
        "pair": [[row, -row] for row in range(count)],
        "nested": [{"a": row, "b": [{"c": str(row)}] * (row % 3)} for row in range(count)],
        "bytes": [maybe(row, bytes([row % 256, 0, 255])) for row in range(count)],
        "small": [row % 100 for row in range(count)],
        "half": [row / 8 for row in range(count)],
        "when": [row * 1000003 for row in range(count)],
        "none": [None] * count,
        "large": [f"l{row}" for row in range(count)],
    }
    value = datasets.Value
    features = datasets.Features({
        "text": value("string"), "number": value("int64"), "real": value("float64"), "flag": value("bool"),
        "label": datasets.ClassLabel(names=["zero", "one", "two"]), "tokens": datasets.List(value("int32")),
        "words": datasets.List(value("string")), "pair": datasets.List(value("int64"), length=2),
        "nested": {"a": value("int64"), "b": datasets.List({"c": value("string")})}, "bytes": value("binary"),
        "small": value("uint8"), "half": value("float16"), "when": value("timestamp[us]"), "none": value("null"),
        "large": value("large_string"),
    })
    return datasets.Dataset.from_dict(columns, features=features)


def numbers_for_times(dataset):
    """`when` comes as numbers on our side."""
    return dataset.with_format(None).cast_column("when", datasets.Value("int64"))


def check_files(folder, data):
    """Round trips: what Python wrote is read here, what is written here is read and mapped in Python."""
    data.save_to_disk(folder + "/theirs", num_shards=4)
    features, rows = printed(folder + "/theirs")
    check("read save_to_disk", rows, rows_of(numbers_for_times(data)))
    check("features", features, data.features.to_dict())
    peer(folder + "/theirs", "shuffle=5", "save=" + folder + "/ours")
    back = datasets.load_from_disk(folder + "/ours")
    check("Python reads save_to_disk", rows_of(back), rows_of(data.shuffle(seed=5)))
    check("Python's features", back.features.to_dict(), data.features.to_dict())
    mapped = back.map(lambda row: {"doubled": row["label"] * 2})
    check("Python maps it", mapped["doubled"][:], [label * 2 for label in data.shuffle(seed=5)["label"][:]])
    peer(folder + "/theirs", "arrow=" + folder + "/ours.arrow")
    with pa.memory_map(folder + "/ours.arrow") as source:
        table = pa.ipc.open_stream(source).read_all()
    table.validate(full=True)
    check("pyarrow reads to_arrow", [plain(row) for row in table.to_pylist()], rows_of(data))
    peer(folder + "/theirs", "dict=" + folder + "/dict")
    both = datasets.load_from_disk(folder + "/dict")
    expected = data.train_test_split(0.3, seed=1)
    for name in ("train", "test"):
        check("DatasetDict " + name, rows_of(both[name]), rows_of(expected[name]))
    expected.save_to_disk(folder + "/their_dict")
    check("read DatasetDict", printed("test@" + folder + "/their_dict")[1], rows_of(numbers_for_times(expected["test"])))


def check_formats(folder):
    """Arrow's file format, dictionaries, Parquet, JSON and CSV."""
    table = pa.table({
        "word": pa.array(["a", None, "b", "a", "c"]).dictionary_encode(), "value": pa.array([1, 2, None, 4, 5], pa.int16()),
        "inner": pa.array([["x"], None, [], ["y", "x"], ["x"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "fixed": pa.array([b"abcd", None, b"efgh", b"0123", b"4567"], pa.binary(4)),
        "pairs": pa.array([[("k", 1)], [], None, [("l", 2), ("m", None)], []], pa.map_(pa.string(), pa.int64())),
        "many": pa.array([[1], None, [2, 3], [], [4]], pa.large_list(pa.float32())),
        "price": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-0.05"), decimal.Decimal(0), decimal.Decimal("123456789.99")],
                          pa.decimal128(20, 2)),
        "digits": pa.array([None, 10**50, -1, 0, 1], pa.decimal256(60, 0)),
    })
    rows = [plain(row) for row in table.to_pylist()]
    for row in rows:
        row["pairs"] = row["pairs"] and [{"key": key, "value": value} for key, value in row["pairs"]] if row["pairs"] is not None else None
    with pa.ipc.new_file(folder + "/file.arrow", table.schema) as writer:
        writer.write_table(table, 2)
    check("file format", printed(folder + "/file.arrow")[1], rows)
    with pa.ipc.new_stream(folder + "/stream.arrow", table.schema) as writer:
        for batch in table.to_batches(3):
            writer.write_batch(batch)
    check("stream format", printed(folder + "/stream.arrow")[1], rows)
    for codec in ("lz4", "zstd"):
        with pa.ipc.new_file(folder + "/packed.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table, 2)
        check("compressed by " + codec, printed(folder + "/packed.arrow")[1], rows)
    views = pa.table({"text": pa.array(["short", None, "longer than what a view holds itself"], pa.string_view())})
    with pa.ipc.new_stream(folder + "/views.arrow", views.schema) as writer:
        writer.write_table(views)
    check("views of text", printed(folder + "/views.arrow")[1], views.to_pylist())
    pa.parquet.write_table(table.drop_columns(["inner"]), folder + "/table.parquet", row_group_size=2)
    check("Parquet", printed(folder + "/table.parquet")[1], [{k: v for k, v in row.items() if k != "inner"} for row in rows])
    data = sample().remove_columns(["bytes", "when", "none"])
    data.to_parquet(folder + "/data.parquet")
    same("Parquet of datasets", data, folder + "/data.parquet")
    peer(folder + "/data.parquet", "parquet=" + folder + "/ours.parquet")
    back = datasets.Dataset.from_parquet(folder + "/ours.parquet", cache_dir=folder)
    check("Python reads Parquet", rows_of(back), rows_of(data))
    check("Parquet's features", back.features.to_dict(), data.features.to_dict())
    data = data.remove_columns(["half", "large", "real", "small"])
    data.to_json(folder + "/theirs.jsonl")
    check("read JSON lines", printed(folder + "/theirs.jsonl")[1], rows_of(data))
    peer(folder + "/theirs.jsonl", "json=" + folder + "/ours.jsonl")
    check("Python reads JSON lines", rows_of(datasets.Dataset.from_json(folder + "/ours.jsonl", cache_dir=folder)), rows_of(data))
    flat = data.select_columns(["text", "number", "label"])
    flat.save_to_disk(folder + "/flat")
    peer(folder + "/flat", "csv=" + folder + "/ours.csv")
    check("Python reads CSV", rows_of(datasets.Dataset.from_csv(folder + "/ours.csv", cache_dir=folder)), rows_of(flat))
    check("read CSV", printed(folder + "/ours.csv")[1], rows_of(flat))
    flat.to_csv(folder + "/theirs.csv")
    check("read Python's CSV", printed(folder + "/theirs.csv")[1], rows_of(flat))


NASTY = {
    "nulls.csv": "i,f,b,s,n,q\n1,1.5,True,a,,NA\n2,,False,,NaN,b\n,3,,null,,\" x \"\n4,1e3,true,NULL,N/A,#N/A\n",
    "blanks.csv": "a,b\n 1,x y\n2 , z\n",
    "quotes.csv": 'a,b\n"x, ""y""\nz",1\n\u00e9\u4e2d,2\n\'w\',3\n',
    "big.csv": "a,b\n9223372036854775807,-0.0\n-9223372036854775808,1e-320\n",
    "words.csv": "a,b\ntrue,1\nno,x\n",
    "nested.jsonl": '{"a": {"b": [1, null, 2.5], "c": []}, "d": null}\n{"a": null, "e": "\\u00e9\\ud83d\\ude00"}\n{"a": {"b": [], "c": null}, "d": [{"x": true}]}\n',
    "numbers.jsonl": '{"a": 1, "b": -0.0, "c": 1e308}\n{"a": 2.5, "b": 3, "c": 1}\n',
    "empty.jsonl": '{"a": "", "b": []}\n\n{"a": " ", "b": [[]]}\n',
    "lines.txt": "one\n\n  two \nthree",
}


def check_nasty(folder):
    """Rows and types of text files, also compressed."""
    builders = {"csv": datasets.Dataset.from_csv, "jsonl": datasets.Dataset.from_json, "txt": datasets.Dataset.from_text}
    for name, text in NASTY.items():
        path = folder + "/" + name
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        theirs = builders[name.split(".")[1]](path, cache_dir=folder)
        # From pandas 3 on text comes as large_string.
        for column, feature in theirs.features.items():
            if feature == datasets.Value("large_string"):
                theirs = theirs.cast_column(column, datasets.Value("string"))
        same(name, theirs, path)
        for ending, codec in ((".gz", "gzip"), (".zst", "zstd")):
            with pa.output_stream(path + ending, compression=codec) as packed:
                packed.write(text.encode())
            check(name + ending, printed(path + ending), printed(path))


def peak_anonymous_memory(words):
    """What a program prints, and the most memory of its own that it was seen to have, in bytes."""
    with subprocess.Popen([PEER, *words], stdout=subprocess.PIPE, text=True, encoding="utf-8") as program:
        peak = 0
        while program.poll() is None:
            try:
                with open(f"/proc/{program.pid}/status", encoding="utf-8") as status:
                    lines = [line.split()[1] for line in status if line.startswith("RssAnon:")]
                peak = max([peak, *(int(line) * 1024 for line in lines)])
            except (FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.002)
        return program.stdout.read(), peak


def check_large(folder):
    """A file far larger than the memory that reading it takes, by four processes at once: written once, mapped by all."""
    path, rows = folder + "/large.jsonl", 600_000
    with open(path, "w", encoding="utf-8") as file:
        for row in range(rows):
            file.write(f'{{"id": {row}, "text": "{"word " * 50}{row}"}}\n')
    def entries():
        return sum(len(name) == 32 for name in os.listdir(folder + "/cache"))

    before = entries()
    programs = [subprocess.Popen([PEER, path, "rows="], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(4)]
    check("four processes", [program.communicate()[0] for program in programs], [f"{rows}\n"] * 4)
    check("one entry", entries(), before + 1)
    os.rename(path, folder + "/large.json")
    with open(folder + "/large.json", "a", encoding="utf-8") as file:
        file.write('{"id": -1, "text": ""}\n')
    printed_rows, peak = peak_anonymous_memory([folder + "/large.json", "rows="])
    check("large file", printed_rows, f"{rows + 1}\n")
    size = os.path.getsize(folder + "/large.json")
    check(f"memory: {peak >> 20} of {size >> 20} MiB", peak < size // 2, True)


def check_rows(source, data):
    """Operations on rows, row for row."""
    for seed in (0, 1, 42, 2**40):
        same(f"shuffle {seed}", data.shuffle(seed=seed), source, f"shuffle={seed}")
    for size in (0.25, 0.1, 7, 0.9):
        for shuffle in (True, False):
            parts = data.train_test_split(size, seed=3, shuffle=shuffle)
            for part in ("train", "test"):
                word = f"{part}={size}/3/{'shuffle' if shuffle else 'order'}"
                same(word, parts[part], source, word)
    for seed in (0, 5, 11, 17):
        parts = data.train_test_split(0.2, seed=seed, stratify_by_column="label")
        for part in ("train", "test"):
            same(f"stratified {part} {seed}", parts[part], source, f"{part}=0.2/{seed}/shuffle/label")
    for contiguous in (True, False):
        for index in range(4):
            word = f"shard=4/{index}/{'contiguous' if contiguous else 'strided'}"
            same(word, data.shard(4, index, contiguous=contiguous), source, word)
    same("select", data.select([5, 1, 99, 5]), source, "select=5,1,99,5")
    same("select of a shuffle", data.shuffle(seed=1).select(range(10, 30)), source, "shuffle=1", "slice=10/20")
    same("flatten", data.shuffle(seed=1).flatten_indices(), source, "shuffle=1", "flatten")
    same("twice", datasets.concatenate_datasets([data.shuffle(seed=2)] * 2), source, "shuffle=2", "twice")
    for placement in ("at_end", "at_start"):
        for column in ("number", "text", "real", "flag", "small"):
            for reverse in (False, True):
                theirs = data.sort(column, reverse=reverse, null_placement=placement)
                same(f"sort {placement} {column} {reverse}", theirs, source, f"sort={placement}/{'-' if reverse else ''}{column}")
        theirs = data.shuffle(seed=3).sort(["label", "number"], reverse=[True, False], null_placement=placement)
        same(f"sort by two {placement}", theirs, source, "shuffle=3", f"sort={placement}/-label/number")


def check_interleave(source, data):
    lengths = (30, 7, 50)
    parts = [data.select(range(0, 30)), data.select(range(30, 37)), data.select(range(37, 87))]
    for strategy in ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement"):
        for probabilities in (None, [0.5, 0.2, 0.3], [0.1, 0.05, 0.85]):
            for seed in (1, 2) if probabilities else (1,):
                theirs = datasets.interleave_datasets(parts, probabilities, seed=seed, stopping_strategy=strategy)
                word = ",".join(map(str, probabilities)) if probabilities else "none"
                ours = f"interleave={strategy}/{seed}/{word}/{','.join(map(str, lengths))}"
                same(ours, theirs, source, ours)


def check_columns(source, data):
    same("remove", data.remove_columns("text"), source, "remove=text")
    same("keep", data.select_columns(["label", "text"]), source, "keep=label/text")
    same("rename", data.rename_column("text", "sentence"), source, "rename=text/sentence")
    same("cast to int16", data.cast_column("number", datasets.Value("int16")), source, "cast=number/int16")
    same("cast to text", data.cast_column("number", datasets.Value("string")), source, "cast=number/string")
    same("cast to double", data.cast_column("small", datasets.Value("float64")), source, "cast=small/float64")
    for column in ("text", "number", "flag"):
        same("encode " + column, data.class_encode_column(column), source, "encode=" + column)
        ours = [json.loads(line) for line in peer(source, "unique=" + column).split("\n")[:-1]]
        check("unique " + column, ours, data.unique(column))
    theirs = data.shuffle(seed=4).add_column("copy", data.shuffle(seed=4)["label"][:], feature=data.features["label"])
    check("add", printed(source, "shuffle=4", "copy=label/copy")[1], rows_of(theirs))


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-datasets-") as folder:
        os.environ["LOCKSTEP_CACHE"] = folder + "/cache"
        data = sample()
        check_files(folder, data)
        check_formats(folder)
        check_nasty(folder)
        check_large(folder)
        plain_data = data.remove_columns(["bytes", "when", "none"])
        plain_data.save_to_disk(folder + "/plain")
        source = folder + "/plain"
        check_rows(source, plain_data)
        check_interleave(source, plain_data)
        check_columns(source, plain_data)
    print(f"{CHECKS} comparisons with datasets {datasets.__version__}, {len(FAILURES)} different")
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
