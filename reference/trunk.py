"""The paper's five networks (Table 1 and Figure 2) up to the features, in PyTorch.

A unit is convolution, batch norm, PReLU. Stages 1 to 3 end in a 2x2 max pool that rounds sizes up, as Caffe does:
28 -> 14 -> 7 -> 4. The feature layer is fully connected over the whole map.
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


@dataclass(frozen=True)
class Description:
    """A network from `channels, height, width` to features."""

    input: tuple[int, int, int]
    stages: tuple[Stage, ...]
    features: int
    linear_features: bool = False  # with a bias and nothing after; else without, and batch norm and PReLU follow


def first(filters: int, stride: int = 1) -> Stage:
    """conv0: one unit, no pool."""
    return Stage(filters, 1, stride=stride, pool=False)


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
}


def trunk(network: Description) -> nn.Sequential:
    """Images to features: N x C x H x W to N x D."""
    channels, height, width = network.input
    layers = []
    for stage in network.stages:
        for unit in range(stage.units):
            stride = stage.stride if unit == 0 else 1
            layers += [
                nn.Conv2d(channels, stage.filters, stage.kernel, stride, padding=stage.kernel // 2, bias=False),
                nn.BatchNorm2d(stage.filters, eps=1e-5, momentum=0.1),
                nn.PReLU(stage.filters, init=0.25),
            ]
            channels, height, width = stage.filters, math.ceil(height / stride), math.ceil(width / stride)
        if stage.pool:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            height, width = math.ceil(height / 2), math.ceil(width / 2)
    inputs = channels * height * width
    layers += [nn.Flatten(), nn.Linear(inputs, network.features, bias=network.linear_features)]
    if not network.linear_features:
        layers += [nn.BatchNorm1d(network.features, eps=1e-5, momentum=0.1), nn.PReLU(network.features, init=0.25)]
    return nn.Sequential(*layers)


def products(model: nn.Sequential) -> list[nn.Module]:
    """The convolutions and the feature layer, in order."""
    return [layer for layer in model if isinstance(layer, (nn.Conv2d, nn.Linear))]


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def multiply_adds(model: nn.Sequential, image: torch.Tensor) -> int:
    """For one image: those of the convolutions and the feature layer. Padding counts as pixels.

    Every output value is one product of a filter, so this is a count of what really comes out of the layers.
    """
    total = 0
    values = image[None]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for layer in model:
            values = layer(values)
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                total += values.numel() * layer.weight[0].numel()
    model.train(was_training)
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
