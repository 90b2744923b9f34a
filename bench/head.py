"""The head side by side: this program against PyTorch's linear + cross-entropy, forward and backward.

    cargo build --release
    python bench/head.py
    python bench/head.py --classes 1000,10572 --rounds 5 --json head.json

The two sides run in processes of their own, one at a time, and take turns: a round measures PyTorch in its modes,
then the program, and the next round goes the other way. The table shows medians over the rounds.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from side_by_side import add_common, check_common, megabytes, report, run, run_mode

PYTORCH = Path(__file__).resolve().parent / "pytorch_head.py"
MODES = ["f32", "autocast", "bf16"]
PRECISIONS = ["f32", "bf16", "bf16-weights"]
MARGINS = [1, 4]
SAMPLES = 256
CLASSES = [10, 1000, 10572, 100_000, 1_000_000]


def features_of(classes: int) -> int:
    """512 features; 128 from a million classes on, which keeps W at half a gigabyte."""
    return 128 if classes >= 1_000_000 else 512


def size_arguments(classes: int) -> list:
    return ["--samples", SAMPLES, "--features", features_of(classes), "--classes", classes]


def pytorch(what: str, classes: int, mode: str, options, *more, **settings: str) -> dict:
    """PyTorch's measurement in one mode; empty if it crashes."""
    command = [sys.executable, PYTORCH, what, *size_arguments(classes), "--threads", options.threads, "--mode", mode]
    printed = run_mode(mode, [*command, *more], options.threads, **settings)
    return json.loads(printed) if printed else {}


def pytorch_milliseconds(classes: int, options) -> dict:
    """PyTorch in every mode that works."""
    times = {mode: pytorch("time", classes, mode, options, "--seconds", options.seconds) for mode in MODES}
    return {mode: time["milliseconds"] for mode, time in times.items() if time}


def pytorch_peak(classes: int, mode: str, options) -> int:
    """PyTorch's peak bytes in one mode. What it frees goes back at once, so that only live memory counts."""
    return pytorch("memory", classes, mode, options, MALLOC_MMAP_THRESHOLD_="65536")["peak_bytes"]


def program(classes: int, options) -> dict:
    """The program at every precision and margin, a process each: milliseconds and peak bytes by "f32 m=1" …"""
    results = {}
    for precision in PRECISIONS:
        for margin in MARGINS:
            command = [options.program, "bench", "head", *size_arguments(classes)]
            command += ["--margin", margin, "--precision", precision, "--json"]
            results[f"{precision} m={margin}"] = json.loads(run(command, options.threads))
    return results


def measure(classes: int, options) -> dict:
    """All rounds at one number of classes, and their medians."""
    rounds = []
    for number in range(options.rounds):
        sides = {
            "pytorch": lambda: pytorch_milliseconds(classes, options),
            "program": lambda: program(classes, options),
        }
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        rounds.append({side: sides[side]() for side in order})
    modes = [mode for mode in MODES if all(mode in r["pytorch"] for r in rounds)]
    if "f32" not in modes:
        sys.exit("PyTorch crashes in f32 too: there is nothing to compare with")
    theirs = {mode: statistics.median(r["pytorch"][mode] for r in rounds) for mode in modes}
    their_peaks = {mode: pytorch_peak(classes, mode, options) for mode in modes}
    names = list(rounds[0]["program"])
    ours = {name: statistics.median(r["program"][name]["milliseconds"] for r in rounds) for name in names}
    our_peaks = {name: max(r["program"][name]["peak_bytes"] for r in rounds) for name in names}
    return {
        "samples": SAMPLES,
        "features": features_of(classes),
        "classes": classes,
        "pytorch": {"milliseconds": theirs, "peak_bytes": their_peaks, "best": min(modes, key=theirs.get)},
        "program": {"milliseconds": ours, "peak_bytes": our_peaks},
        "rounds": rounds,
    }


HEADER = [
    "classes", "features", "PyTorch f32, ms", "PyTorch best, ms", "f32, ms", "faster than f32", "bf16, ms",
    "faster than best", "bf16 weights, ms", "faster than best", "m=4 / m=1, f32", "m=4 / m=1, bf16",
    "peak MB, f32 / bf16 / bf16 weights", "PyTorch peak MB, f32 / best",
]  # fmt: skip


def row(result: dict) -> list[str]:
    """One line of the table."""
    theirs, ours = result["pytorch"]["milliseconds"], result["program"]["milliseconds"]
    their_peaks, our_peaks = result["pytorch"]["peak_bytes"], result["program"]["peak_bytes"]
    best = result["pytorch"]["best"]
    peaks = [max(our_peaks[f"{precision} m={m}"] for m in MARGINS) for precision in PRECISIONS]
    return [
        f"{result['classes']:,}",
        str(result["features"]),
        milliseconds(theirs['f32']),
        f"{milliseconds(theirs[best])} ({best})",
        milliseconds(ours['f32 m=1']),
        f"{theirs['f32'] / ours['f32 m=1']:.2f}x",
        milliseconds(ours['bf16 m=1']),
        f"{theirs[best] / ours['bf16 m=1']:.2f}x",
        milliseconds(ours['bf16-weights m=1']),
        f"{theirs[best] / ours['bf16-weights m=1']:.2f}x",
        f"{ours['f32 m=4'] / ours['f32 m=1']:.3f}",
        f"{ours['bf16 m=4'] / ours['bf16 m=1']:.3f}",
        " / ".join(megabytes(peak) for peak in peaks),
        " / ".join(megabytes(their_peaks[mode]) for mode in ("f32", best)),
    ]


def milliseconds(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmark the head against PyTorch.")
    add_common(parser)
    parser.add_argument("--classes", type=lambda text: [int(word) for word in text.split(",")], default=CLASSES,
                        help="numbers of classes, by commas (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="for each PyTorch measurement, three steps at least (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the record here")
    options = parser.parse_args()
    check_common(parser, options)
    return options


def main():
    note = f"{SAMPLES} samples, margin 1 unless said."
    report(parse(), HEADER, lambda result: [row(result)], measure, note)


if __name__ == "__main__":
    main()
