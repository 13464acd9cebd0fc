#!/usr/bin/env python3
"""Writes data/digits/ as IDX files from the copy of the data set that the scikit-learn package carries.

Usage: make_digits.py [FOLDER]    (needs scikit-learn and numpy; fetches nothing)
"""

import pathlib
import struct
import sys

import numpy
from sklearn.datasets import load_digits

UINT8 = 0x08


def write_idx(path, array):
    assert array.dtype == numpy.uint8
    header = struct.pack(">BBBB", 0, 0, UINT8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.tobytes())


def as_bytes(array):
    assert (array == array.astype(numpy.uint8)).all()
    return array.astype(numpy.uint8)


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    write_idx(folder / "digits-images-idx3-ubyte", as_bytes(digits.images))
    write_idx(folder / "digits-labels-idx1-ubyte", as_bytes(digits.target))


main()
