"""verification.json: the accuracy on pairs of embeddings by four protocols, in numpy and scikit-learn.

Everything is written the slow way, one threshold after the other, so that it shares no shortcut with the code that it checks.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.preprocessing import normalize

SPHEREFACE_THRESHOLDS = np.arange(-10_000, 10_001) / 10_000
INSIGHTFACE_THRESHOLDS = np.arange(0, 4, 0.01)


def without_mean(rows, mean):
    """Rows minus a mean. A row that equals the mean but for rounding has no direction: it becomes zero."""
    difference = rows - mean
    lengths = np.linalg.norm(difference, axis=1)
    difference[lengths <= 1e-12 * np.linalg.norm(rows, axis=1)] = 0
    return difference


def without_noise(scores):
    """Scores to 12 decimals: what should be a tie is one, whatever the order of a sum."""
    return np.round(scores, 12)


def cosines(rows, pairs):
    rows = normalize(rows)
    return without_noise(np.sum(rows[pairs["left"]] * rows[pairs["right"]], axis=1))


def mean_of_best(scores, same):
    """SphereFace: of all thresholds, the mean of those that are right most often; above it is the same person."""
    right = np.array([np.sum((scores > threshold) == same) for threshold in SPHEREFACE_THRESHOLDS])
    return SPHEREFACE_THRESHOLDS[right == right.max()].mean()


def by_folds(pairs, scores_of_fold, choose, accept):
    """A threshold from the other folds, applied to the fold; the score of a pair is that of its own fold."""
    scores, folds = np.zeros(len(pairs["same"])), []
    for fold in np.unique(pairs["fold"]):
        test = pairs["fold"] == fold
        of_fold = scores_of_fold(~test)
        threshold = choose(of_fold[~test], pairs["same"][~test])
        right = accept(of_fold[test], threshold) == pairs["same"][test]
        folds.append({"fold": int(fold), "pairs": int(test.sum()), "threshold": float(threshold), "accuracy": float(right.mean())})
        scores[test] = of_fold[test]
    return scores, folds


def sphereface(rows, pairs):
    def scores(training):
        used = np.concatenate([pairs["left"][training], pairs["right"][training]])
        return cosines(without_mean(rows, rows[used].mean(axis=0)), pairs)

    return by_folds(pairs, scores, mean_of_best, lambda scores, threshold: scores > threshold)


def insightface(rows, pairs):
    rows = normalize(rows)
    distances = without_noise(np.sum(np.square(rows[pairs["left"]] - rows[pairs["right"]]), axis=1))

    def first_of_best(distances, same):
        right = [np.mean(np.less(distances, threshold) == same) for threshold in INSIGHTFACE_THRESHOLDS]
        return INSIGHTFACE_THRESHOLDS[np.argmax(right)]

    scores, folds = by_folds(pairs, lambda training: distances, first_of_best, np.less)
    return -scores, folds


def best_threshold(rows, pairs):
    scores, same = cosines(rows, pairs), pairs["same"]
    thresholds = np.concatenate([[np.nextafter(scores.max(), np.inf)], np.unique(scores)[::-1]])
    threshold = thresholds[np.argmax([np.mean((scores >= threshold) == same) for threshold in thresholds])]
    folds = []
    for fold in np.unique(pairs["fold"]):
        test = pairs["fold"] == fold
        right = (scores[test] >= threshold) == same[test]
        folds.append({"fold": int(fold), "pairs": int(test.sum()), "threshold": float(threshold), "accuracy": float(right.mean())})
    return scores, folds


def paper(rows, pairs, dimension):
    explained = []

    def scores(training):
        used = np.concatenate([pairs["left"][training], pairs["right"][training]])
        pca = PCA(dimension, svd_solver="full").fit(rows[used])
        explained.append(float(pca.explained_variance_ratio_.sum()))
        return cosines(pca.transform(rows), pairs)

    scores, folds = by_folds(pairs, scores, mean_of_best, lambda scores, threshold: scores > threshold)
    return scores, folds, explained


def result(protocol, pairs, scores, folds, explained=None, dimension=None):
    """What `lsoftmax verify --json` prints."""
    accuracies, same = np.array([fold["accuracy"] for fold in folds]), pairs["same"]
    pooled = protocol == "best-threshold"
    accuracy = np.mean((scores >= folds[0]["threshold"]) == same) if pooled else accuracies.mean()
    record = {
        "protocol": protocol,
        "dimension": dimension,
        "accuracy": float(accuracy),
        "standard_error": float(accuracies.std(ddof=1) / np.sqrt(len(folds))) if len(folds) > 1 else None,
        "folds": folds,
        "auc": None,
        "eer": None,
        "tar_at_far": None,
        "explained_variance": explained,
    }
    if 0 < same.sum() < len(same):
        far, tar, _ = roc_curve(same, scores, drop_intermediate=False)
        record["auc"] = float(roc_auc_score(same, scores))
        # Along the curve FAR + TAR only grows; false accepts and false rejects are equal where it is 1.
        record["eer"] = float(np.interp(1, far + tar, far))
        record["tar_at_far"] = {name: float(tar[far <= float(name)].max()) for name in ["1e-1", "1e-2", "1e-3"]}
    return record


def people(rng, count, each, size, spread):
    """Embeddings of people around random directions with a common offset; exact in float32."""
    centres = rng.normal(size=(count, size)) + 0.7
    rows = np.repeat(centres, each, axis=0) + spread * rng.normal(size=(count * each, size))
    return rows.astype(np.float32).astype(np.float64)


def random_pairs(rng, count, each, sizes):
    """Pairs of `count` people with `each` images, half of the same person, in folds of the sizes given."""
    columns = {"left": [], "right": [], "same": [], "fold": []}
    for fold, size in enumerate(sizes):
        for index in range(size):
            one, other = rng.choice(count, 2, replace=False)
            same = index % 2 == 0
            images = rng.choice(each, 2, replace=False)
            columns["left"].append(one * each + images[0])
            columns["right"].append((one if same else other) * each + images[1])
            columns["same"].append(same)
            columns["fold"].append(fold)
    return {name: np.array(column) for name, column in columns.items()}


def cases():
    """Random embeddings, then those that tempt an implementation to divide by zero or to mistake a tie."""
    rng = np.random.default_rng(2016)
    rows = people(rng, 20, 4, 8, 1.0)
    yield "ten folds", rows, random_pairs(rng, 20, 4, [20] * 10)
    yield "folds of unequal size", rows, random_pairs(rng, 20, 4, [3, 40, 10, 6])
    yield "two folds", rows, random_pairs(rng, 20, 4, [30, 30])
    yield "one fold", rows, random_pairs(rng, 20, 4, [40])

    pairs = random_pairs(rng, 20, 4, [20, 20, 20])
    pairs["same"] = np.where(pairs["fold"] == 1, True, pairs["same"])
    same_only = pairs["fold"] == 1
    pairs["right"] = np.where(same_only, pairs["left"] // 4 * 4 + (pairs["left"] + 1) % 4, pairs["right"])
    yield "a fold of one kind only", rows, pairs
    yield "all pairs of one kind", rows, {**pairs, "same": np.ones_like(pairs["same"])}

    pairs = random_pairs(rng, 20, 4, [8, 8, 8])
    yield "duplicated pairs", rows, {name: np.concatenate([column, column, column[:5]]) for name, column in pairs.items()}
    pairs = random_pairs(rng, 20, 4, [12, 12])
    yield "an image beside itself", rows, {**pairs, "right": np.where(np.arange(24) % 3 == 0, pairs["left"], pairs["right"])}
    yield "folds with gaps in their numbers", rows, {**pairs, "fold": pairs["fold"] * 5 + 2}

    # Scores of few different values: corners of a cube.
    corners = np.sign(rng.normal(size=(40, 3)))
    yield "ties", corners, random_pairs(rng, 10, 4, [14, 14, 14, 14])
    yield "all scores equal", np.ones((12, 5)), random_pairs(rng, 3, 4, [6, 6, 6])
    zeros = rows.copy()
    zeros[::3] = 0
    yield "rows of zeros", zeros, random_pairs(rng, 20, 4, [16, 16, 16])
    yield "rows of very different lengths", rows * np.float32(2.0) ** rng.integers(-30, 30, size=(80, 1)), random_pairs(rng, 20, 4, [16, 16, 16])


PROTOCOLS = {"sphereface": sphereface, "insightface": insightface, "best-threshold": best_threshold}


def verification() -> dict:
    records = []
    for name, rows, pairs in cases():
        results = []
        for protocol, verify in PROTOCOLS.items():
            if len(np.unique(pairs["fold"])) > 1 or protocol == "best-threshold":
                results.append(result(protocol, pairs, *verify(rows, pairs)))
        # Without variance there are no principal directions, and with rows of zeros the mean decides.
        if len(np.unique(pairs["fold"])) > 1 and name != "all scores equal":
            for dimension in [2, min(rows.shape[1], 6)]:
                scores, folds, explained = paper(rows, pairs, dimension)
                results.append(result("paper", pairs, scores, folds, explained, dimension))
        columns = {key: column.astype(int).tolist() for key, column in pairs.items()}
        records.append({"name": name, "columns": rows.shape[1], "embeddings": rows.ravel().tolist(), **columns, "results": results})
    return {"cases": records}
