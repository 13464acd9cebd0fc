"""Writes tracker_goldens.txt: events as the tensorboard package and torch.utils.tensorboard make them, in hexadecimal.

Run with a Python that has torch and tensorboard; tracker_test.cpp compares.
"""
import pathlib

import numpy as np
from google.protobuf import struct_pb2
from tensorboard.compat.proto import event_pb2
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import SummaryWriter, summary

TIME = 1790000000.25
HISTOGRAM = [0.25, 0.25, 3.0, 1e30]


class Bytes:
    """What RecordWriter writes to."""

    def __init__(self):
        self.content = b""

    def write(self, data):
        self.content += data


def event(step=None, **fields):
    message = event_pb2.Event(wall_time=TIME, **fields)
    if step is not None:
        message.step = step
    return message.SerializeToString(deterministic=True)


def bins():
    path = pathlib.Path("/tmp/tracker_goldens_bins")
    writer = SummaryWriter(str(path))
    found = writer.default_bins
    writer.close()
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    return found


def flag(name, value):
    """torch writes flags as numbers; the plugin has a kind of its own for them."""
    start = plugin_data_pb2.SessionStartInfo()
    start.hparams[name].CopyFrom(struct_pb2.Value(bool_value=value))
    content = plugin_data_pb2.HParamsPluginData(session_start_info=start)
    data = SummaryMetadata.PluginData(plugin_name="hparams", content=content.SerializeToString())
    return Summary(value=[Summary.Value(tag="_hparams_/session_start_info", metadata=SummaryMetadata(plugin_data=data))])


def cases():
    yield "version", event(file_version="brain.Event:2")
    yield "restart", event(8, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
    yield "scalar", event(7, summary=summary.scalar("loss", 0.1))
    yield "zero", event(0, summary=summary.scalar("train/acc", 0.0))
    yield "big_step", event(1 << 40, summary=summary.scalar("nan", float("nan")))
    yield "text", event(3, summary=summary.text("sample", "a \u00e9\nb"))
    yield "histogram", event(300, summary=summary.histogram("w", np.array(HISTOGRAM), bins()))
    yield "negative", event(1, summary=summary.histogram("n", np.array([-3.0, -2.5]), bins()))
    experiment, _, end = summary.hparams({"lr": 0.5, "name": "a"}, {"accuracy": 0})
    yield "experiment", event(summary=experiment)
    yield "session_number", event(summary=summary.hparams({"lr": 0.5}, {})[1])
    yield "session_text", event(summary=summary.hparams({"name": "a"}, {})[1])
    yield "session_flag", event(summary=flag("f", True))
    yield "session_end", event(summary=end)


def main():
    here = pathlib.Path(__file__).parent
    with open(here / "tracker_goldens.txt", "w", encoding="ascii") as file:
        for name, data in cases():
            file.write(f"{name} {data.hex()}\n")
            sink = Bytes()
            RecordWriter(sink).write(data)
            file.write(f"{name}_record {sink.content.hex()}\n")


if __name__ == "__main__":
    main()
