"""Loads a trained model into plain PyTorch, and prints its logits of MNIST's test images.

    lsoftmax train mnist --quick --out runs/quick
    lsoftmax embed runs/quick mnist --out features.npy --logits logits.npy
    python reference/load_export.py runs/quick --check logits.npy

It needs torch, numpy and safetensors, and nothing of this project but the run's model.json and model.safetensors.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from mnist_images import TEST_IMAGES, mnist_test_images


def convolution(channels: int, filters: int, kernel, stride: int = 1, padding: int = 0, bias: bool = False) -> list:
    """A convolution and, unless it has a bias, batch norm."""
    layers = [nn.Conv2d(channels, filters, kernel, stride, padding=padding, bias=bias)]
    return layers if bias else [*layers, nn.BatchNorm2d(filters)]


def activation(kind: str, filters: int) -> list:
    return {"prelu": [nn.PReLU(filters)], "relu": [nn.ReLU()], "none": []}[kind]


class Block(nn.Module):
    """Two convolutions, and their input added to their output. The parts are in the order of the units."""

    def __init__(self, channels: int, stage: dict, stride: int):
        super().__init__()
        filters, kernel, kind = stage["filters"], stage["kernel"], stage.get("activation", "prelu")
        start = convolution(channels, filters, kernel, stride, kernel // 2)
        self.start = nn.Sequential(*start, *activation(kind, filters))
        changes = stride != 1 or channels != filters
        self.shortcut = nn.Sequential(*(convolution(channels, filters, 1, stride) if changes else []))
        self.end = nn.Sequential(*convolution(filters, filters, kernel, 1, kernel // 2))
        self.activation = nn.Sequential(*activation(kind, filters))
        self.adds_first = stage["residual"] == "resnet"

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        end, shortcut = self.end(self.start(values)), self.shortcut(values)
        return self.activation(end + shortcut) if self.adds_first else self.activation(end) + shortcut


def build(network: dict, classes: int) -> nn.Sequential:
    """Images to logits, as model.json describes the network."""
    channels, height, width = network["input"]
    layers = []
    for stage in network["stages"]:
        filters, kernel, is_residual = stage["filters"], stage["kernel"], "residual" in stage
        for unit in range(0, stage["units"], 2 if is_residual else 1):
            stride = stage["stride"] if unit == 0 else 1
            if is_residual:
                layers.append(Block(channels, stage, stride))
            else:
                layers += convolution(channels, filters, kernel, stride, kernel // 2)
                layers += activation(stage.get("activation", "prelu"), filters)
            channels = filters
            height, width = ((side + 2 * (kernel // 2) - kernel) // stride + 1 for side in (height, width))
        if stage["pool"]:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            height, width = math.ceil(height / 2), math.ceil(width / 2)
    features = network["features"]
    size, kind = features["size"], features["activation"]
    if features.get("layer") == "average":
        layers.append(nn.AdaptiveAvgPool2d(1))
    else:
        layers += convolution(channels, size, (height, width), bias=kind == "none")  # sees the whole map
        layers += activation(kind, size)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, classes, bias=False))


def load(run: Path) -> tuple[nn.Sequential, dict]:
    """The model of a run, ready to infer, and its description."""
    description = json.loads((run / "model.json").read_text())
    model = build(description["network"], description["classes"]).eval()
    tensors = load_file(run / "model.safetensors")
    log_scale = tensors.pop("head.log_scale", None)
    state, unit = {}, -1
    for place, layer in model.named_modules():
        unit += isinstance(layer, nn.Conv2d)  # a unit begins with its convolution
        if isinstance(layer, nn.Linear):
            names = {"weight": "head.weight"}
        elif isinstance(layer, nn.Conv2d):
            names = {"weight": f"units.{unit}.weight", "bias": f"units.{unit}.bias"}
        elif isinstance(layer, nn.BatchNorm2d):
            names = {"weight": f"units.{unit}.gamma", "bias": f"units.{unit}.beta"}
            names |= {name: f"units.{unit}.{name}" for name in ("running_mean", "running_var")}
            state[f"{place}.num_batches_tracked"] = layer.num_batches_tracked
        elif isinstance(layer, nn.PReLU):
            names = {"weight": f"units.{unit}.slope"}
        else:
            names = {}
        state |= {f"{place}.{name}": tensors.pop(ours) for name, ours in names.items() if ours in tensors}
    if tensors:
        sys.exit(f"{run}: the description has no place for {', '.join(tensors)}")
    model.load_state_dict(state)  # strict: a tensor that is missing is an error
    return nn.Sequential(*model[:-1], *head(model[-1], description["head"], log_scale)), description


def head(linear: nn.Linear, settings: dict, log_scale: torch.Tensor | None) -> list[nn.Module]:
    """The layers that take features to logits: what the head normalises has a fixed length."""
    if settings["name"] in ("softmax", "l-softmax"):
        return [linear]
    with torch.no_grad():
        linear.weight.copy_(nn.functional.normalize(linear.weight))
    if "scale" not in settings:
        return [linear]
    return [Length(settings["scale"] if log_scale is None else log_scale.exp().item()), linear]


class Length(nn.Module):
    """Features scaled to one length."""

    def __init__(self, length: float):
        super().__init__()
        self.length = length

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.length * nn.functional.normalize(features)


def prepared(pixels: np.ndarray, description: dict) -> torch.Tensor:
    """(pixels - mean) / 256, as in training."""
    mean = torch.tensor(description["mean"]["pixels"]).reshape(description["network"]["input"])
    return (torch.from_numpy(pixels.astype(np.float32)) - mean) / 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the directory of a run that is done")
    parser.add_argument("--images", type=int, default=10, metavar="N", help="so many test images (10)")
    parser.add_argument("--pixels", type=Path, metavar="PIXELS.npy", help="N x C x H x W pixels instead of MNIST's test images")
    parser.add_argument("--check", type=Path, metavar="LOGITS.npy", help="compare with what `lsoftmax embed --logits` wrote")
    parser.add_argument("--mnist", type=Path, default=TEST_IMAGES, metavar="DIR")
    arguments = parser.parse_args()

    model, description = load(arguments.run)
    pixels = np.load(arguments.pixels) if arguments.pixels else mnist_test_images(arguments.mnist)
    images = prepared(pixels[: arguments.images], description)
    with torch.inference_mode():
        logits = torch.cat([model(batch) for batch in images.split(256)]).numpy()
    if arguments.check is None:
        np.set_printoptions(precision=4, suppress=True, linewidth=120)
        print(logits)
        return
    theirs = np.load(arguments.check)[: len(logits)]
    if theirs.shape != logits.shape:
        sys.exit(f"{arguments.check}: holds {theirs.shape}, but {logits.shape} is wanted")
    difference = np.abs(logits - theirs).max()
    agree = (logits.argmax(1) == theirs.argmax(1)).sum()
    print(f"{len(logits)} images: logits up to {np.abs(logits).max():.2f} differ by {difference:.1e} at most")
    print(f"the same class for {agree}")
    # A model that was trained in bf16 infers in bf16, which rounds every product to eight bits.
    tolerance = {"f32": 1e-4, "bf16": 3e-2}[description["precision"]]
    if difference > tolerance * np.abs(logits).max():
        sys.exit(f"that is more than rounding in {description['precision']}")


if __name__ == "__main__":
    main()
