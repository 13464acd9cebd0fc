"""Writes the images from which image_fuzzer begins: image_seeds.py FOLDER"""
import os
import sys

from PIL import Image

image = Image.linear_gradient("L").resize((24, 17)).convert("RGB")
for name, how in {"base.jpg": {}, "progressive.jpg": {"progressive": True}, "base.png": {}}.items():
    path = os.path.join(sys.argv[1], name)
    image.save(path, **how)
    # The first byte chooses the region.
    with open(path, "rb") as file:
        data = b"\0" + file.read()
    with open(path, "wb") as file:
        file.write(data)
image.quantize(7).save(path := os.path.join(sys.argv[1], "palette.png"))
with open(path, "rb") as file:
    data = b"\4" + file.read()
with open(path, "wb") as file:
    file.write(data)
