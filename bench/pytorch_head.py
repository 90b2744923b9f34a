"""PyTorch's linear + cross-entropy, forward and backward, in one process. `head.py` starts it.

    python bench/pytorch_head.py time --mode bf16 --samples 256 --features 512 --classes 1000
    python bench/pytorch_head.py memory --mode f32 --samples 256 --features 512 --classes 1000

`time` prints the median milliseconds of a step, `memory` its peak bytes above x, W and their gradients.
"""

import argparse
import contextlib
import json
import re
import statistics
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, linear

MODES = ["f32", "autocast", "bf16"]


def inputs(samples: int, features: int, classes: int, mode: str):
    """Features and weights as leaves, and labels. Autocast keeps them in f32, as training does."""
    dtype = torch.bfloat16 if mode == "bf16" else torch.float32
    torch.manual_seed(0)
    x = torch.randn(samples, features, dtype=dtype, requires_grad=True)
    weights = torch.empty(classes, features, dtype=dtype).normal_(std=features**-0.5).requires_grad_()
    return x, weights, torch.randint(classes, (samples,))


def step(x, weights, labels, mode: str):
    """One forward and backward, to x and W."""
    x.grad = None
    weights.grad = None
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if mode == "autocast" else contextlib.nullcontext()
    with autocast:
        loss = cross_entropy(linear(x, weights), labels)
    loss.backward()


def median_milliseconds(samples, features, classes, mode, seconds) -> float:
    """The median over at least three steps, after two to warm up."""
    tensors = inputs(samples, features, classes, mode)
    for _ in range(2):
        step(*tensors, mode)
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        step(*tensors, mode)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def peak_bytes(samples, features, classes, mode) -> int:
    """The growth of the resident set at its peak over three steps, less the size of the gradients.

    A small step first loads what every step needs: libraries, threads, kernels.
    """
    step(*inputs(8, 64, 16, mode), mode)
    x, weights, labels = inputs(samples, features, classes, mode)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present
    before = resident("VmRSS")
    for _ in range(3):
        step(x, weights, labels, mode)
    return max(0, resident("VmHWM") - before - x.grad.nbytes - weights.grad.nbytes)


def resident(field: str) -> int:
    """VmRSS (present) or VmHWM (peak) of this process, in bytes."""
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def main():
    parser = argparse.ArgumentParser(description="Time or weigh PyTorch's linear + cross-entropy.")
    parser.add_argument("measure", choices=["time", "memory"])
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--mode", choices=MODES, default="f32")
    parser.add_argument("--seconds", type=float, default=1.0, help="for time")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    sizes = (arguments.samples, arguments.features, arguments.classes)
    if arguments.measure == "time":
        result = {"milliseconds": median_milliseconds(*sizes, arguments.mode, arguments.seconds)}
    else:
        result = {"peak_bytes": peak_bytes(*sizes, arguments.mode)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
