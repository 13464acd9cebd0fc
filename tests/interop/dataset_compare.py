#!/usr/bin/env python3
"""Python's `datasets` and ours on the same files: dataset_compare.py PEER

PEER is the program dataset_peer. Files go both ways, and the same operations give the same rows. Needs a Python with
`datasets` and `pyarrow`; ends with 77 where there are none.
"""
import datetime
import decimal
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
try:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet
except ImportError:
    print("this Python has no package datasets or pyarrow: skipped")
    sys.exit(77)

import file_layouts
import stale_features

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
    pa.parquet.write_table(table, folder + "/table.parquet", row_group_size=2)
    check("Parquet", printed(folder + "/table.parquet")[1], rows)
    seconds = datasets.Dataset.from_dict({"when": [5, None]}).cast_column("when", datasets.Value("timestamp[s]"))
    seconds.to_parquet(folder + "/seconds.parquet")
    check("Parquet of seconds", printed(folder + "/seconds.parquet"),
          (seconds.features.to_dict(), [{"when": 5}, {"when": None}]))
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
    "unsigned.csv": "a,b,c,d\n18446744073709551615,9223372036854775808,18446744073709551615,+1\n1,-1,1.5,18446744073709551615\n",
    "short.csv": "a,b,c\n1,2\n   \n3,\"x\",5\n\t\n6\n  ",
    "names.csv": ",a,a,a.1,a,\n0,1,2,3,4,5\n",
    "range.csv": "a,b,c,d\n1e400,1e-400,NAN,nan(1)\n-1e400,-1e-400,1,2\n",
    "nulls.csv": "i,f,b,s,n,q\n1,1.5,True,a,,NA\n2,,False,,NaN,b\n,3,,null,,\" x \"\n4,1e3,true,NULL,N/A,#N/A\n",
    "blanks.csv": "a,b\n 1,x y\n2 , z\n",
    "spaces.csv": 'a,b,c\n"1\n",inf,"\t1.5\r\n"\n\v2\f, inf,2\n',
    "quotes.csv": 'a,b\n"x, ""y""\nz",1\n\u00e9\u4e2d,2\n\'w\',3\n',
    "big.csv": "a,b\n9223372036854775807,-0.0\n-9223372036854775808,1e-320\n",
    "words.csv": "a,b\ntrue,1\nno,x\n",
    "nested.jsonl": '{"a": {"b": [1, null, 2.5], "c": []}, "d": null}\n{"a": null, "e": "\\u00e9\\ud83d\\ude00"}\n{"a": {"b": [], "c": null}, "d": [{"x": true}]}\n',
    "numbers.jsonl": '{"a": 1, "b": -0.0, "c": 1e308}\n{"a": 2.5, "b": 3, "c": 1}\n',
    "empty.jsonl": '{"a": "", "b": []}\n\n{"a": " ", "b": [[]]}\n',
    "order.jsonl": '\ufeff[{"a": 1},\n{"a": 2}]',
    "object.jsonl": '{\n "a": 1,\n "b": {"c": "x}"}\n, "d": [1]}\n',
    "returns.txt": "a\rb\r\nc\r\r\nd\n\re\r",
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
        for ending, codec in ((".gz", "gzip"), (".zst", "zstd"), (".bz2", "bz2"), (".lz4", "lz4")):
            with pa.output_stream(path + ending, compression=codec) as packed:
                packed.write(text.encode())
            check(name + ending, printed(path + ending), printed(path))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile(f"{path}-{method}.zip", "w", method) as archive:
                archive.writestr("inside/" + name, text)
            check(f"{name} in a ZIP archive {method}", printed(f"{path}-{method}.zip"), printed(path))


SEVERAL = {
    "csv": (["a\n1.5\n2.5\n", "a\n1\n2\n"], ["a,b\n1,1\n2,2\n", "a,b\n,1\n3,2\n"], ["a,b\n,1\n,2\n", "a,b\n3,1\n4,2\n"],
            ["a\n1\n", "a\n"], ["a,b\nTrue,1\n", "a,b\n,2\n,3\n"]),
    "jsonl": (['{"a":1}\n', ""], ['{"a":1.5}\n', '{"a":2}\n'], ['{"a":1}\n', '{"a":null}\n'], ['{"a":1,"b":2}\n', '{"a":3}\n'],
              ['{"a":[1]}\n', '{"a":[]}\n']),
}


