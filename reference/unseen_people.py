"""How well models tell people apart whom none of them was trained on, and how sure the difference between the models is.

Every pair of images is scored by the cosine of its embeddings; the AUC is over all pairs. The standard error of a difference is
the jackknife's, leaving out one person at a time, since images of one person are not independent.

    lsoftmax embed runs/A data/faces-list/held-out --out a.npy --flip concat
    lsoftmax embed runs/B data/faces-list/held-out --out b.npy --flip concat
    python3 reference/unseen_people.py a.npy b.npy
"""

import json
import pathlib
import sys

import numpy as np
from sklearn.metrics import roc_auc_score


def read(path):
    """The cosines of all pairs, and the two people of each."""
    features = np.load(path).astype(np.float64)
    names = json.loads(pathlib.Path(path).with_suffix(".json").read_text())["names"]
    people = np.array([pathlib.PurePath(name).parent.name for name in names])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    left, right = np.triu_indices(len(people), 1)
    return (features @ features.T)[left, right], people[left], people[right]


def main(paths):
    first, left, right = read(paths[0])
    same = left == right
    people = np.unique([left, right])
    print(f"{len(people)} people, {len(first):,} pairs, {same.sum():,} of one person")
    print(f"{paths[0]}: AUC {roc_auc_score(same, first):.4f}")
    for path in paths[1:]:
        scores, *pairs = read(path)
        assert np.array_equal(pairs, [left, right]), f"{path} is of other images than {paths[0]}"
        without = []
        for person in people:
            kept = (left != person) & (right != person)
            of_both = [roc_auc_score(same[kept], each[kept]) for each in (scores, first)]
            without.append(of_both[0] - of_both[1])
        spread = np.array(without) - np.mean(without)
        error = np.sqrt((len(people) - 1) / len(people) * np.sum(spread**2))
        value = roc_auc_score(same, scores)
        difference = value - roc_auc_score(same, first)
        print(f"{path}: AUC {value:.4f}, {difference:+.4f} ± {error:.4f}")


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(sys.argv[1:])
