"""Images a second from JPEG files, ours and torchvision's: images.py PROGRAM [--images N] [--workers N] [--rounds N]

All sides read the same files (500 x 375, quality 90, made up), in the file cache, shuffled, in batches of 64:
RandomResizedCrop(224), a flip, float32, normalised. torchvision's sides are its usual pipeline on images of Pillow, and
torchvision.io.decode_jpeg with transforms.v2 on tensors. The sides take turns.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

from harness.benchmark import OURS, Benchmark, Row

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH_SIZE = 64


def fill(root, count):
    """Large shapes, edges and some noise: files of about the size of ImageNet's."""
    import numpy
    from PIL import Image
    numbers = numpy.random.default_rng(1)
    y, x = numpy.mgrid[:375, :500]
    for place in range(count):
        waves = [numpy.sin(x / numbers.uniform(5, 60) + y / numbers.uniform(5, 60)) for _ in range(3)]
        pixels = 127 + 80 * numpy.stack(waves, 2) + numbers.normal(0, 8, (375, 500, 3))
        folder = os.path.join(root, str(place % 10))
        os.makedirs(folder, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(os.path.join(folder, f"{place}.jpg"), quality=90)


def pillow_side(root):
    from torchvision import datasets, transforms
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
             transforms.Normalize(MEAN, STD)]
    return datasets.ImageFolder(root, transforms.Compose(steps))


def tensor_side(root):
    import torch
    from torchvision import datasets, io
    from torchvision.transforms import v2
    steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
             v2.Normalize(MEAN, STD)]
    return datasets.ImageFolder(root, v2.Compose(steps), loader=lambda path: io.decode_jpeg(io.read_file(path)))


def python_epoch(dataset, workers):
    from torch.utils.data import DataLoader
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    speed = 0
    for _ in range(2):  # The first starts the workers.
        begin = time.perf_counter()
        rows = sum(len(labels) for _, labels in loader)
        speed = rows / (time.perf_counter() - begin)
    return speed


def our_epoch(program, root, workers, how):
    words = [program, root, str(workers), str(BATCH_SIZE), "1", how]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import torch
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        fill(root, options.images)
        sides = {"ours": lambda: our_epoch(options.program, root, options.workers, "exact"),
                 "ours, scaled decoding": lambda: our_epoch(options.program, root, options.workers, "scaled"),
                 "torchvision on Pillow": lambda: python_epoch(pillow_side(root), options.workers),
                 "torchvision.io": lambda: python_epoch(tensor_side(root), options.workers)}
        speeds = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                speeds[name].append(side())
        print(f"images a second, medians of {options.rounds}; {options.workers} workers, torch {torch.__version__}")
        ours = statistics.median(speeds["ours"])
        for name, values in speeds.items():
            middle = statistics.median(values)
            print(f"{name:24s} {middle:8.0f}  ({min(values):.0f} to {max(values):.0f})  ours / this: {ours / middle:.2f}")


def sides(setting):
    count, root = 192 if setting.quick else 960, os.path.join(setting.folder, "images")

    def files():
        if not os.path.exists(root):
            fill(root, count)
        return root

    def theirs(side):
        import torch
        torch.set_num_threads(1)
        return {"exact": python_epoch(side(files()), 2)}

    return {OURS: lambda: {"exact": our_epoch(setting.program("tests/image_benchmark"), files(), 2, "exact")},
            "torchvision on Pillow": lambda: theirs(pillow_side), "torchvision.io": lambda: theirs(tensor_side)}


BENCHMARK = Benchmark(
    "images", "JPEG files of 500 x 375: RandomResizedCrop(224), flipped, normalized, 2 workers", "loading.md",
    (Row("exact", "JPEG files, augmented, 2 workers", "images/s", "higher"),),
    sides, ("tests/image_benchmark",),
    {OURS: ("numpy", "PIL"), "torchvision on Pillow": ("torch", "torchvision", "PIL"), "torchvision.io": ("torch", "torchvision")}, rounds=3)

if __name__ == "__main__":
    main()
