"""Writes evaluation.json: scores of classifiers and of search indices, by scikit-learn; or checks it.

    python reference/evaluation_fixtures.py            # write reference/fixtures/evaluation.json
    python reference/evaluation_fixtures.py --check    # compute again and compare to 1e-12
"""

import sys

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)
from sklearn.neighbors import NearestNeighbors

from fixture_file import write_or_check

NAME = "evaluation.json"


def classification(name: str, logits: np.ndarray, labels: np.ndarray, k: int) -> dict:
    """All scores of logits, one row per image."""
    classes = range(logits.shape[1])
    predicted = logits.argmax(1)
    per_class = precision_recall_fscore_support(labels, predicted, labels=classes, zero_division=0)
    macro = precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)
    return {
        "name": name,
        "logits": logits.tolist(),
        "labels": labels.tolist(),
        "k": k,
        "top_k": float(top_k_accuracy_score(labels, logits, k=k, labels=classes)),
        "precision": per_class[0].tolist(),
        "recall": per_class[1].tolist(),
        "f1": per_class[2].tolist(),
        "support": per_class[3].tolist(),
        "macro": [float(score) for score in macro[:3]],
        "confusion": confusion_matrix(labels, predicted, labels=classes).tolist(),
    }


def retrieval(name: str, features: np.ndarray, labels: np.ndarray) -> dict:
    """Every image as a query among all others, by cosine, in float64."""
    count = len(labels)
    wide = features.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    cosines = unit @ unit.T
    # Cosines that nearly coincide could change places in float32.
    gaps = [np.diff(np.sort(np.delete(cosines[query], query))).min() for query in range(count)]
    assert min(gaps) > 2e-7, (name, min(gaps))
    queries = [query for query in range(count) if (labels == labels[query]).sum() > 1]
    others = lambda values, query: np.delete(values, query)
    precisions = [
        average_precision_score(others(labels == labels[query], query), others(cosines[query], query)) for query in queries
    ]
    # The nearest is the image itself.
    nearest = NearestNeighbors(n_neighbors=6, metric="cosine", algorithm="brute").fit(unit).kneighbors(unit)[1]
    assert all(nearest[query][0] == query for query in range(count)), name
    same = [labels[nearest[query][1:]] == labels[query] for query in queries]
    return {
        "name": name,
        "width": features.shape[1],
        "features": features.ravel().tolist(),
        "labels": labels.tolist(),
        "queries": len(queries),
        "recall_at_1": float(np.mean([row[0] for row in same])),
        "recall_at_5": float(np.mean([row.any() for row in same])),
        "mean_average_precision": float(np.mean(precisions)),
    }


def fixture() -> dict:
    rng = np.random.default_rng(1612)
    rounded = lambda values: np.round(values.astype(np.float32), 4)

    def logits(images, classes, signal, present=None):
        labels = rng.integers(0, present or classes, images)
        noise = rng.standard_normal((images, classes))
        noise[np.arange(images), labels] += signal
        return rounded(noise), labels

    def clusters(images, classes, width, spread):
        labels = rng.integers(0, classes, images)
        centres = rng.standard_normal((classes, width))
        return rounded(centres[labels] + spread * rng.standard_normal((images, width))), labels

    # A class of one image cannot be searched for.
    features, labels = clusters(40, 4, 6, 0.7)
    labels[7] = 99
    return {
        "classification": [
            classification("ten classes", *logits(120, 10, 1.5), 5),
            classification("three classes", *logits(30, 3, 0.5), 2),
            classification("classes without images or predictions", *logits(20, 8, 3.0, present=3), 3),
            classification("at chance", *logits(60, 6, 0.0), 2),
        ],
        "retrieval": [
            retrieval("separate classes", *clusters(90, 5, 16, 0.4)),
            retrieval("overlapping classes", *clusters(70, 3, 8, 1.5)),
            retrieval("a class of one image", features, labels),
        ],
    }


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__.splitlines()[0], {NAME: fixture}, 1e-12))
