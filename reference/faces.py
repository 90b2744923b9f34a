"""Writes the fixtures of verification and alignment, or checks that they are up to date.

    python reference/faces.py            # write reference/fixtures/{verification,alignment}.json
    python reference/faces.py --check    # compute again and compare to 1e-9
"""

import argparse
import sys

from face_alignment import alignment
from face_verification import verification
from fixture_file import FOLDER, check, to_json

FIXTURES = {"verification.json": verification, "alignment.json": alignment}
TOLERANCE = 1e-9


def main() -> int:
    parser = argparse.ArgumentParser(description="Write or check the fixtures of the tests of faces.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    arguments = parser.parse_args()
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
            print(f"{name}: {len(fixture['cases'])} cases, {len(text) / 1000:.0f} kB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
