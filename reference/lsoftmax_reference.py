"""Writes the fixtures that the Rust tests compare with, or checks that they are up to date.

    python reference/lsoftmax_reference.py            # write reference/fixtures/*.json
    python reference/lsoftmax_reference.py --check    # compute again and compare to 1e-12
"""

import argparse
import sys

import torch

from baselines import baselines
from fixture_file import FOLDER, check, to_json
from head_fixtures import heads
from loss_fixtures import lsoftmax, metric_learning
from optimisers import optimisers
from psi_table import psi

FIXTURES = {
    "lsoftmax.json": lsoftmax,
    "metric_learning.json": metric_learning,
    "baselines.json": baselines,
    "psi.json": psi,
    "heads.json": heads,
    "optimisers.json": optimisers,
}
TOLERANCE = 1e-12


def main() -> int:
    parser = argparse.ArgumentParser(description="Write or check the fixtures of the Rust tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    failures = 0
    for name, make in FIXTURES.items():
        fixture = make()
        if arguments.check:
            problem = check(name, fixture, lambda where: TOLERANCE)
            failures += problem is not None
            print(problem or f"{name}: up to date")
        else:
            text = to_json(fixture)
            (FOLDER / name).write_text(text)
            count = sum(len(records) for records in fixture.values())
            print(f"{name}: {count} cases, {len(text) / 1000:.0f} kB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
