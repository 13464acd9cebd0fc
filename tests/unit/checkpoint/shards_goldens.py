"""Writes shards_goldens.txt: how huggingface_hub splits tensors of given sizes. shards_test.cpp compares.

A line: the largest size, the tensors' sizes, a bar, and the number of each tensor's file; the tensors are named by their
place. Run with a Python that has huggingface_hub.
"""
import pathlib
import random

from huggingface_hub import split_state_dict_into_shards_factory


def files_of(largest, sizes):
    split = split_state_dict_into_shards_factory(
        {str(i): size for i, size in enumerate(sizes)}, get_storage_size=lambda size: size,
        filename_pattern="model{suffix}.safetensors", max_shard_size=largest)
    files = list(split.filename_to_tensors)
    assert files == ["model.safetensors"] or files == [
        f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))]
    return [files.index(split.tensor_to_filename[str(i)]) for i in range(len(sizes))]


def main():
    draw = random.Random(1)
    with open(pathlib.Path(__file__).parent / "shards_goldens.txt", "w", encoding="ascii") as file:
        for _ in range(60):
            largest = draw.choice([1, 10, 100])
            sizes = [draw.randint(0, draw.choice([12, 60])) for _ in range(draw.randint(1, 12))]
            line = [largest, *sizes, "|", *files_of(largest, sizes)]
            file.write(" ".join(map(str, line)) + "\n")


if __name__ == "__main__":
    main()
