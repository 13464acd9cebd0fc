"""Our ImageFolder and torchvision's on the same files: image_folder_compare.py PEER TRAINER"""
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    from PIL import Image
    from torchvision import datasets, transforms
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PEER, TRAINER = sys.argv.pop(1), sys.argv.pop(1)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def fill(root):
    """Names that are sorted otherwise by people, folders in folders, files that do not count."""
    numbers = numpy.random.default_rng(3)
    names = ["cats/10.jpg", "cats/9.PNG", "cats/more/z.jpeg", "cats/more-of/a.jpg", "Dogs/a b.jpg", "Dogs/a.png",
             "Dogs/B.jpg", "birds/x.jpg", "birds/y.JPG", "birds/w.png"]
    for place, name in enumerate(names):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        size = (80 + 31 * (place % 3), 120 - 17 * (place % 4), 3)
        waves = numpy.add.outer(numpy.arange(size[0]), numpy.arange(size[1]))[:, :, None] * (1 + numpy.arange(3)) % 256
        pixels = (0.8 * waves + numbers.integers(0, 50, size)).astype(numpy.uint8)
        Image.fromarray(pixels).save(path)
    with open(os.path.join(root, "cats", "notes.txt"), "w", encoding="utf-8") as file:
        file.write("no image")


class Reply:
    def __init__(self, mode, root, workers=0, shape=(56, 56)):
        done = subprocess.run([PEER, mode, root, str(workers)], capture_output=True, timeout=60)
        self.status, self.error = done.returncode, done.stderr.decode()
        if self.status:
            return
        head, self.data = done.stdout.split(b"data\n", 1)
        lines = [line.split(" ", 1) for line in head.decode().splitlines()]
        self.classes = [rest for kind, rest in lines if kind == "class"]
        self.files = [rest for kind, rest in lines if kind == "file"]
        self.bad = [rest for kind, rest in lines if kind == "bad"]
        count, values = len(self.files), 3 * shape[0] * shape[1]
        self.images = torch.frombuffer(bytearray(self.data[:4 * values * count]), dtype=torch.float32)
        self.images = self.images.reshape(count, 3, *shape)
        rest = self.data[4 * values * count:]
        self.valid = list(rest[-count:])
        kind = numpy.float32 if mode == "mix" else numpy.int64
        self.labels = numpy.frombuffer(rest[:-count], kind)


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def test_the_same_samples_and_pixels(self):
        fill(self.root)
        steps = [transforms.Resize(64), transforms.CenterCrop(56), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        theirs = datasets.ImageFolder(self.root, transforms.Compose(steps))
        ours = Reply("evaluate", self.root, 2)
        self.assertEqual(ours.status, 0, ours.error)
        self.assertEqual(ours.classes, theirs.classes)
        self.assertEqual(ours.files, [path for path, _ in theirs.samples])
        self.assertEqual(list(ours.labels), theirs.targets)
        for index, (image, _) in enumerate(theirs):
            self.assertTrue(torch.equal(ours.images[index], image), ours.files[index])

    def test_colors_are_those_of_the_center(self):
        whole, center = os.path.join(self.root, "whole"), os.path.join(self.root, "center")
        numbers = numpy.random.default_rng(4)
        for place, size in enumerate([(80, 120), (56, 56), (40, 90), (33, 41), (57, 55)]):
            image = Image.fromarray(numbers.integers(0, 256, (*size, 3)).astype(numpy.uint8))
            for root, picture in ((whole, image), (center, transforms.functional.center_crop(image, 56))):
                os.makedirs(os.path.join(root, "class"), exist_ok=True)
                picture.save(os.path.join(root, "class", f"{place}.png"))
        ours, theirs = Reply("jitter-center", whole), Reply("jitter", center)
        self.assertEqual(ours.status, 0, ours.error)
        self.assertTrue(torch.equal(ours.images, theirs.images))

    def test_draws_do_not_depend_on_workers(self):
        fill(self.root)
        alone, workers = (Reply("train", self.root, count, (48, 40)) for count in (0, 3))
        self.assertEqual(alone.status, 0, alone.error)
        self.assertEqual(alone.data, workers.data)
        self.assertTrue(torch.isfinite(alone.images).all())
        erased = [(image == 0).all(0).sum().item() for image in alone.images]
        self.assertTrue(any(count > 20 for count in erased) and any(count <= 20 for count in erased), erased)

    def test_mixing(self):
        fill(self.root)
        plain, mixed = Reply("evaluate", self.root), Reply("mix", self.root)
        self.assertEqual(mixed.status, 0, mixed.error)
        labels = torch.from_numpy(mixed.labels.reshape(len(plain.files), -1).copy())
        self.assertTrue(torch.allclose(labels.sum(1), torch.ones(len(plain.files))))
        kinds = set()
        for first in range(0, len(plain.files), 4):
            rows = slice(first, first + 4)
            images, other = plain.images[rows], plain.images[rows].roll(1, 0)
            hot = torch.nn.functional.one_hot(torch.tensor(plain.labels[rows]), len(plain.classes)).float()
            ours = mixed.images[rows]
            # What share of a row is its own, by its pixels; the labels have the same.
            taken = ((ours == other) & (images != other)).any(1).float().mean().item()
            pasted = ((ours == other) | (ours == images)).all().item()
            if pasted:
                kinds.add("cutmix")
                share = 1 - ((ours != images).any(1) | (images == other).all(1)).float().mean((1, 2)).min().item()
                self.assertLess(abs(share - (1 - taken)), 0.05)
            else:
                kinds.add("mixup")
                share = ((ours - other) / (images - other))[(images - other).abs() > 1].median().item()
                self.assertTrue(torch.allclose(ours, share * images + (1 - share) * other, atol=1e-4))
            expected = share * hot + (1 - share) * hot.roll(1, 0)
            self.assertTrue(torch.allclose(labels[rows], expected, atol=0.02), f"{labels[rows]} {expected}")
        self.assertTrue(kinds)

    def test_bad_images(self):
        fill(self.root)
        broken = os.path.join(self.root, "cats", "5.jpg")
        with open(os.path.join(self.root, "cats", "10.jpg"), "rb") as file:
            half = file.read()[:600]
        with open(broken, "wb") as file:
            file.write(half)
        strict = Reply("evaluate", self.root)
        self.assertEqual(strict.status, 1)
        self.assertIn(broken, strict.error)
        self.assertIn("truncated", strict.error)
        lenient = Reply("skip", self.root)
        self.assertEqual(lenient.status, 0, lenient.error)
        place = lenient.files.index(broken)
        self.assertEqual([line.split()[0] for line in lenient.bad], [str(place)])
        self.assertIn(broken, lenient.bad[0])
        self.assertEqual([index for index, good in enumerate(lenient.valid) if not good], [place])
        self.assertTrue(torch.equal(lenient.images[place], lenient.images[place + 1]))

    def test_image_classification(self):
        for part, count in (("train", 16), ("val", 6)):
            for channel, name in ((0, "red"), (2, "blue")):
                os.makedirs(folder := os.path.join(self.root, "data", part, name))
                for place in range(count):
                    pixels = numpy.random.default_rng(place).integers(0, 60, (40, 52, 3))
                    pixels[:, :, channel] += 150
                    Image.fromarray(pixels.astype(numpy.uint8)).save(os.path.join(folder, f"{place}.png"))
        with open(os.path.join(self.root, "data/train/red/bad.jpg"), "wb") as file:
            file.write(b"\xff\xd8\xff")
        words = [TRAINER, "--data", os.path.join(self.root, "data"), "--resize", "16", "--epochs", "3", "--no-progress",
                 "--output-dir", os.path.join(self.root, "out"), "--num-workers", "2"]
        strict = subprocess.run(words, capture_output=True, text=True, timeout=60)
        self.assertEqual(strict.returncode, 1)
        self.assertIn("bad.jpg': the JPEG file is truncated", strict.stderr)
        words += ["--skip-bad", "--normalize", "--horizontal-flip", "--color-jitter", "0.2", "--mixup-alpha", "0.2"]
        lenient = subprocess.run(words, capture_output=True, text=True, timeout=100)
        self.assertEqual(lenient.returncode, 0, lenient.stderr)
        self.assertIn("test accuracy 1.0000", lenient.stdout)
        self.assertIn("skipped 1 image(s)", lenient.stderr)
        self.assertIn("bad.jpg", lenient.stderr)

    def test_folders_that_are_none(self):
        empty = Reply("evaluate", self.root)
        self.assertIn("no class folder", empty.error)
        os.mkdir(os.path.join(self.root, "cats"))
        self.assertIn("no image for the class 'cats'", Reply("evaluate", self.root).error)
        self.assertIn("No such file", Reply("evaluate", os.path.join(self.root, "none")).error)


if __name__ == "__main__":
    unittest.main()
