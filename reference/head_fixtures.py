"""heads.json: losses, logits and gradients of L-Softmax's successors.

By their definitions, and by pytorch-metric-learning where it defines them in the same way: ArcFace with the
linear continuation past pi - m, CosFace, A-Softmax (its SphereFaceLoss) without lambda, and softmax over cosines.
"""

import math

import numpy as np
import torch
from pytorch_metric_learning.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    SphereFaceLoss,
)
from pytorch_metric_learning.reducers import DoNothingReducer

import definition
from cases import exact_in_f32

# Head, margin, scale, lambda.
SETTINGS = [
    ("a-softmax", 2, None, 0),
    ("a-softmax", 4, None, 0),
    ("a-softmax", 4, None, 5),
    ("cosface", 0.35, 30, 0),
    ("cosface", 0.2, 64, 0),
    ("arcface", 0.5, 64, 0),
    ("arcface", 0.3, 16, 0),
    ("arcface", 0.5, 16, 2),
    ("normsoftmax", 1, 16, 0),
]
SIZES = [(6, 5, 4), (7, 9, 6)]


def heads() -> dict:
    records = []
    for seed, (head, margin, scale, lambda_) in enumerate(SETTINGS):
        for size in SIZES:
            features, weights, labels = inputs(seed, *size)
            ours = results(features, weights, labels, head, margin, scale, lambda_)
            records.append(record("definition", head, margin, scale, lambda_, features, weights, labels, ours))
            if lambda_ == 0:
                theirs = by_metric_learning(features, weights, labels, head, margin, scale)
                assert_same(f"{head} {margin}", ours, theirs)
                source = "pytorch-metric-learning"
                records.append(record(source, head, margin, scale, 0, features, weights, labels, theirs))
    return {"cases": records}


def inputs(seed: int, samples: int, dim: int, classes: int):
    """Features at all angles to their classes, of different lengths."""
    rng = np.random.default_rng(700 + seed)
    weights = exact_in_f32(rng.standard_normal((classes, dim)) * rng.uniform(0.3, 2.0, (classes, 1)))
    labels = rng.integers(0, classes, samples).tolist()
    features = []
    for sample, label in enumerate(labels):
        along = weights[label] / np.linalg.norm(weights[label])
        across = rng.standard_normal(dim)
        across -= (across @ along) * along
        across /= np.linalg.norm(across)
        angle = (sample + rng.uniform(0.2, 0.8)) * math.pi / samples
        features.append(rng.uniform(0.5, 3.0) * (math.cos(angle) * along + math.sin(angle) * across))
    return exact_in_f32(np.stack(features)), weights, labels


def margin_cosine(cosine: torch.Tensor, head: str, margin: float) -> torch.Tensor:
    """What takes the place of the label's cosine."""
    if head == "a-softmax":
        return definition.psi(cosine, margin)
    if head == "cosface":
        return cosine - margin
    if head == "normsoftmax":
        return cosine
    assert head == "arcface"
    theta = torch.acos(cosine)
    return torch.where(theta <= math.pi - margin, torch.cos(theta + margin), cosine - margin * math.sin(margin))


def results(features, weights, labels, head, margin, scale, lambda_):
    """Losses, plain logits, and gradients of the mean loss, by the definition."""
    x = torch.tensor(features, requires_grad=True)
    w = torch.tensor(weights, requires_grad=True)
    y = torch.tensor(labels)
    cosines = torch.nn.functional.normalize(x, dim=1) @ torch.nn.functional.normalize(w, dim=1).T
    lengths = x.norm(dim=1) if scale is None else torch.full((len(x),), float(scale), dtype=torch.float64)
    own = cosines.gather(1, y[:, None])[:, 0]
    changed = (lambda_ * own + margin_cosine(own, head, margin)) / (1 + lambda_)
    is_label = torch.nn.functional.one_hot(y, len(w)).bool()
    plain = lengths[:, None] * cosines
    logits = torch.where(is_label, (lengths * changed)[:, None], plain)
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    losses.mean().backward()
    return losses, plain, x.grad, w.grad


def by_metric_learning(features, weights, labels, head, margin, scale):
    """The same four from pytorch-metric-learning, whose weights are D x K."""
    x = torch.tensor(features, requires_grad=True)
    y = torch.tensor(labels)
    classes, dim = weights.shape
    common = {"num_classes": classes, "embedding_size": dim, "reducer": DoNothingReducer()}
    if head == "a-softmax":
        loss = SphereFaceLoss(margin=margin, scale=1, **common)
    elif head == "cosface":
        loss = CosFaceLoss(margin=margin, scale=scale, **common)
    elif head == "arcface":
        loss = ArcFaceLoss(margin=math.degrees(margin), scale=scale, **common)
    else:
        loss = NormalizedSoftmaxLoss(temperature=1 / scale, **common)
    loss.W.data = torch.tensor(weights).T.clone()
    losses = loss(x, y)["loss"]["losses"]
    losses.mean().backward()
    return losses, loss.get_logits(x), x.grad, loss.W.grad.T


def record(source, head, margin, scale, lambda_, features, weights, labels, found) -> dict:
    losses, logits, grad_features, grad_weights = found
    assert all(torch.isfinite(values).all() for values in found), head
    return {
        "name": f"{head} {margin} {scale} {lambda_}, {len(weights)} classes, {source}",
        "head": head,
        "margin": float(margin),
        "scale": None if scale is None else float(scale),
        "lambda": float(lambda_),
        "features": features.tolist(),
        "weights": weights.tolist(),
        "labels": labels,
        "loss": losses.mean().item(),
        "losses": losses.tolist(),
        "logits": logits.tolist(),
        "grad_features": grad_features.tolist(),
        "grad_weights": grad_weights.tolist(),
    }


def assert_same(name: str, ours, theirs):
    """Both agree to 1e-5 of the largest value: pytorch-metric-learning keeps cosines 1e-7 away from 1."""
    for kind, a, b in zip(["losses", "logits", "grad_features", "grad_weights"], ours, theirs):
        difference = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert difference < 1e-5, f"{name}: {kind} differ by {difference:.1e}"
