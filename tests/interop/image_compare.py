"""Our images and Pillow's, byte for byte: image_compare.py PEER

Pillow makes the files. The peer decodes, resizes and adjusts them; Pillow and torchvision do the same.
"""
import io
import os
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    from PIL import Image, features
    from torchvision import transforms
    from torchvision.transforms import functional
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PEER = sys.argv.pop(1)


def picture(width, height, seed=0):
    """Waves and noise: neither flat nor noise alone, so that chroma and rounding show."""
    numbers = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[:height, :width]
    planes = [127 + 90 * numpy.sin(x / (7 + 5 * c) + c) * numpy.cos(y / (11 - 2 * c)) for c in range(3)]
    pixels = numpy.stack(planes, 2) + numbers.normal(0, 20, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


class Peer:
    def __init__(self):
        self.process = subprocess.Popen([PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode()
        if not head.startswith("ok "):
            return head
        width, height = map(int, head.split()[1:])
        data = self.process.stdout.read(width * height * 3)
        return numpy.frombuffer(data, numpy.uint8).reshape(height, width, 3)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.peer = Peer()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.peer.close()
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def saved(self, image, name, **how):
        image.save(self.path(name), **how)
        return self.path(name)

    def same(self, ours, theirs, what):
        self.assertIsInstance(ours, numpy.ndarray, f"{what}: {ours}")
        theirs = numpy.asarray(theirs)
        self.assertEqual(ours.shape, theirs.shape, what)
        different = (ours != theirs).any(2)
        self.assertEqual(int(different.sum()), 0, f"{what}: first at {numpy.argwhere(different)[:1]}")

    def decodes(self, path, what):
        with Image.open(path) as image:
            self.same(self.peer("region", path, 0, 0, 0, 0, 1), image.convert("RGB"), what)

    def jpegs(self):
        for width, height in [(1, 1), (7, 5), (8, 8), (17, 33), (131, 97), (250, 188)]:
            for subsampling in (0, 1, 2):
                for progressive in (False, True):
                    name = f"{width}_{height}_{subsampling}_{progressive}.jpg"
                    yield self.saved(picture(width, height), name, quality=85, subsampling=subsampling,
                                     progressive=progressive)

    def test_jpeg(self):
        for path in self.jpegs():
            self.decodes(path, path)
        for mode in ("L", "CMYK"):
            self.decodes(self.saved(picture(60, 41).convert(mode), mode + ".jpg"), mode)
        for quality in (5, 30, 100):
            self.decodes(self.saved(picture(90, 70), f"q{quality}.jpg", quality=quality), f"quality {quality}")
        self.decodes(self.saved(picture(200, 120), "restarts.jpg", restart_marker_blocks=3), "restart markers")

    def test_a_part_of_a_jpeg_is_a_part_of_the_whole(self):
        numbers = random.Random(1)
        for path in self.jpegs():
            whole = self.peer("region", path, 0, 0, 0, 0, 1)
            height, width = whole.shape[:2]
            for _ in range(8):
                w, h = numbers.randint(1, width), numbers.randint(1, height)
                x, y = numbers.randint(0, width - w), numbers.randint(0, height - h)
                self.same(self.peer("region", path, x, y, w, h, 1), whole[y:y + h, x:x + w], f"{path} {x} {y} {w} {h}")
            half = self.peer("region", path, 0, 0, 0, 0, 2)
            self.same(self.peer("region", path, x, y, w, h, 2), half[y // 2:-(-(y + h) // 2), x // 2:-(-(x + w) // 2)],
                      f"{path} {x} {y} {w} {h} at half the size")

    def test_scaled_jpeg(self):
        compared = 0
        for path in self.jpegs():
            for scale in (2, 4, 8):
                with Image.open(path) as image:
                    size = tuple(-(-side // scale) for side in image.size)
                    image.draft("RGB", (max(image.width // scale, 1), max(image.height // scale, 1)))
                    if image.size == size:  # Pillow chooses another scale for the smallest.
                        self.same(self.peer("region", path, 0, 0, 0, 0, scale), image, f"{path} 1/{scale}")
                        compared += 1
        self.assertGreater(compared, 50)

    def test_png(self):
        color = picture(75, 52)
        alpha = color.copy()
        alpha.putalpha(picture(75, 52, 1).convert("L"))
        clear = color.quantize(17)
        kinds = {"rgb": color, "rgba": alpha, "l": color.convert("L"), "la": alpha.convert("LA"),
                 "bits": color.convert("1"), "palette": color.quantize(200), "palette4": color.quantize(9),
                 "palette2": color.quantize(4), "palette1": color.quantize(2)}
        for name, image in kinds.items():
            self.decodes(self.saved(image, name + ".png"), name)
        self.decodes(self.saved(clear, "clear.png", transparency=3), "palette with a transparent color")
        self.decodes(self.saved(color, "key.png", transparency=(1, 2, 3)), "a transparent color")
        self.decodes(self.saved(color.convert("L"), "lkey.png", transparency=3), "a transparent grey")
        deep = Image.fromarray(numpy.arange(10000, dtype=numpy.uint16).reshape(100, 100))
        self.decodes(self.saved(deep, "deep.png"), "grey of 16 bits")
        self.decodes(self.saved(Image.fromarray(numpy.array([[0, 255, 256, 65535]], numpy.uint16)), "row.png"), "a row of 16 bits")

    def test_resize(self):
        path = self.saved(picture(131, 97), "resize.png")
        with Image.open(path) as image:
            for box in [(0, 0, 131, 97), (3, 5, 100, 80), (60, 40, 10, 9), (0, 7, 131, 20)]:
                x, y, w, h = box
                for size in [(64, 64), (224, 224), (w, 30), (30, h), (w, h), (1, 1), (7, 300)]:
                    expected = functional.resized_crop(image, y, x, h, w, size[::-1])
                    self.same(self.peer("resize", path, *box, *size), expected, f"{box} to {size}")
        # Rows go first where more of them are lost than twice the columns.
        path = self.saved(picture(90, 420), "tall.png")
        with Image.open(path) as image:
            for size in [(63, 34), (60, 359), (60, 360), (90, 17), (200, 200), (200, 420), (30, 299), (30, 301)]:
                expected = functional.resize(image, size[::-1])
                self.same(self.peer("resize", path, 0, 0, 90, 420, *size), expected, f"tall to {size}")

    def test_filters(self):
        filters = [Image.BILINEAR, Image.BICUBIC, Image.LANCZOS, Image.BOX, Image.HAMMING]
        # Black beside white: where a filter is negative, results are cut at 0 and 255.
        edges = Image.fromarray((numpy.indices((97, 131, 1)).sum(0) // 9 % 2 * 255).astype(numpy.uint8).repeat(3, 2))
        for name, image in (("picture", picture(131, 97)), ("edges", edges)):
            path = self.saved(image, f"filters-{name}.png")
            for number, kind in enumerate(filters):
                for size in [(64, 64), (224, 224), (131, 30), (30, 97), (1, 1), (300, 60)]:
                    expected = image.resize(size, kind)
                    self.same(self.peer("resize", path, 0, 0, 131, 97, *size, number), expected, f"{name}, {kind} to {size}")

    def test_colors(self):
        colors = self.saved(picture(201, 151), "colors.png")
        every = numpy.stack(numpy.meshgrid(*[numpy.arange(0, 256, 5)] * 3), 3).reshape(-1, 52, 3).astype(numpy.uint8)
        for path in (colors, self.saved(Image.fromarray(every), "every.png")):
            with Image.open(path) as image:
                for what in ("brightness", "contrast", "saturation"):
                    for factor in (0.0, 0.31, 0.6, 1.0, 1.37, 1.9):
                        expected = getattr(functional, "adjust_" + what)(image, factor)
                        self.same(self.peer(what, path, factor), expected, f"{what} {factor}")
                for shift in (-0.5, -0.13, 0.0, 0.07, 0.33, 0.5):
                    self.same(self.peer("hue", path, shift), functional.adjust_hue(image, shift), f"hue {shift}")

    def same_distribution(self, ours, theirs, what):
        """Kolmogorov and Smirnov's test at one in a million."""
        both = numpy.sort(numpy.concatenate([ours, theirs]))
        shares = [numpy.searchsorted(numpy.sort(side), both, side="right") / len(side) for side in (ours, theirs)]
        distance = numpy.abs(shares[0] - shares[1]).max()
        self.assertLess(distance, 2.7 * (1 / len(ours) + 1 / len(theirs)) ** 0.5, what)

    def draws(self, what, width, height, count, columns=4):
        words = self.peer(what, width, height, count).split()
        self.assertEqual(words[0], "draws")
        return numpy.array(words[1:], float).reshape(-1, columns)

    def test_distributions(self):
        count = 4000
        torch.manual_seed(1)
        for width, height in [(500, 375), (64, 600), (900, 50)]:
            image = Image.new("L", (width, height))
            crops = [transforms.RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(count)]
            theirs = numpy.array([(left, top, w, h) for top, left, h, w in crops], float)
            ours = self.draws("crops", width, height, count)
            self.assertTrue((ours[:, :2] >= 0).all() and (ours[:, 2:] >= 1).all())
            self.assertTrue((ours[:, :2] + ours[:, 2:] <= (width, height)).all())
            for column, name in enumerate(["left", "top", "width", "height"]):
                self.same_distribution(ours[:, column], theirs[:, column], f"crop of {width} x {height}: {name}")
        tensor = torch.zeros(3, 90, 120)
        erasings = [transforms.RandomErasing.get_params(tensor, (0.02, 0.33), (0.3, 3.3), [0.0]) for _ in range(count)]
        theirs = numpy.array([(left, top, w, h) for top, left, h, w, _ in erasings], float)
        ours = self.draws("erasings", 120, 90, count)
        for column, name in enumerate(["left", "top", "width", "height"]):
            self.same_distribution(ours[:, column], theirs[:, column], f"erasing: {name}")
        betas = torch.distributions.Beta(0.4, 0.4).sample((count,)).numpy()
        self.same_distribution(self.draws("betas", 1, 1, count, 1)[:, 0], betas, "beta")

    def refuses(self, path, data, text):
        with open(path, "wb") as file:
            file.write(data)
        reply = self.peer("region", path, 0, 0, 0, 0, 1)
        self.assertIsInstance(reply, str, f"{path} was decoded")
        self.assertIn(path, reply)
        self.assertIn(text, reply)

    def test_bad_files(self):
        encoded = {}
        for kind in ("jpeg", "png"):
            memory = io.BytesIO()
            picture(120, 90).save(memory, kind)
            encoded[kind] = memory.getvalue()
        for kind, data in encoded.items():
            for share in (0.3, 0.9):
                self.refuses(self.path("cut." + kind), data[:int(len(data) * share)], "truncated")
        self.refuses(self.path("empty.jpg"), b"", "empty")
        self.refuses(self.path("text.jpg"), b"no image", "neither a JPEG nor a PNG")
        broken = bytearray(encoded["png"])
        broken[len(broken) // 2] ^= 0x55
        self.refuses(self.path("broken.png"), bytes(broken), "damaged")
        memory = io.BytesIO()
        Image.new("1", (20000, 20000)).save(memory, "png")
        self.refuses(self.path("bomb.png"), memory.getvalue(), "20000 x 20000 pixels, more than the limit")
        memory = io.BytesIO()
        Image.new("L", (5000, 5000)).save(memory, "jpeg")
        self.refuses(self.path("bomb.jpg"), memory.getvalue(), "5000 x 5000 pixels, more than the limit")


if __name__ == "__main__":
    print("Pillow's libjpeg-turbo:", features.version("libjpeg_turbo"))
    unittest.main(verbosity=1)