def check_several(folder):
    """Files whose columns or types differ, loaded together."""
    for kind, cases in SEVERAL.items():
        for number, texts in enumerate(cases):
            paths = [f"{folder}/several-{number}-{place}.{kind}" for place in range(len(texts))]
            for path, text in zip(paths, texts):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            builder = {"csv": datasets.Dataset.from_csv, "jsonl": datasets.Dataset.from_json}[kind]
            same(f"several {kind} {number}", builder(paths, cache_dir=folder), f"{folder}/several-{number}-*.{kind}")
    for path in ("deep/a/b/x.txt", "deep/y.txt"):
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
            file.write(path + "\n")
    pattern = folder + "/deep/**/*.txt"
    same("**", datasets.load_dataset("text", data_files=pattern, split="train", cache_dir=folder), pattern)


def raw(array):
    """Values of an array; those of dates and times as they are stored."""
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return array.to_pylist()


def check_casts(folder):
    """What becomes of values of each type in each other type, and which are refused."""
    day = datetime.date(2020, 1, 2)
    values = (
        pa.array([1577923200000000, None, -1000000], pa.timestamp("us")), pa.array([1577923200123456], pa.timestamp("us")),
        pa.array([day, None]), pa.array([5, None], pa.timestamp("s")), pa.array([5000, None], pa.timestamp("ms", "UTC")),
        pa.array([5, None], pa.duration("s")), pa.array([3661, None], pa.time32("s")),
        pa.array(["2020-01-02 10:00:00", None]), pa.array(["2020-01-02"]), pa.array(["x"]), pa.array([2**53 + 1, None]),
        pa.array([300, -1]), pa.array([1.0, None, -2.5, float("inf"), 1e300]), pa.array([0.1], pa.float32()), pa.array([1.5], pa.float16()),
        pa.array([True, None]), pa.nulls(2), pa.array([[day], None, []]), pa.array([[1577923200], None], pa.large_list(pa.timestamp("s"))),
        pa.array([{"a": day, "b": 1}, None]), pa.array([{"a": day, "b": "1.5"}, None]))
    value = datasets.Value
    kinds = {name: value(name) for name in (
        "timestamp[s]", "timestamp[ms]", "timestamp[us]", "timestamp[ns]", "timestamp[s, tz=UTC]", "date32", "date64", "time32[s]", "duration[ms]",
        "string", "large_string", "int8", "int64", "uint64", "float16", "float32", "float64", "bool", "decimal128(20, 2)")}
    kinds |= {"list:timestamp[s]": datasets.List(value("timestamp[s]")), "list:string": datasets.List(value("string"))}
    kinds |= {"a:timestamp[us]": {"a": value("timestamp[us]")}, "b:float32,a:timestamp[us]": {"b": value("float32"), "a": value("timestamp[us]")}}
    for number, array in enumerate(values):
        data = datasets.Dataset(pa.table({"a": array}))
        data.save_to_disk(f"{folder}/cast-{number}")
        for name, kind in kinds.items():
            try:
                theirs = data.cast_column("a", kind)
            except (pa.ArrowException, TypeError, ValueError):
                theirs = None
            ours = subprocess.run([PEER, f"{folder}/cast-{number}", f"cast=a/{name}", f"arrow={folder}/cast.arrow"], check=False,
                                  capture_output=True, text=True)
            label = f"cast of {array.type} {array.to_pylist()} to {name}"
            check(label, ours.returncode, 2 if theirs is None else 0)
            if theirs is None or ours.returncode != 0:
                continue
            with pa.ipc.open_stream(folder + "/cast.arrow") as reader:
                check(label, [repr(one) for one in raw(reader.read_all()["a"].combine_chunks())],
                      [repr(one) for one in raw(theirs.data.table["a"].combine_chunks())])


