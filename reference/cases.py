"""The inputs of the loss fixtures: small, seeded, and exact in float32."""

from dataclasses import dataclass

import numpy as np
import torch

MARGINS = [1, 2, 3, 4, 5, 6, 7, 8, 16, 2.5]
LAMBDAS = [0, 0.3, 5, 1000]


@dataclass
class Case:
    """One input of the loss. Features are N x D, weights K x D, one row a class."""

    name: str
    margin: float
    lambda_: float
    features: np.ndarray
    weights: np.ndarray
    labels: list[int]
    bias: np.ndarray | None = None

    def __post_init__(self):
        self.features = exact_in_f32(self.features)
        self.weights = exact_in_f32(self.weights)
        self.bias = None if self.bias is None else exact_in_f32(self.bias)

    def leaves(self):
        """Fresh float64 tensors: features, weights and bias (or None), recording gradients, and labels."""
        features = torch.tensor(self.features, requires_grad=True)
        weights = torch.tensor(self.weights, requires_grad=True)
        bias = None if self.bias is None else torch.tensor(self.bias, requires_grad=True)
        return features, weights, bias, torch.tensor(self.labels)


def exact_in_f32(values) -> np.ndarray:
    """The nearest float32 values, held in float64."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def at_angle(rng, direction, angle, norm) -> np.ndarray:
    """A random vector of this norm at this angle to `direction`."""
    along = direction / np.linalg.norm(direction)
    across = rng.standard_normal(len(along))
    across -= (across @ along) * along
    across /= np.linalg.norm(across)
    return norm * (np.cos(angle) * along + np.sin(angle) * across)


def spread(rng, count) -> np.ndarray:
    """Angles over (0, pi), one in each of `count` equal parts and away from their ends."""
    return (np.arange(count) + rng.uniform(0.15, 0.85, count)) * np.pi / count


def angled_case(rng, name, margin, lambda_, angles, dim, classes, norm=1.5, with_bias=False, labels=None):
    """A case whose samples stand at the given angles to the weights of their labels."""
    weights = rng.standard_normal((classes, dim)) * rng.uniform(0.4, 1.2, (classes, 1))
    if labels is None:
        labels = rng.integers(0, classes, len(angles)).tolist()
    norms = norm * rng.uniform(0.7, 1.3, len(angles))
    features = [at_angle(rng, weights[y], angle, r) for y, angle, r in zip(labels, angles, norms)]
    bias = rng.standard_normal(classes) if with_bias else None
    return Case(name, margin, lambda_, np.array(features), weights, labels, bias)


def grid() -> list[Case]:
    """Every margin with every lambda; a bias in every other case; angles all over (0, pi)."""
    cases = []
    for i, margin in enumerate(MARGINS):
        for j, lambda_ in enumerate(LAMBDAS):
            rng = np.random.default_rng([2016, i, j])
            dim, classes, count = int(rng.integers(2, 8)), int(rng.integers(3, 8)), int(rng.integers(4, 7))
            name = f"margin {margin}, lambda {lambda_}"
            angles = spread(rng, count)
            with_bias = (i + j) % 2 == 1
            cases.append(angled_case(rng, name, margin, lambda_, angles, dim, classes, with_bias=with_bias))
    return cases


def every_interval() -> list[Case]:
    """A generic angle in every interval of psi. Margin 16 takes two cases of eight samples."""
    cases = []
    for margin in [3, 4, 8]:
        rng = np.random.default_rng([2017, margin])
        name = f"every interval, margin {margin}"
        cases.append(angled_case(rng, name, margin, 0, spread(rng, margin), 5, 4, norm=0.8))
    rng = np.random.default_rng([2017, 16])
    angles = spread(rng, 16)
    for half in (0, 1):
        name = f"every interval, margin 16, part {half + 1}"
        cases.append(angled_case(rng, name, 16, 0, angles[half::2], 5, 4, norm=0.3))
    rng = np.random.default_rng([2017, 25])
    angles = [0.2, 1.0, 1.5, 2.3, 2.6, 3.0]
    cases.append(angled_case(rng, "every interval, margin 2.5", 2.5, 0, angles, 5, 4, norm=0.8))
    return cases


def shapes_and_norms() -> list[Case]:
    """Few samples or classes, labels that repeat or never occur, very long and very short features."""
    rng = np.random.default_rng(2018)
    return [
        angled_case(rng, "one sample", 4, 0.3, [1.1], 6, 5, with_bias=True),
        angled_case(rng, "one class", 3, 0, spread(rng, 4), 4, 1, with_bias=True),
        angled_case(rng, "one sample, one class", 2, 0, [2.0], 3, 1),
        angled_case(rng, "two classes", 2, 0, spread(rng, 6), 3, 2),
        angled_case(rng, "two classes, bias", 4, 5, spread(rng, 6), 3, 2, with_bias=True),
        angled_case(rng, "all samples of one class", 4, 0.3, spread(rng, 7), 6, 5, labels=[3] * 7),
        angled_case(rng, "classes without samples", 3, 0, spread(rng, 5), 6, 11, labels=[0, 10, 0, 4, 10]),
        angled_case(rng, "long features", 4, 0, spread(rng, 6), 8, 6, norm=50),
        angled_case(rng, "long features, lambda 5", 3, 5, spread(rng, 6), 8, 6, norm=50, with_bias=True),
        angled_case(rng, "short features", 4, 0, spread(rng, 6), 8, 6, norm=1e-3),
        angled_case(rng, "short features, lambda 5", 2, 5, spread(rng, 6), 8, 6, norm=1e-3, with_bias=True),
        angled_case(rng, "largest", 4, 0.3, spread(rng, 9), 12, 11, norm=2, with_bias=True),
    ]


def parallel() -> list[Case]:
    """Features exactly along or against the weights of their label, where cos is 1 or -1 up to rounding."""
    rng = np.random.default_rng(2019)
    cases = []
    for margin in [1, 2, 3, 4, 8]:
        weights = exact_in_f32(rng.standard_normal((3, 6)))
        features = np.array([0.5 * weights[0], -0.5 * weights[1], 0.25 * weights[2], -weights[0]])
        cases.append(Case(f"parallel, margin {margin}", margin, 0.3, features, weights, [0, 1, 2, 0]))
    # With one dimension there is no other angle.
    cases.append(Case("one dimension", 4, 0, [[0.5], [-0.75], [1.25]], [[1.0], [-0.5]], [0, 0, 1]))
    # A fractional margin has a cusp at pi, so only the other end.
    weights = exact_in_f32(rng.standard_normal((3, 6)))
    cases.append(Case("parallel, margin 2.5", 2.5, 0, 0.5 * weights, weights, [0, 1, 2]))
    return cases


def loss_cases() -> list[Case]:
    """The inputs of lsoftmax.json."""
    return grid() + every_interval() + shapes_and_norms() + parallel()


def metric_learning_cases() -> list[Case]:
    """The inputs of metric_learning.json: whole margins, no bias, no lambda, features of generic angle."""
    cases = []
    for margin in [1, 2, 3, 4, 5, 6, 7, 8]:
        rng = np.random.default_rng([2020, margin])
        angles = spread(rng, max(margin, 4))
        cases.append(angled_case(rng, f"margin {margin}", margin, 0, angles, 6, 5, norm=1.2))
    rng = np.random.default_rng(2021)
    cases.append(angled_case(rng, "one sample", 4, 0, [1.3], 5, 4))
    cases.append(angled_case(rng, "two classes", 2, 0, spread(rng, 6), 3, 2))
    cases.append(angled_case(rng, "long features", 4, 0, spread(rng, 5), 6, 5, norm=50))
    cases.append(angled_case(rng, "short features", 3, 0, spread(rng, 5), 6, 5, norm=1e-3))
    return cases
