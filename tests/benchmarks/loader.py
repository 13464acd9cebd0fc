"""Images a second, ours and PyTorch's: loader.py PROGRAM [--images N] [--epochs N] [--workers N ...]

Both sides read the same kind of images (32 x 32 x 3 bytes in memory, shuffled, batches of 128), cut a window of 32 x 32
out of the image with 4 pixels of padding, mirror half of them, and turn them into normalised float32. PyTorch's side is
torchvision's usual pipeline (PIL images, RandomCrop, RandomHorizontalFlip, ToTensor, Normalize) where torchvision is
installed, and the same steps on tensors otherwise. For each number of workers the sides take turns, epoch by epoch of
theirs; the last line compares each side's best number of workers.
"""
import argparse
import functools
import os
import random
import statistics
import subprocess
import sys
import time

from harness.benchmark import OURS, Benchmark, Row

BATCH_SIZE = 128
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def tensor_steps():
    import torch
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def steps(pixels):
        image = torch.nn.functional.pad(torch.from_numpy(pixels).permute(2, 0, 1), (4, 4, 4, 4))
        top, left = random.randrange(9), random.randrange(9)
        image = image[:, top:top + 32, left:left + 32]
        if random.random() < 0.5:
            image = image.flip(2)
        return image.float().div_(255).sub_(mean).div_(std)
    return steps


def torchvision_steps():
    from PIL import Image
    from torchvision import transforms
    composed = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(),
                                   transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    return lambda pixels: composed(Image.fromarray(pixels))


def python_steps():
    try:
        return "torchvision", torchvision_steps()
    except ImportError:
        return "tensors", tensor_steps()


class Images:
    """A data set of PyTorch's: it asks for these two methods alone."""

    def __init__(self, count, steps):
        import torch
        self.pixels = torch.randint(256, (count, 32, 32, 3), dtype=torch.uint8).numpy()
        self.labels = torch.randint(10, (count,)).tolist()
        self.steps = steps

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.steps(self.pixels[index]), self.labels[index]


def python_epochs(images, workers, epochs):
    """The first epoch, which starts the workers, is not timed."""
    from torch.utils.data import DataLoader
    loader = DataLoader(images, BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    speeds = []
    for _ in range(epochs + 1):
        begin = time.perf_counter()
        rows = sum(len(labels) for _, labels in loader)
        speeds.append(rows / (time.perf_counter() - begin))
    return speeds[1:]


def our_epochs(program, count, workers, epochs):
    words = [program, str(workers), str(count), str(BATCH_SIZE), str(epochs)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def compare(options, workers, images):
    ours, theirs = [], []
    for _ in range(options.rounds):
        theirs += python_epochs(images, workers, options.epochs)
        ours += our_epochs(options.program, 10 * options.images, workers, 3 * options.epochs)
    return statistics.median(ours), statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=5000, help="in an epoch of Python's; ours has ten times as many")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=sorted({0, 1, 2, os.cpu_count()}))
    options = parser.parse_args()
    import torch
    torch.set_num_threads(1)
    name, steps = python_steps()
    images = Images(options.images, steps)
    print(f"images a second, medians; PyTorch {torch.__version__} with {name}")
    best = [0.0, 0.0]
    for workers in options.workers:
        pair = compare(options, workers, images)
        best = [max(old, new) for old, new in zip(best, pair)]
        print(f"{workers:3d} workers  ours {pair[0]:10.0f}  PyTorch {pair[1]:8.0f}  ratio {pair[0] / pair[1]:6.1f}",
              flush=True)
    print(f"best          ours {best[0]:10.0f}  PyTorch {best[1]:8.0f}  ratio {best[0] / best[1]:6.1f}")


@functools.lru_cache(maxsize=None)
def python_images(count):
    import torch
    torch.set_num_threads(1)
    return Images(count, torchvision_steps())


def sides(setting):
    count = 2000 if setting.quick else 5000

    def ours():
        return {f"workers_{workers}": our_epochs(setting.program("tests/loader_benchmark"), 10 * count, workers, 3) for workers in WORKERS}

    def theirs():
        return {f"workers_{workers}": python_epochs(python_images(count), workers, 1) for workers in WORKERS}

    return {OURS: ours, "torchvision": theirs}


WORKERS = (0, 1, 2)
BENCHMARK = Benchmark(
    "loader", "images of 32 x 32 from memory: cropped, flipped, normalized, in shuffled batches of 128", "loading.md",
    tuple(Row(f"workers_{workers}", f"small augmented images, {workers} workers", "images/s", "higher") for workers in WORKERS),
    sides, ("tests/loader_benchmark",), {"torchvision": ("torch", "torchvision", "PIL")})

if __name__ == "__main__":
    sys.exit(main())
