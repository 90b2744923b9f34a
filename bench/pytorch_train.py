"""Training and inference of a named network in PyTorch, in one mode. `train.py` starts it.

    python bench/pytorch_train.py time --network cifar10 --mode "bf16 channels-last" --batch 256 --steps 3
    python bench/pytorch_train.py memory --network cifar10 --mode "f32 nchw" --batch 256

`time` prints a JSON line for each step: {"measure": "inference" or "training", "seconds": ...}. One step of each
warms up and is not printed. A step that takes longer than --limit seconds ends the run, with a line that says
"cut_short". `memory` prints the peak bytes of a training step, above images, parameters, gradients and momentum.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import torch

from pytorch_head import resident

sys.path.append(str(Path(__file__).resolve().parent.parent / "reference"))
from definition import sample_losses  # noqa: E402
from trunk import NETWORKS, sgd, trunk  # noqa: E402

MODES = ["f32 nchw", "f32 channels-last", "bf16 nchw", "bf16 channels-last"]
MARGIN, LAMBDA = 4, 5.0


class Training:
    """A network with its head and optimiser, and a batch of random images."""

    def __init__(self, name: str, mode: str, batch: int, classes: int):
        torch.manual_seed(0)
        network = NETWORKS[name]
        self.precision, layout = mode.split(" ")
        self.layout = torch.channels_last if layout == "channels-last" else torch.contiguous_format
        self.trunk = trunk(network).to(memory_format=self.layout)
        self.head = torch.empty(classes, network.features).normal_(std=network.features**-0.5).requires_grad_()
        self.optimiser = sgd([*self.trunk.parameters(), self.head], 0.01, momentum=0.9, weight_decay=5e-4)
        self.images = (torch.rand(batch, *network.input) - 0.5).to(memory_format=self.layout)
        self.labels = torch.randint(classes, (batch,))

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """The trunk, under autocast for bf16. The features are f32 again."""
        bf16 = self.precision == "bf16"
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            return self.trunk(images).float()

    def step(self, images: torch.Tensor, labels: torch.Tensor):
        """One training step: forward, L-Softmax, backward, SGD. The head, a small part of the work, is in f32."""
        loss = sample_losses(self.features(images), self.head, None, labels, MARGIN, LAMBDA).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def train(self):
        self.trunk.train()
        self.step(self.images, self.labels)

    def infer(self):
        self.trunk.eval()
        with torch.no_grad():
            self.features(self.images)


def say(**fields):
    print(json.dumps(fields), flush=True)


def time_steps(measure: str, step, steps: int, limit: float):
    """A line for each step after the first. A timer ends the process if a step takes too long."""

    def give_up():
        say(measure=measure, cut_short=limit)
        os._exit(0)

    for number in range(1 + steps):
        timer = threading.Timer(limit, give_up)
        timer.start()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        timer.cancel()
        if number > 0:
            say(measure=measure, seconds=seconds)


def peak_bytes(training: Training) -> int:
    """The growth of the resident set at its peak over two steps.

    A step on two images first makes what every step finds: libraries, threads, gradients, momentum.
    """
    training.step(training.images[:2], training.labels[:2])
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present
    before = resident("VmRSS")
    for _ in range(2):
        training.train()
    return max(0, resident("VmHWM") - before)


def main():
    parser = argparse.ArgumentParser(description="Time or weigh training in PyTorch.")
    parser.add_argument("measure", choices=["time", "memory"])
    parser.add_argument("--network", choices=list(NETWORKS), required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="of inference and of training")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one step")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    training = Training(arguments.network, arguments.mode, arguments.batch, arguments.classes)
    if arguments.measure == "memory":
        say(peak_bytes=peak_bytes(training))
        return
    time_steps("inference", training.infer, arguments.steps, arguments.limit)
    time_steps("training", training.train, arguments.steps, arguments.limit)


if __name__ == "__main__":
    main()
