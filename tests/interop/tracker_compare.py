"""Reads with the tensorboard package what tracker_peer wrote: tracker_compare.py PROGRAM. Ends with 77 where that
package is not installed (pip install tensorboard); tracker_test compares the bytes with what it writes all the same."""
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator
    from tensorboard.util import tensor_util
    from tensorboard.plugins.hparams import plugin_data_pb2
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import make_histogram
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LOSS = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0)]


def check(what, mine, theirs):
    if mine != theirs:
        sys.exit(f"{what}: expected {theirs}, got {mine}")
    print(f"{what}: the same")


def hparams(events, tag):
    content = events.SummaryMetadata(f"_hparams_/{tag}").plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def check_scalars(events):
    check("scalars", [(e.step, e.value) for e in events.Scalars("loss")], LOSS)
    check("tags", sorted(events.Tags()["scalars"]), ["loss", "lr"])


def check_scalars_of_server(name):
    """As TensorBoard itself reads them where it has no data server, and takes the first start of a run for its beginning."""
    events = PluginEventAccumulator(name, size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    events.Reload()
    check("scalars of the server", [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in events.Tensors("loss")], LOSS)


def check_histogram(events, folder):
    found = events.Histograms("weights")[0]
    with tempfile.TemporaryDirectory(dir=folder) as other:
        writer = SummaryWriter(other)
        import numpy
        wanted = make_histogram(numpy.sin(numpy.arange(1000)) * 3, writer.default_bins)
        writer.close()
    value = found.histogram_value
    check("step of the histogram", found.step, 6)
    check("limits", list(value.bucket_limit), list(wanted.bucket_limit))
    check("counts", list(value.bucket), list(wanted.bucket))
    check("min, max, count", (value.min, value.max, value.num), (wanted.min, wanted.max, wanted.num))
    check("sums", math.isclose(value.sum, wanted.sum) and math.isclose(value.sum_squares, wanted.sum_squares), True)


def check_texts(events):
    texts = [t.tensor_proto.string_val[0] for t in events.Tensors("sample/text_summary")]
    check("texts", texts, [b"# a text"])


def check_hparams(events):
    values = hparams(events, "session_start_info").session_start_info.hparams
    check("hyper-parameters", (values["lr"].number_value, values["epochs"].number_value, values["name"].string_value,
                               values["amsgrad"].bool_value), (0.5, 3.0, "a", True))
    experiment = hparams(events, "experiment").experiment
    check("kinds", [(info.name, info.type) for info in experiment.hparam_infos],
          [("amsgrad", 2), ("epochs", 3), ("lr", 3), ("name", 1)])
    check("metrics", [info.name.tag for info in experiment.metric_infos], ["loss"])
    check("end", hparams(events, "session_end_info").session_end_info.status, 1)


def check_files(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    check("JSON lines", [(line["step"], line["loss"]) for line in lines if "loss" in line], LOSS)
    with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
        check("table", [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(file)], LOSS)


def main(program):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, name], check=True, timeout=60)
        events = EventAccumulator(name, size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
        events.Reload()
        check_scalars(events)
        check_scalars_of_server(name)
        check_texts(events)
        check_hparams(events)
        check_histogram(events, folder)
        check_files(folder)


if __name__ == "__main__":
    main(sys.argv[1])
