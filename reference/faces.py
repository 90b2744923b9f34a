"""Writes the fixtures of verification and alignment, or checks that they are up to date.

    python reference/faces.py            # write reference/fixtures/{verification,alignment}.json
    python reference/faces.py --check    # compute again and compare to 1e-9
"""

import sys

from face_alignment import alignment
from face_verification import verification
from fixture_file import write_or_check

FIXTURES = {"verification.json": verification, "alignment.json": alignment}
TOLERANCE = 1e-9

if __name__ == "__main__":
    sys.exit(write_or_check("Write or check the fixtures of the tests of faces.", FIXTURES, TOLERANCE))
