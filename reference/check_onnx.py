"""Runs an exported model in ONNX Runtime, and compares it with what the program computes.

    lsoftmax train mnist --quick --precision f32 --out runs/quick
    lsoftmax export runs/quick --out quick.onnx
    lsoftmax export runs/quick --out features.onnx --embeddings
    lsoftmax embed runs/quick mnist --out features.npy --logits logits.npy
    python reference/check_onnx.py quick.onnx --check logits.npy
    python reference/check_onnx.py features.onnx --check features.npy

It needs onnx, onnxruntime and numpy, and nothing of this project but the exported file.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from mnist_images import TEST_IMAGES, mnist_test_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="what `lsoftmax export` wrote")
    parser.add_argument("--check", type=Path, required=True, metavar="ROWS.npy", help="what `lsoftmax embed` wrote")
    parser.add_argument("--images", type=Path, metavar="PIXELS.npy", help="N x C x H x W pixels instead of MNIST's test images")
    parser.add_argument("--mnist", type=Path, default=TEST_IMAGES, metavar="DIR")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of the largest number (1e-4; 3e-2 for a model trained in bf16)")
    arguments = parser.parse_args()

    onnx.checker.check_model(str(arguments.model), full_check=True)
    session = onnxruntime.InferenceSession(str(arguments.model), providers=["CPUExecutionProvider"])
    [images], [rows] = session.get_inputs(), session.get_outputs()
    print(f"{images.name} {images.shape} -> {rows.name} {rows.shape}")
    pixels = np.load(arguments.images) if arguments.images else mnist_test_images(arguments.mnist)
    pixels = pixels.astype(np.float32)
    # Batches of different sizes: the batch is a dynamic dimension.
    found = np.concatenate([session.run(None, {images.name: batch})[0] for batch in np.array_split(pixels, 39)])
    expected = np.load(arguments.check)
    if found.shape != expected.shape:
        sys.exit(f"{arguments.check}: holds {expected.shape}, but {found.shape} is wanted")
    difference, largest = np.abs(found - expected).max(), np.abs(expected).max()
    print(f"{len(found)} images: numbers up to {largest:.2f} differ by {difference:.1e} at most")
    print(f"the same largest column for {(found.argmax(1) == expected.argmax(1)).sum()}")
    if not difference <= arguments.tolerance * max(1.0, largest):
        sys.exit("that is more than rounding")


if __name__ == "__main__":
    main()
