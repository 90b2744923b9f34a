"""L-Softmax and its successors side by side with pytorch-metric-learning, forward and backward in f32.

    cargo build --release
    python bench/heads.py
    python bench/heads.py --classes 10572 --rounds 3 --json heads.json

The two sides run in processes of their own and take turns, as in `head.py`; the table shows medians over the rounds.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from side_by_side import add_common, check_common, report, run

PYTORCH = Path(__file__).resolve().parent / "pytorch_heads.py"
HEADS = ["softmax", "l-softmax", "a-softmax", "cosface", "arcface", "normsoftmax"]
SAMPLES, FEATURES = 256, 512


def sizes(classes: int) -> list:
    return ["--samples", SAMPLES, "--features", FEATURES, "--classes", classes]


def theirs(classes: int, options) -> dict:
    command = [sys.executable, PYTORCH, *sizes(classes), "--threads", options.threads, "--seconds", options.seconds]
    return json.loads(run(command, options.threads))


def ours(classes: int, options) -> dict:
    results = {}
    for head in HEADS:
        command = [options.program, "bench", "head", *sizes(classes), "--head", head, "--lambda", 0, "--json"]
        command += ["--seconds", options.seconds]
        results[head] = json.loads(run(command, options.threads))["milliseconds"]
    return results


def measure(classes: int, options) -> dict:
    rounds = []
    for number in range(options.rounds):
        sides = {"theirs": lambda: theirs(classes, options), "ours": lambda: ours(classes, options)}
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        rounds.append({side: sides[side]() for side in order})
    median = lambda side, head: statistics.median(r[side][head] for r in rounds)  # noqa: E731
    heads = {head: {side: median(side, head) for side in ("theirs", "ours")} for head in HEADS}
    return {"classes": classes, "samples": SAMPLES, "features": FEATURES, "milliseconds": heads, "rounds": rounds}


def rows(result: dict) -> list[list[str]]:
    free = result["milliseconds"]["l-softmax"]["ours"]
    lines = []
    for head, times in result["milliseconds"].items():
        theirs, ours = times["theirs"], times["ours"]
        ratio = f"{theirs / ours:.2f}x"
        lines.append([f"{result['classes']:,}", head, f"{theirs:.3g}", f"{ours:.3g}", ratio, f"{ours / free:.3f}"])
    return lines


def main():
    parser = argparse.ArgumentParser(description="Benchmark every head against pytorch-metric-learning.")
    add_common(parser)
    parser.add_argument("--classes", type=lambda text: [int(word) for word in text.split(",")], default=[10572, 100_000],
                        help="numbers of classes, by commas (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the record here")
    options = parser.parse_args()
    check_common(parser, options)
    report(options, ["classes", "head", "PyTorch, ms", "here, ms", "faster", "to l-softmax"], rows, measure)


if __name__ == "__main__":
    main()
