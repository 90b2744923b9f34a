"""MNIST's test images, from the files that are part of this project."""

import gzip
from pathlib import Path

import numpy as np

TEST_IMAGES = Path(__file__).parent.parent / "crates" / "lsoftmax-data" / "data" / "mnist"


def mnist_test_images(directory: Path = TEST_IMAGES) -> np.ndarray:
    """N x 1 x 28 x 28 pixels, 0 to 255."""
    with gzip.open(directory / "t10k-images-idx3-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
