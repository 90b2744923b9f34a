"""lsoftmax.json and metric_learning.json: losses, logits and gradients of every case."""

import torch
from pytorch_metric_learning.losses import LargeMarginSoftmaxLoss
from pytorch_metric_learning.reducers import DoNothingReducer

import definition
from cases import Case, loss_cases, metric_learning_cases


def lsoftmax() -> dict:
    """Every loss case by the definition."""
    return {"cases": [record(case, *by_definition(case)) for case in loss_cases()]}


def metric_learning() -> dict:
    """The cases where pytorch-metric-learning means what the paper means, computed by it.

    Its weights are D x K, one column a class; it has no lambda and no bias, and cuts the margin down to an
    integer. It takes cosines of normalised features and weights, and multiplies the norms back in, so with
    `scale=1` the logits are the paper's. It takes cos(m theta) from the paper's binomial sum (Eq. 7), not
    from acos. It does not keep k below m at theta = pi: the value of psi is the same there.
    """
    records = []
    for case in metric_learning_cases():
        theirs = by_metric_learning(case)
        assert_same(case.name, by_definition(case), theirs)
        records.append(record(case, *theirs))
    return {"cases": records}


def by_definition(case: Case):
    """Losses, plain logits, and gradients of the mean loss with respect to features, weights and bias."""
    features, weights, bias, labels = case.leaves()
    losses = definition.sample_losses(features, weights, bias, labels, case.margin, case.lambda_)
    logits = definition.plain_logits(features, weights, bias)
    losses.mean().backward()
    return losses, logits, features.grad, weights.grad, None if bias is None else bias.grad


def by_metric_learning(case: Case):
    """The same five from `LargeMarginSoftmaxLoss`."""
    features, weights, bias, labels = case.leaves()
    assert bias is None and case.lambda_ == 0 and case.margin == int(case.margin)
    classes, dim = weights.shape
    head = LargeMarginSoftmaxLoss(classes, dim, margin=case.margin, scale=1, reducer=DoNothingReducer())
    head.W.data = weights.detach().T.clone()
    losses = head(features, labels)["loss"]["losses"]
    losses.mean().backward()
    return losses, head.get_logits(features), features.grad, head.W.grad.T, None


def record(case: Case, losses, logits, grad_features, grad_weights, grad_bias) -> dict:
    """One case of a fixture. The gradients are those of the mean loss."""
    results = [losses, logits, grad_features, grad_weights] + ([] if grad_bias is None else [grad_bias])
    assert all(torch.isfinite(values).all() for values in results), case.name
    return {
        "name": case.name,
        "margin": case.margin,
        "lambda": case.lambda_,
        "features": case.features.tolist(),
        "weights": case.weights.tolist(),
        "bias": None if case.bias is None else case.bias.tolist(),
        "labels": case.labels,
        "loss": losses.mean().item(),
        "losses": losses.tolist(),
        "logits": logits.tolist(),
        "grad_features": grad_features.tolist(),
        "grad_weights": grad_weights.tolist(),
        "grad_bias": None if grad_bias is None else grad_bias.tolist(),
    }


def assert_same(name: str, ours, theirs):
    """Both implementations agree to 1e-10 of the largest value in each result."""
    for kind, a, b in zip(["losses", "logits", "grad_features", "grad_weights"], ours, theirs):
        difference = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert difference < 1e-10, f"{name}: {kind} differ by {difference:.1e}"