def check_texts_of_types(folder):
    """Dates, times and bytes in CSV and JSON, as pandas reads them."""
    import pandas
    data = pa.table({"when": pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5, 678), None]), "day": pa.array([datetime.date(2020, 1, 2), None]),
                     "bytes": pa.array([b"\xff\x00", None]), "days": pa.array([[datetime.date(2020, 1, 2), None], None]), "n": [1, 2]})
    datasets.Dataset(data).save_to_disk(folder + "/texts")
    peer(folder + "/texts", "csv=" + folder + "/texts.csv")
    table = pandas.read_csv(folder + "/texts.csv", parse_dates=["when"])
    check("times in CSV", table["when"].tolist()[0].isoformat(), "2020-01-02T03:04:05.000678")
    check("days in CSV", table["day"].tolist()[0], "2020-01-02")
    check("bytes in CSV", table["bytes"].tolist()[0], "/wA=")
    peer(folder + "/texts", "json=" + folder + "/texts.jsonl")
    features = datasets.Features({"when": datasets.Value("timestamp[us]"), "day": datasets.Value("date32"), "bytes": datasets.Value("string"),
                                  "days": datasets.List(datasets.Value("date32")), "n": datasets.Value("int64")})
    back = datasets.Dataset.from_json(folder + "/texts.jsonl", features=features, cache_dir=folder)
    for name in ("when", "day", "days"):
        check(f"{name} in JSON", back.data.table[name].to_pylist(), data[name].to_pylist())


def check_arrays(folder):
    """Arrays, which Python stores as an extension type."""
    features = datasets.Features({"a": datasets.Array2D((2, 2), "float32"), "b": datasets.Array3D((None, 1, 1), "int64"), "n": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"a": [[[1, 2], [3, 4]]] * 5, "b": [[[[7]]]] * 5, "n": list(range(5))}, features=features)
    data.save_to_disk(folder + "/arrays")
    for name, words, rows in (("all", [], range(5)), ("fewer rows than shards", ["slice=0/2"], range(2)), ("none", ["slice=0/0"], [])):
        peer(folder + "/arrays", *words, "save=" + folder + "/arrays_" + name)
        back = datasets.load_from_disk(folder + "/arrays_" + name)
        check("arrays " + name, back.features == features and back["n"][:] == list(rows), True)
        check("their values " + name, back.with_format("arrow")[:].to_pylist() if rows else [], data.select(rows).with_format("arrow")[:].to_pylist() if rows else [])


def check_json_and_views(folder):
    """JSON, which Python stores as an extension type of Arrow's, and views, which become plain."""
    features = datasets.Features({"a": datasets.Json(), "b": datasets.List(datasets.Json()), "v": datasets.Value("string_view")})
    data = datasets.Dataset.from_dict({"a": [{"x": 1}, None], "b": [[1, "x"], []], "v": ["a", None]}, features=features)
    data.save_to_disk(folder + "/json")
    peer(folder + "/json", "save=" + folder + "/json_ours")
    back = datasets.load_from_disk(folder + "/json_ours")
    check("JSON and views", back[:], data[:])
    check("their features", back.features.to_dict(), features.to_dict() | {"v": {"dtype": "string", "_type": "Value"}})


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
    check_class_columns(os.path.dirname(source))
    theirs = data.shuffle(seed=4).add_column("copy", data.shuffle(seed=4)["label"][:], feature=data.features["label"])
    check("add", printed(source, "shuffle=4", "copy=label/copy")[1], rows_of(theirs))


def check_class_columns(folder):
    """Classes of dates and large numbers, and rows without a class in stratified parts."""
    days = [datetime.date(2020, 1, 1 + row % 3) for row in range(20)]
    table = pa.table({"day": pa.array([*days, None]), "large": pa.array([2**64 - 1, 5, None] * 7, pa.uint64())})
    classes = datasets.Dataset(table).class_encode_column("day").class_encode_column("large")
    datasets.Dataset(table).save_to_disk(folder + "/classes")
    same("encode dates and large numbers", classes, folder + "/classes", "encode=day", "encode=large")
    for part in ("train", "test"):
        theirs = classes.train_test_split(0.4, seed=3, stratify_by_column="large")[part]
        same(f"stratified with nulls, {part}", theirs, folder + "/classes", "encode=day", "encode=large", f"{part}=0.4/3/shuffle/large")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-datasets-") as folder:
        os.environ["LOCKSTEP_CACHE"] = folder + "/cache"
        data = sample()
        check_files(folder, data)
        check_formats(folder)
        stale_features.compare(folder, check, printed, rows_of)
        file_layouts.compare(folder, check, printed, rows_of)
        check_nasty(folder)
        check_several(folder)
        check_casts(folder)
        check_texts_of_types(folder)
        check_arrays(folder)
        check_json_and_views(folder)
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
