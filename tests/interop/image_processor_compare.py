"""How images are prepared for a model, here and in transformers: image_processor_compare.py PEER TRAINER

PEER (image_processor_peer) prepares images as a preprocessor_config.json says. Python's processors on Pillow's images must
give the same numbers but for the rounding of float32, and those on tensors, which resize otherwise, numbers that differ by
at most two of 255 levels. TRAINER (image_classification) trains a folder of transformers, which opens what it saves.
Leaves with 77 (skipped) where transformers is not installed.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy
    import torch
    import transformers
    from PIL import Image
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PEER, TRAINER = sys.argv.pop(1), sys.argv.pop(1)
PROCESSORS = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 64, "width": 64}, "resample": 2, "do_resize": True},
    "vit_old": {"feature_extractor_type": "ViTFeatureExtractor", "size": 48, "resample": 3, "do_normalize": True,
                "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "vit_wide": {"image_processor_type": "ViTImageProcessorFast", "size": [40, 72], "resample": 5, "do_normalize": False},
    "deit": {"feature_extractor_type": "DeiTFeatureExtractor", "size": 73, "crop_size": 64, "do_center_crop": True, "resample": 3},
    "deit_small": {"image_processor_type": "DeiTImageProcessor", "size": {"height": 30, "width": 90},
                   "crop_size": {"height": 41, "width": 44}, "do_rescale": True, "rescale_factor": 0.0078125},
    "dinov2": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 72}, "crop_size": {"height": 63, "width": 64},
               "do_convert_rgb": True, "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "dinov2_plain": {"image_processor_type": "BitImageProcessor", "size": 61, "do_center_crop": False, "resample": 4},
    "convnext": {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 64, "crop_pct": 0.875, "resample": 3},
    "convnext_large": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, "crop_pct": 1.0},
    "raw": {"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_rescale": False, "do_normalize": False, "kept": [1]},
}


def write_images(folder):
    os.makedirs(folder)
    numbers = numpy.random.default_rng(5)
    for place, (height, width) in enumerate([(97, 131), (131, 96), (64, 64), (40, 57)]):
        y, x = numpy.mgrid[:height, :width]
        planes = [127 + 90 * numpy.sin(x / (7 + 5 * c) + c) * numpy.cos(y / (11 - 2 * c)) for c in range(3)]
        pixels = numpy.stack(planes, 2) + numbers.normal(0, 20, (height, width, 3))
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(os.path.join(folder, f"{place}.{'jpg' if place % 2 else 'png'}"))


class Processors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.root.cleanup)
        cls.images = os.path.join(cls.root.name, "images")
        write_images(os.path.join(cls.images, "class"))

    def compare(self, name, settings):
        folder, out = (os.path.join(self.root.name, name + part) for part in ("", "-out"))
        os.makedirs(folder)
        os.makedirs(out)
        with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as file:
            json.dump(settings, file)
        subprocess.run([PEER, folder, self.images, out], check=True, timeout=100)
        with open(os.path.join(out, "preprocessor_config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), settings)
        ours = load_file(os.path.join(out, "pixels.safetensors"))
        slow = transformers.AutoImageProcessor.from_pretrained(out, backend="pil")
        fast = transformers.AutoImageProcessor.from_pretrained(out, backend="torchvision")
        level = (slow.rescale_factor if slow.do_rescale else 1) / (min(slow.image_std) if slow.do_normalize else 1)
        for image in sorted(os.listdir(os.path.join(self.images, "class"))):
            with Image.open(os.path.join(self.images, "class", image)) as picture:
                rgb = picture.convert("RGB")
            here = ours[image]
            self.assertTrue(torch.equal(here, ours["memory/" + image]) or (here - ours["memory/" + image]).abs().max() < 1e-5 * level * 255)
            theirs = torch.as_tensor(numpy.asarray(slow(rgb, return_tensors="np")["pixel_values"][0], dtype=numpy.float32))
            self.assertEqual(here.shape, theirs.shape, f"{name} {image}")
            # Padding of an odd number of pixels is on the other side in Python's slow processors than in its fast ones.
            is_padded = settings.get("crop_size") and min(here.shape[1:]) and name == "deit_small"
            if not is_padded:
                self.assertLess((here - theirs).abs().max().item(), 0.01 * level, f"{name} {image}")
            # torchvision has neither the box filter nor Hamming's for tensors.
            if settings.get("resample") in (4, 5):
                continue
            tensors = fast(rgb, return_tensors="pt")["pixel_values"][0]
            self.assertEqual(here.shape, tensors.shape, f"{name} {image}")
            self.assertLess((here - tensors).abs().max().item(), 2.01 * level, f"{name} {image}")

    def test_processors(self):
        for name, settings in PROCESSORS.items():
            with self.subTest(name):
                self.compare(name, settings)


class Trained(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write_data(self):
        for part, count in (("train", 16), ("val", 6)):
            for channel, name in ((0, "red"), (2, "blue")):
                os.makedirs(folder := os.path.join(self.root, "data", part, name))
                for place in range(count):
                    pixels = numpy.random.default_rng(place).integers(0, 60, (40, 52, 3))
                    pixels[:, :, channel] += 150
                    Image.fromarray(pixels.astype(numpy.uint8)).save(os.path.join(folder, f"{place}.png"))

    def test_a_folder_there_and_back(self):
        self.write_data()
        model, out = os.path.join(self.root, "model"), os.path.join(self.root, "out")
        torch.manual_seed(0)
        config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32,
                                        patch_size=8, num_labels=7)
        transformers.ViTForImageClassification(config).save_pretrained(model)
        transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(model)
        done = subprocess.run([TRAINER, "--data", os.path.join(self.root, "data"), "--model", model, "--epochs", "6", "--learning-rate", "2e-3",
                               "--no-progress", "--device", "cpu", "--output-dir", out, "--horizontal-flip"],
                              capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("new: classifier.weight, classifier.bias", done.stdout)
        self.assertIn("test accuracy 1.0000", done.stdout)
        trained, report = transformers.AutoModelForImageClassification.from_pretrained(out, output_loading_info=True)
        self.assertFalse(any(report.values()), report)
        self.assertEqual(trained.config.id2label, {0: "blue", 1: "red"})
        processor = transformers.AutoImageProcessor.from_pretrained(out)
        for name in ("blue", "red"):
            with Image.open(os.path.join(self.root, "data", "val", name, "3.png")) as image:
                logits = trained.eval()(**processor(image, return_tensors="pt")).logits
            self.assertEqual(trained.config.id2label[logits.argmax().item()], name)


if __name__ == "__main__":
    unittest.main()
