#!/usr/bin/env python3
"""Writes the small tar files from which tar_fuzzer starts: tar_seeds.py FOLDER

In front of each are the two bytes that tar_fuzzer takes: checksums as they are, no row passed over.
"""
import io
import os
import sys
import tarfile

MEMBERS = [("0.jpg", b"picture"), ("0.cls", b"7"), ("d" * 60 + "/" + "n" * 80 + ".txt", b"a long name"), ("1.seg.png", b"x")]

for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT), ("ustar", tarfile.USTAR_FORMAT)):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for path, data in MEMBERS:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            if name == "pax":
                info.pax_headers = {"size": str(len(data))}
            tar.addfile(info, io.BytesIO(data))
    with open(os.path.join(sys.argv[1], name + ".tar"), "wb") as file:
        file.write(b"\1\0" + out.getvalue().rstrip(b"\0").ljust(512, b"\0") + bytes(1536))
