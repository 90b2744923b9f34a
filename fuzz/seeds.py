"""Writes seeds for the fuzz targets: valid inputs to mutate.

    lsoftmax train my-tiny.toml --out run        # any small run; its model should be below 64 kB
    python fuzz/seeds.py run                     # fuzz/corpus/TARGET/…
"""

import gzip
import io
import json
import struct
import sys
import tarfile
import zlib
from pathlib import Path

FUZZ = Path(__file__).parent
ROOT = FUZZ.parent


def write(target: str, name: str, contents: bytes) -> None:
    folder = FUZZ / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(contents)


def parts(*files: bytes) -> bytes:
    """Several files in one input, as `parts` in src/lib.rs reads them."""
    return b"".join(struct.pack("<H", len(file)) + file for file in files[:-1]) + files[-1]


def npy(descr: str, shape: str, data: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def png(width: int, height: int, channels: int) -> bytes:
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    pixels = b"".join(b"\0" + bytes(range(width * channels)) for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def tar(names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"bytes"))
    return buffer.getvalue()


def main() -> None:
    run = Path(sys.argv[1])
    for name, descr, shape, data in [
        ("f4", "<f4", "(2, 3)", struct.pack("<6f", *range(6))),
        ("f8", ">f8", "(2, 2)", struct.pack(">4d", *range(4))),
        ("labels", "<i8", "(3,)", struct.pack("<3q", 1, 2, 3)),
        ("bias", "<f2", "(4,)", struct.pack("<4e", *range(4))),
    ]:
        write("npy", name, npy(descr, shape, data))
    images = struct.pack(">4I", 0x803, 2, 3, 2) + bytes(12)
    labels = struct.pack(">2I", 0x801, 2) + b"\x01\x09"
    write("idx", "plain", parts(images, labels, images, labels))
    write("idx", "gzipped", parts(*[gzip.compress(file, mtime=0) for file in (images, labels)] * 2))
    write("cifar", "ten", parts(bytes(3073), b"\x09" + bytes(3072)))
    write("cifar", "hundred", parts(bytes(3074), gzip.compress(b"\x13\x63" + bytes(3072), mtime=0)))
    write("archive", "set", tar(["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"]))
    write("archive", "outside", tar(["../outside", "/dev/shm/absolute", "cifar-100-binary/../../up"]))
    write("archive", "file", gzip.compress(images, mtime=0))
    for channels in (1, 3, 4):
        write("image", f"{channels}.png", png(6, 5, channels))
    for recipe in (ROOT / "crates" / "lsoftmax-lab" / "recipes").rglob("*.toml"):
        write("recipe", "-".join(recipe.parts[-2:]), recipe.read_bytes())
    write("recipe", "run", (run / "recipe.toml").read_bytes())
    for checkpoint in (run / "checkpoints").glob("*.checkpoint"):
        write("checkpoint", checkpoint.name, checkpoint.read_bytes()[:-32])  # the target appends the checksum
    header = b'step = 1\nmodel = 2\noptimiser = 1\n[state]\na = 1.5\n'
    write("checkpoint", "small", b"lsoftmax run v3\n" + struct.pack("<Q", len(header)) + header + b"abc")
    description = json.loads((run / "model.json").read_text())
    del description["weights_sha256"]
    write("model", "run", parts(json.dumps(description).encode(), (run / "model.safetensors").read_bytes()))
    log = (run / "metrics.jsonl").read_bytes()[:20000]
    write("run_files", "run", parts(log, (run / "summary.json").read_bytes()))
    write("faces", "pairs.txt", b"1\t1\nAbel_Pacheco\t1\t4\nAbel_Pacheco\t1\tAlan_Ball\t2\n")
    write("faces", "pairs.csv", b"left,right,same,fold\n0,1,1,0\n2,3,0,1\n")
    write("faces", "landmarks.csv", b"path,x1,y1,x2,y2,x3,y3,x4,y4,x5,y5\na.jpg,30,51,65,51,48,71,33,92,62,92\n")
    print(f"seeds in {FUZZ / 'corpus'}")


if __name__ == "__main__":
    main()
