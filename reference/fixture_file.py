"""Fixtures as files: how they are written, how two are compared, and the program that does one or the other."""

import argparse
import json
from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures"


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


def difference(found, expected, where: str, tolerance) -> str | None:
    """Where two fixtures first differ: numbers by more than the tolerance (relative above 1), the rest at all.

    `tolerance` gives that of a place from its path, such as "psi.json.cases[0].psi[3]".
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(found) != list(expected):
            return f"{where}: fields {list(found)}, expected {list(expected)}"
        pairs = [(found[key], expected[key], f"{where}.{key}") for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{where}: {len(found)} entries, expected {len(expected)}"
        pairs = [(f, e, f"{where}[{i}]") for i, (f, e) in enumerate(zip(found, expected))]
    elif isinstance(expected, float) and isinstance(found, float):
        close = abs(found - expected) <= tolerance(where) * max(1.0, abs(expected))
        return None if close else f"{where}: {found}, expected {expected}"
    else:
        return None if found == expected else f"{where}: {found}, expected {expected}"
    return next((text for text in (difference(*pair, tolerance) for pair in pairs) if text), None)


def check(name: str, fixture: dict, tolerance) -> str | None:
    """What is wrong with the file on disk, if anything."""
    path = FOLDER / name
    if not path.exists():
        return f"{name}: missing"
    return difference(json.loads(path.read_text()), json.loads(to_json(fixture)), name, tolerance)


def write_or_check(description: str, fixtures: dict, tolerance) -> int:
    """Writes fixtures, given by what makes each; with `--check` compares them with the files. Returns the exit code.

    `tolerance` is a number, or gives one for a place as in `difference`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    arguments = parser.parse_args()
    at = tolerance if callable(tolerance) else lambda where: tolerance
    failures = 0
    for name, make in fixtures.items():
        fixture = make()
        if arguments.check:
            problem = check(name, fixture, at)
            failures += problem is not None
            print(problem or f"{name}: up to date", flush=True)
        else:
            text = to_json(fixture)
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(text)
            count = sum(len(records) for records in fixture.values())
            print(f"{name}: {count} cases, {len(text) / 1000:.0f} kB", flush=True)
    return 1 if failures else 0
