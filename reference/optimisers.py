"""optimisers.json: twenty training steps of a small network by each optimiser and learning-rate schedule.

Optimisers and schedules are PyTorch's own. Weights, images and labels are those of `networks.py`.
"""

import torch
from torch.optim import lr_scheduler

import definition
from networks import HEAD_SEED, UNIT_SEED, images, labels, weights
from trunk import Description, Stage, decayed, products, trunk

NETWORK = Description((1, 6, 6), (Stage(4, 1),), 5)
BATCH, CLASSES, MARGIN, LAMBDA, STEPS = 8, 3, 2, 2.0, 20

# The keys are those of a recipe. The decays are large, so that one that is missing, or applied to a vector, shows.
CASES = [
    {
        "name": "momentum, drops",
        "sgd": {"momentum": 0.9, "weight_decay": 0.1},
        "learning_rate": {"schedule": "steps", "rate": 0.05, "factor": 0.1, "at": [8, 15]},
        "warmup": 0,
    },
    {
        "name": "nesterov, drops after a warm-up",
        "sgd": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
        "learning_rate": {"schedule": "steps", "rate": 0.05, "factor": 0.1, "at": [12]},
        "warmup": 5,
    },
    {
        "name": "adamw, cosine",
        "adamw": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.5},
        "learning_rate": {"schedule": "cosine", "rate": 0.01},
        "warmup": 0,
    },
    {
        "name": "adamw, cosine after a warm-up",
        "adamw": {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 2.0},
        "learning_rate": {"schedule": "cosine", "rate": 0.02, "min": 0.002},
        "warmup": 4,
    },
]


def optimiser(case: dict, parameters) -> torch.optim.Optimizer:
    """Weights decay, vectors do not."""
    kept, vectors = decayed(parameters)
    settings = dict(case.get("sgd") or case["adamw"])
    groups = [{"params": kept, "weight_decay": settings.pop("weight_decay")}, {"params": vectors, "weight_decay": 0.0}]
    rate = case["learning_rate"]["rate"]
    if "sgd" in case:
        return torch.optim.SGD(groups, lr=rate, **settings)
    betas = (settings["beta1"], settings["beta2"])
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=settings["epsilon"])


def schedule(case: dict, steps: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    """Step t of a warm-up of N steps has (t + 1) / N of the rate. A cosine begins after it, drops count all steps."""
    rate, warmup = case["learning_rate"], case["warmup"]
    rising = warmup and lr_scheduler.LinearLR(steps, start_factor=1 / warmup, total_iters=warmup - 1)
    if rate["schedule"] == "steps":
        drops = lr_scheduler.MultiStepLR(steps, rate["at"], rate["factor"])
        return lr_scheduler.ChainedScheduler([rising, drops]) if warmup else drops
    cosine = lr_scheduler.CosineAnnealingLR(steps, STEPS - warmup, rate.get("min", 0.0))
    return lr_scheduler.SequentialLR(steps, [rising, cosine], [warmup]) if warmup else cosine


def train(case: dict) -> dict:
    """The rate and the loss of every step, and all parameters after the last."""
    model = trunk(NETWORK).double()
    for index, layer in enumerate(products(model)):
        layer.weight.data = weights(UNIT_SEED + index, tuple(layer.weight.shape), 2, torch.float64)
    head = weights(HEAD_SEED, (CLASSES, NETWORK.features), 1, torch.float64).requires_grad_()
    parameters = [*model.parameters(), head]
    steps = optimiser(case, parameters)
    rates = schedule(case, steps)
    found = {"rates": [], "losses": []}
    for step in range(STEPS):
        features = model(images(step, BATCH, NETWORK.input, torch.float64))
        targets = labels(step, BATCH, CLASSES)
        loss = definition.sample_losses(features, head, None, targets, MARGIN, LAMBDA).mean()
        steps.zero_grad()
        loss.backward()
        found["rates"].append(steps.param_groups[0]["lr"])
        found["losses"].append(loss.item())
        steps.step()
        rates.step()
    found["parameters"] = [parameter.flatten().tolist() for parameter in parameters]
    return found


def optimisers() -> dict:
    """The fixture."""
    sizes = {"batch": BATCH, "classes": CLASSES, "margin": MARGIN, "lambda": LAMBDA}
    return {"cases": [{**case, **sizes, **train(case)} for case in CASES]}
