"""Writes the fixtures that the Rust tests compare with, or checks that they are up to date.

    python reference/lsoftmax_reference.py            # write reference/fixtures/*.json
    python reference/lsoftmax_reference.py --check    # compute again and compare to 1e-12
"""

import sys

import torch

from baselines import baselines
from fixture_file import write_or_check
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

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(write_or_check("Write or check the fixtures of the Rust tests.", FIXTURES, TOLERANCE))
