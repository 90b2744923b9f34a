"""The paper's five networks (Table 1 and Figure 2) and two residual ones up to the features, in PyTorch.

A unit is convolution, batch norm, PReLU or ReLU. Stages 1 to 3 of the paper's networks end in a 2x2 max pool that rounds
sizes up, as Caffe does: 28 -> 14 -> 7 -> 4. The feature layer is fully connected over the whole map, or the average of
all pixels.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Stage:
    """Units of equal width. The stride is that of the first; padding keeps the size otherwise."""

    filters: int
    units: int
    kernel: int = 3
    stride: int = 1
    pool: bool = True
    activation: str = "prelu"
    residual: str | None = None  # "resnet" or "sphereface": every two units are a block


@dataclass(frozen=True)
class Description:
    """A network from `channels, height, width` to features."""

    input: tuple[int, int, int]
    stages: tuple[Stage, ...]
    features: int
    linear_features: bool = False  # with a bias and nothing after; else without, and batch norm and PReLU follow
    average_features: bool = False  # the averages of the last stage's filters


def first(filters: int, stride: int = 1, activation: str = "prelu") -> Stage:
    """conv0: one unit, no pool."""
    return Stage(filters, 1, stride=stride, pool=False, activation=activation)


def blocks(filters: int, units: int, stride: int = 1, kind: str = "resnet", activation: str = "prelu") -> Stage:
    return Stage(filters, units, stride=stride, pool=False, activation=activation, residual=kind)


NETWORKS = {
    "mnist-2d": Description(
        (1, 28, 28), (Stage(32, 2, kernel=5), Stage(64, 2, kernel=5), Stage(128, 2, kernel=5)), 2, linear_features=True
    ),
    "mnist": Description((1, 28, 28), (first(64), Stage(64, 3), Stage(64, 3), Stage(64, 3)), 256),
    "cifar10": Description((3, 32, 32), (first(64), Stage(64, 4), Stage(96, 4), Stage(128, 4)), 256),
    "cifar100": Description((3, 32, 32), (first(96), Stage(96, 4), Stage(192, 4), Stage(384, 4)), 512),
    "lfw": Description(
        (3, 112, 96),
        (first(64, stride=2), Stage(64, 4), Stage(256, 4), Stage(256, 4), Stage(256, 4, pool=False)),
        512,
    ),
    "resnet20": Description(
        (3, 32, 32),
        (
            first(16, activation="relu"),
            blocks(16, 6, activation="relu"),
            blocks(32, 6, stride=2, activation="relu"),
            blocks(64, 6, stride=2, activation="relu"),
        ),
        64,
        average_features=True,
    ),
    "sphereface20": Description(
        (3, 112, 96),
        tuple(
            stage
            for filters, units in ((64, 2), (128, 4), (256, 8), (512, 2))
            for stage in (first(filters, stride=2), blocks(filters, units, kind="sphereface"))
        ),
        512,
        linear_features=True,
    ),
}


def unit(channels: int, filters: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """Convolution and batch norm."""
    return [
        nn.Conv2d(channels, filters, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(filters, eps=1e-5, momentum=0.1),
    ]


def activation(kind: str, filters: int) -> nn.Module:
    return nn.ReLU() if kind == "relu" else nn.PReLU(filters, init=0.25)


class Block(nn.Module):
    """Two units, and their input added to their output: before the last activation (resnet) or after it."""

    def __init__(self, channels: int, stage: Stage, stride: int):
        super().__init__()
        filters = stage.filters
        # In the order of the program's units, and so of its parameters.
        self.start = nn.Sequential(*unit(channels, filters, stage.kernel, stride), activation(stage.activation, filters))
        changes = stride != 1 or channels != filters
        self.shortcut = nn.Sequential(*unit(channels, filters, 1, stride)) if changes else nn.Identity()
        self.end = nn.Sequential(*unit(filters, filters, stage.kernel))
        self.activation = activation(stage.activation, filters)
        self.kind = stage.residual

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        end, shortcut = self.end(self.start(values)), self.shortcut(values)
        return self.activation(end + shortcut) if self.kind == "resnet" else self.activation(end) + shortcut


def trunk(network: Description) -> nn.Sequential:
    """Images to features: N x C x H x W to N x D."""
    channels, height, width = network.input
    layers = []
    for stage in network.stages:
        for index in range(0, stage.units, 2 if stage.residual else 1):
            stride = stage.stride if index == 0 else 1
            if stage.residual:
                layers.append(Block(channels, stage, stride))
            else:
                layers += [*unit(channels, stage.filters, stage.kernel, stride), activation(stage.activation, stage.filters)]
            channels, height, width = stage.filters, math.ceil(height / stride), math.ceil(width / stride)
        if stage.pool:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            height, width = math.ceil(height / 2), math.ceil(width / 2)
    if network.average_features:
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    inputs = channels * height * width
    layers += [nn.Flatten(), nn.Linear(inputs, network.features, bias=network.linear_features)]
    if not network.linear_features:
        layers += [nn.BatchNorm1d(network.features, eps=1e-5, momentum=0.1), nn.PReLU(network.features, init=0.25)]
    return nn.Sequential(*layers)


def products(model: nn.Module) -> list[nn.Module]:
    """The convolutions and the feature layer, in order."""
    return [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def multiply_adds(model: nn.Sequential, image: torch.Tensor) -> int:
    """For one image: those of the convolutions and the feature layer. Padding counts as pixels.

    Every output value is one product of a filter, so this is a count of what really comes out of the layers.
    """
    total = 0

    def count(layer, _, output):
        nonlocal total
        total += output.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in products(model)]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(image[None])
    model.train(was_training)
    for hook in hooks:
        hook.remove()
    return total


def decayed(parameters) -> tuple[list, list]:
    """Parameters with weight decay (weights of convolutions, feature layer and head) and without (all vectors)."""
    parameters = list(parameters)
    return [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() == 1]


def sgd(parameters, learning_rate: float, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """v = momentum v + (gradient + decay w); w = w - rate v. The first v is the first gradient."""
    weights, vectors = decayed(parameters)
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum)
