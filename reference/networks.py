"""networks.json: ten training steps of each of the named networks, and the features after them.

    python reference/networks.py            # write reference/fixtures/networks.json, some minutes
    python reference/networks.py --check    # compute again and compare

Weights, images and labels come from `splitmix64`, which a test can repeat: they are not in the file.
"""

import math
import sys

import numpy as np
import torch

import definition
from fixture_file import write_or_check
from trunk import NETWORKS, multiply_adds, parameter_count, products, sgd, trunk

# Batch, classes, learning rate. Random images look alike to a deep network, and batch norm enlarges what little tells
# them apart. At the paper's rates rounding decides the tenth loss; at these it stays in the sixth digit or so, far
# below what the steps themselves change.
SIZES = {
    "mnist-2d": (32, 10, 1e-4),
    "mnist": (17, 10, 3e-5),
    "cifar10": (16, 10, 3e-5),
    "cifar100": (5, 100, 1e-5),
    "lfw": (5, 50, 1e-5),
    "resnet20": (16, 10, 3e-4),
    "sphereface20": (5, 50, 1e-5),
}
MARGIN, LAMBDA, MOMENTUM, WEIGHT_DECAY = 4, 10.0, 0.9, 5e-4
STEPS = 10
UNIT_SEED, HEAD_SEED, IMAGE_SEED, LABEL_SEED = 1000, 2000, 3000, 4000
NAME = "networks.json"


def splitmix64(seed: int, count: int) -> np.ndarray:
    """The first `count` numbers of the generator: number i depends on the seed and i alone."""
    counter = np.arange(1, count + 1, dtype=np.uint64)
    z = np.uint64(seed) + counter * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def values(seed: int, shape) -> np.ndarray:
    """Multiples of 2^-23 in [-1, 1), in row-major order. Exact in float32, held in float64."""
    bits = splitmix64(seed, math.prod(shape)) >> np.uint64(40)
    return (bits.astype(np.float64) / 2**23 - 1).reshape(shape)


def rounded(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to float32, then held as `dtype`: both precisions start from the same numbers."""
    return torch.from_numpy(array.astype(np.float32)).to(dtype)


def weights(seed: int, shape, gain: float, dtype: torch.dtype) -> torch.Tensor:
    """Uniform weights with variance gain / inputs, inputs being the size of one filter."""
    return rounded(values(seed, shape) * math.sqrt(3 * gain / math.prod(shape[1:])), dtype)


def images(step: int, batch: int, shape, dtype: torch.dtype) -> torch.Tensor:
    return rounded(values(IMAGE_SEED + step, (batch, *shape)), dtype)


def labels(step: int, batch: int, classes: int) -> torch.Tensor:
    bits = splitmix64(LABEL_SEED + step, batch) >> np.uint64(40)
    return torch.from_numpy((bits % np.uint64(classes)).astype(np.int64))


def train(name: str, dtype: torch.dtype) -> dict:
    """The losses of the steps, the gradients of the first, and features by running statistics after the last."""
    network = NETWORKS[name]
    batch, classes, learning_rate = SIZES[name]
    model = trunk(network).to(dtype)
    for index, layer in enumerate(products(model)):
        shape = tuple(layer.weight.shape)
        layer.weight.data = weights(UNIT_SEED + index, shape, 2, dtype)
        if layer.bias is not None:
            layer.bias.data.zero_()
    head = weights(HEAD_SEED, (classes, network.features), 1, dtype).requires_grad_()
    parameters = [*model.parameters(), head]
    optimiser = sgd(parameters, learning_rate, MOMENTUM, WEIGHT_DECAY)

    losses, gradients = [], []
    for step in range(STEPS):
        features = model(images(step, batch, network.input, dtype))
        targets = labels(step, batch, classes)
        loss = definition.sample_losses(features, head, None, targets, MARGIN, LAMBDA).mean()
        optimiser.zero_grad()
        loss.backward()
        gradients = gradients or [p.grad.clone() for p in parameters]
        optimiser.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        features = model(images(STEPS, batch, network.input, dtype))
    return {
        "losses": losses,
        "gradient_norms": [g.norm().item() for g in gradients],
        "gradient_starts": [g.flatten()[:3].tolist() for g in gradients],
        "eval_features": features[:3, :8].tolist(),
    }


def nine_digits(numbers):
    """float32 values by as many digits as tell them apart."""
    return [nine_digits(n) for n in numbers] if isinstance(numbers, list) else float(f"{numbers:.9g}")


def record(name: str) -> dict:
    """One network of the fixture."""
    network = NETWORKS[name]
    batch, classes, learning_rate = SIZES[name]
    model = trunk(network)
    high, low = train(name, torch.float64), train(name, torch.float32)
    assert np.isfinite(high["losses"]).all() and np.isfinite(low["losses"]).all(), name
    case = {
        "name": name,
        "input": list(network.input),
        "batch": batch,
        "features": network.features,
        "classes": classes,
        "margin": MARGIN,
        "lambda": LAMBDA,
        "learning_rate": learning_rate,
        "momentum": MOMENTUM,
        "weight_decay": WEIGHT_DECAY,
        "parameters": parameter_count(model),
        "multiply_adds": multiply_adds(model, torch.zeros(network.input)),
    }
    for kind in high:
        case[f"{kind}_f64"] = high[kind]
        case[f"{kind}_f32"] = nine_digits(low[kind])
    return case


def spread(case: dict) -> str:
    """How far float32 went from float64: what a test has to allow at least."""
    apart = {}
    for kind in ("losses", "gradient_norms", "eval_features"):
        low, high = np.array(case[f"{kind}_f32"]), np.array(case[f"{kind}_f64"])
        apart[kind] = np.abs(low - high) / (np.abs(high).max() if kind == "eval_features" else np.abs(high))
    losses = " ".join(f"{difference:.0e}" for difference in apart["losses"])
    gradients, features = apart["gradient_norms"].max(), apart["eval_features"].max()
    return f"losses {losses}; gradients {gradients:.0e}; features {features:.0e}"


def tolerance(where: str) -> float:
    """float32 results depend on the machine's order of summation, and a little on luck."""
    return 1e-2 if "_f32" in where else 1e-9


def networks() -> dict:
    cases = []
    for name in NETWORKS:
        cases.append(record(name))
        print(f"{name}: float32 is from float64, relative: {spread(cases[-1])}", flush=True)
    return {"cases": cases}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(write_or_check("Write or check the fixture of whole networks.", {NAME: networks}, tolerance))
