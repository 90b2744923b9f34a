"""baselines.json: the losses that the paper compares with, and their gradients."""

import numpy as np
import torch

from cases import exact_in_f32


def baselines() -> dict:
    """Hinge and softmax on scores, contrastive on pairs."""
    return {"hinge": hinge_records(), "contrastive": contrastive_records(), "softmax": softmax_records()}


def hinge(scores, labels, norm) -> torch.Tensor:
    """One-vs-all hinge as in Caffe's HingeLossLayer: (1/N) sum_ij max(0, 1 - t_ij s_ij), or of its square.

    t_ij is +1 for the label and -1 elsewhere. The sum over classes is not divided by K.
    A score exactly on the margin has gradient zero.
    """
    targets = 2 * torch.nn.functional.one_hot(labels, scores.shape[1]) - 1
    violations = torch.relu(1 - targets * scores)
    return violations.pow({"l1": 1, "l2": 2}[norm]).sum() / len(scores)


def contrastive(a, b, same, margin) -> torch.Tensor:
    """Of every pair: d^2 / 2 if it is the same, max(0, margin - d)^2 / 2 if not; d is Euclidean.

    A different pair that coincides has no direction to part in: its gradient is zero.
    """
    squared = (a - b).pow(2).sum(1)
    coincident = squared == 0
    distance = torch.where(coincident, 0.0, torch.where(coincident, 1.0, squared).sqrt())
    apart = torch.relu(margin - distance).pow(2)
    return 0.5 * torch.where(same.bool(), squared, apart)


def hinge_records() -> list[dict]:
    """Random scores, scores exactly on the margin, a single sample, a single class."""
    rng = np.random.default_rng(2022)
    inputs = [
        ("random", rng.standard_normal((6, 5)) * 1.5, [0, 4, 2, 2, 1, 0]),
        ("on the margin", [[1.0, -1.0, 0.0], [1.0, 1.0, -1.0], [2.0, -3.0, -1.0]], [0, 1, 0]),
        ("one sample", rng.standard_normal((1, 4)), [3]),
        ("one class", rng.standard_normal((3, 1)), [0, 0, 0]),
    ]
    records = []
    for name, scores, labels in inputs:
        for norm in ("l1", "l2"):
            scores = exact_in_f32(scores)
            leaf = torch.tensor(scores, requires_grad=True)
            loss = hinge(leaf, torch.tensor(labels), norm)
            loss.backward()
            records.append({
                "name": name,
                "norm": norm,
                "scores": scores.tolist(),
                "labels": labels,
                "loss": loss.item(),
                "grad_scores": leaf.grad.tolist(),
            })
    return records


def contrastive_records() -> list[dict]:
    """Pairs within, on and beyond the margin, and coincident ones, both same and different."""
    rng = np.random.default_rng(2023)
    a = rng.standard_normal((8, 4))
    b = rng.standard_normal((8, 4))
    b[:4] = a[:4] + 0.3 * rng.standard_normal((4, 4))
    inputs = [
        ("random, margin 1", 1.0, a, b, [1, 0, 1, 0, 1, 0, 1, 0]),
        ("random, margin 4", 4.0, a, b, [0, 1, 0, 1, 0, 1, 0, 1]),
        ("coincident", 1.5, a[:4], np.concatenate([a[:3], b[3:4]]), [1, 0, 0, 0]),
        ("on and beyond the margin", 5.0, [[3.0, 4.0], [6.0, 8.0], [3.0, 4.0]], np.zeros((3, 2)), [0, 0, 1]),
    ]
    return [contrastive_record(*values) for values in inputs]


def contrastive_record(name, margin, a, b, same) -> dict:
    a, b = exact_in_f32(a), exact_in_f32(b)
    leaf_a, leaf_b = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    losses = contrastive(leaf_a, leaf_b, torch.tensor(same), margin)
    losses.mean().backward()
    return {
        "name": name,
        "margin": margin,
        "a": a.tolist(),
        "b": b.tolist(),
        "same": same,
        "loss": losses.mean().item(),
        "losses": losses.tolist(),
        "grad_a": leaf_a.grad.tolist(),
        "grad_b": leaf_b.grad.tolist(),
    }


def softmax_records() -> list[dict]:
    """Plain cross-entropy: moderate scores, and scores whose exponentials overflow float32."""
    rng = np.random.default_rng(2024)
    inputs = [
        ("random", rng.standard_normal((6, 5)), [0, 4, 2, 2, 1, 0]),
        ("large scores", rng.standard_normal((4, 6)) * 200, [5, 0, 3, 1]),
        ("one class", rng.standard_normal((2, 1)), [0, 0]),
    ]
    records = []
    for name, scores, labels in inputs:
        scores = exact_in_f32(scores)
        leaf = torch.tensor(scores, requires_grad=True)
        losses = torch.nn.functional.cross_entropy(leaf, torch.tensor(labels), reduction="none")
        losses.mean().backward()
        records.append({
            "name": name,
            "scores": scores.tolist(),
            "labels": labels,
            "loss": losses.mean().item(),
            "losses": losses.tolist(),
            "grad_scores": leaf.grad.tolist(),
        })
    return records
