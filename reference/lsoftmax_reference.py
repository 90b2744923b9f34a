"""Writes the fixtures that the Rust tests compare with, or checks that they are up to date.

    python reference/lsoftmax_reference.py            # write reference/fixtures/*.json
    python reference/lsoftmax_reference.py --check    # compute again and compare to 1e-12
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from baselines import baselines
from loss_fixtures import lsoftmax, metric_learning
from psi_table import psi

FOLDER = Path(__file__).parent / "fixtures"
FIXTURES = {
    "lsoftmax.json": lsoftmax,
    "metric_learning.json": metric_learning,
    "baselines.json": baselines,
    "psi.json": psi,
}
TOLERANCE = 1e-12


def to_json(fixture: dict) -> str:
    """JSON with one field of a case on each line. Floats keep every digit."""
    lists = []
    for name, records in fixture.items():
        texts = []
        for record in records:
            fields = [f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
            texts.append("  {\n" + ",\n".join(fields) + "\n  }")
        lists.append(f"{json.dumps(name)}: [\n" + ",\n".join(texts) + "\n]")
    return "{\n" + ",\n".join(lists) + "\n}\n"


def difference(found, expected, where: str) -> str | None:
    """Where two fixtures first differ: numbers by more than TOLERANCE (relative above 1), the rest at all."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(found) != list(expected):
            return f"{where}: fields {list(found)}, expected {list(expected)}"
        pairs = [(found[key], expected[key], f"{where}.{key}") for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{where}: {len(found)} entries, expected {len(expected)}"
        pairs = [(f, e, f"{where}[{i}]") for i, (f, e) in enumerate(zip(found, expected))]
    elif isinstance(expected, float) and isinstance(found, float):
        close = abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
        return None if close else f"{where}: {found}, expected {expected}"
    else:
        return None if found == expected else f"{where}: {found}, expected {expected}"
    return next((text for text in (difference(*pair) for pair in pairs) if text), None)


def check(name: str, fixture: dict) -> str | None:
    """What is wrong with the file on disk, if anything."""
    path = FOLDER / name
    if not path.exists():
        return f"{name}: missing"
    return difference(json.loads(path.read_text()), json.loads(to_json(fixture)), name)


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
            problem = check(name, fixture)
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
