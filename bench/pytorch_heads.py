"""pytorch-metric-learning's heads, forward and backward in f32, in one process. `heads.py` starts it.

    python bench/pytorch_heads.py --samples 256 --features 512 --classes 10572

Prints the median milliseconds of a step of every head, and of PyTorch's linear + cross-entropy ("softmax").
"""

import argparse
import json
import math
import statistics
import time

import torch
from pytorch_metric_learning.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    LargeMarginSoftmaxLoss,
    NormalizedSoftmaxLoss,
    SphereFaceLoss,
)
from torch.nn.functional import cross_entropy, linear


class Softmax(torch.nn.Module):
    """PyTorch's linear + cross-entropy."""

    def __init__(self, num_classes, embedding_size):
        super().__init__()
        self.W = torch.nn.Parameter(torch.empty(num_classes, embedding_size).normal_(std=embedding_size**-0.5))

    def forward(self, x, labels):
        return cross_entropy(linear(x, self.W), labels)


HEADS = {
    "softmax": Softmax,
    "l-softmax": lambda **sizes: LargeMarginSoftmaxLoss(margin=4, scale=1, **sizes),
    "a-softmax": lambda **sizes: SphereFaceLoss(margin=4, scale=1, **sizes),
    "cosface": lambda **sizes: CosFaceLoss(margin=0.35, scale=64, **sizes),
    "arcface": lambda **sizes: ArcFaceLoss(margin=math.degrees(0.5), scale=64, **sizes),
    "normsoftmax": lambda **sizes: NormalizedSoftmaxLoss(temperature=1 / 20, **sizes),
}


def median_milliseconds(head, samples: int, features: int, classes: int, seconds: float) -> float:
    """The median over at least three steps, after one to warm up."""
    torch.manual_seed(0)
    x = torch.randn(samples, features, requires_grad=True)
    labels = torch.randint(classes, (samples,))
    loss = head(num_classes=classes, embedding_size=features)
    times = []
    end = math.inf
    while len(times) < 4 or time.perf_counter() < end:
        x.grad = None
        loss.W.grad = None
        start = time.perf_counter()
        loss(x, labels).backward()
        times.append(time.perf_counter() - start)
        if len(times) == 1:
            end = time.perf_counter() + seconds
    return 1e3 * statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description="Time pytorch-metric-learning's heads.")
    for name in ["samples", "features", "classes", "threads"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = (options.samples, options.features, options.classes, options.seconds)
    print(json.dumps({name: median_milliseconds(head, *sizes) for name, head in HEADS.items()}))


if __name__ == "__main__":
    main()
