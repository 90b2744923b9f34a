"""The Large-Margin Softmax loss as the paper defines it, in PyTorch autograd and float64.

Nothing here is fast, and nothing is rewritten for stability: the angle comes from acos, and cos(m theta)
from cos. That makes it independent of the polynomials and closed-form gradients it is used to check.
"""

import math

import torch


def psi(cosine: torch.Tensor, margin: float) -> torch.Tensor:
    """psi(theta) = (-1)^k cos(m theta) - 2k on theta in [k pi/m, (k+1) pi/m], for real m >= 1.

    For a whole m the last interval ends at pi; otherwise pi cuts it short. So k is at most ceil(m) - 1.

    At |cos| = 1 the derivative of acos is infinite. The cosine is extremal there, so its own gradient with
    respect to x and W vanishes and psi counts as a constant. This does not hold for a fractional m at
    theta = pi, where psi has a cusp: no fixture goes there.
    """
    parallel = cosine.detach().abs() >= 1
    # Both branches of `where` are differentiated; 0 keeps the unused one finite.
    theta = torch.acos(torch.where(parallel, 0.0, cosine))
    ends = torch.where(cosine.detach() > 0, torch.zeros_like(theta), math.pi)
    theta = torch.where(parallel, ends, theta)
    k = interval(theta, margin)
    sign = 1 - 2 * (k % 2)
    return sign * torch.cos(margin * theta) - 2 * k


def interval(theta: torch.Tensor, margin: float) -> torch.Tensor:
    """k, the index of the interval of psi that holds theta."""
    return torch.floor(margin * theta.detach() / math.pi).clamp(max=math.ceil(margin) - 1)


def plain_logits(features, weights, bias=None) -> torch.Tensor:
    """W x + b: what inference uses, whatever the margin."""
    logits = features @ weights.T
    return logits if bias is None else logits + bias


def margin_logits(features, weights, bias, labels, margin, lambda_) -> torch.Tensor:
    """The plain logits, with the label's replaced by |W||x| (lambda cos + psi) / (1 + lambda) + b."""
    own = weights[labels]
    norms = features.norm(dim=1) * own.norm(dim=1)
    cosine = (features * own).sum(1) / norms
    label_logits = norms * (lambda_ * cosine + psi(cosine, margin)) / (1 + lambda_)
    if bias is not None:
        label_logits = label_logits + bias[labels]
    logits = plain_logits(features, weights, bias)
    is_label = torch.nn.functional.one_hot(labels, len(weights)).bool()
    return torch.where(is_label, label_logits[:, None], logits)


def sample_losses(features, weights, bias, labels, margin, lambda_) -> torch.Tensor:
    """The cross-entropy of every sample."""
    logits = margin_logits(features, weights, bias, labels, margin, lambda_)
    label_logits = logits.gather(1, labels[:, None])[:, 0]
    return torch.logsumexp(logits, dim=1) - label_logits
