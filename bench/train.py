"""Training side by side: this program against PyTorch on the paper's networks and two residual ones, L-Softmax at margin 4, SGD.

    cargo build --release
    python bench/train.py
    python bench/train.py --networks mnist,cifar10 --rounds 1 --steps 3 --out train.json

The two sides run in processes of their own, one at a time, and take turns: a round measures PyTorch in its modes,
then the program in its precisions, and the next round goes the other way. The table shows medians over the rounds.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
from pathlib import Path

from side_by_side import add_common, check_common, describe, machine, megabytes, run, run_mode, table_line

PYTORCH = Path(__file__).resolve().parent / "pytorch_train.py"
MODES = ["f32 nchw", "f32 channels-last", "bf16 nchw", "bf16 channels-last"]
PRECISIONS = ["f32", "bf16"]
MEASURES = ["training", "inference"]
CLASSES = {
    "mnist-2d": 10, "mnist": 10, "cifar10": 10, "cifar100": 100, "lfw": 10_572, "resnet20": 10, "sphereface20": 10_572
}  # fmt: skip
LIMIT = 60  # seconds for a step; a PyTorch mode that takes longer is cut short
NUMBERS = ["images_per_second", "inference_images_per_second", "gflop_per_image", "gflops", "peak_gflops", "peak_bytes"]
FIELDS = ["network", "batch", "precision", "path", "threads", "steps", "step_seconds", *NUMBERS]


def pytorch_command(what: str, network: str, mode: str, options) -> list:
    command = [sys.executable, PYTORCH, what, "--network", network, "--classes", CLASSES[network], "--mode", mode]
    return [*command, "--batch", options.batch, "--threads", options.threads]


def pytorch(network: str, modes: list[str], options) -> dict:
    """Seconds of every step of PyTorch, by mode and measure. A mode that was cut short has fewer, or none."""
    results = {}
    for mode in modes:
        command = pytorch_command("time", network, mode, options) + ["--steps", options.steps, "--limit", LIMIT]
        printed = run_mode(mode, command, options.threads) or ""
        lines = [json.loads(line) for line in printed.splitlines()]
        results[mode] = {
            measure: [line["seconds"] for line in lines if line["measure"] == measure and "seconds" in line]
            for measure in MEASURES
        }
        if any("cut_short" in line for line in lines):
            print(f"{network}, PyTorch {mode}: cut short, a step takes more than {LIMIT} s", file=sys.stderr)
    return results


def pytorch_peak(network: str, mode: str, options) -> int:
    """PyTorch's peak bytes in one mode. What it frees goes back at once, so that only live memory counts."""
    command = pytorch_command("memory", network, mode, options)
    printed = run(command, options.threads, MALLOC_MMAP_THRESHOLD_="65536")
    return json.loads(printed)["peak_bytes"]


def program(network: str, precision: str, threads: int, options) -> dict:
    """The program's own measurement."""
    command = [options.program, "bench", "train", "--network", network, "--batch", options.batch]
    command += ["--precision", precision, "--steps", options.steps, "--threads", threads, "--json"]
    result = checked(run(command, threads), " ".join(str(word) for word in command))
    asked = {"network": network, "batch": options.batch, "precision": precision, "threads": threads}
    for field, value in asked.items():
        if result[field] != value:
            sys.exit(f"the program measured `{field}` = {result[field]!r}, but {value!r} was asked for")
    if result.get("classes", CLASSES[network]) != CLASSES[network]:
        found = result["classes"]
        sys.exit(f"{network}: {found} classes in the program, {CLASSES[network]} for PyTorch: make them agree")
    return result


def checked(printed: str, command: str) -> dict:
    """The JSON object that the program printed, with every field that the table needs."""
    try:
        result = json.loads(printed)
    except json.JSONDecodeError as error:
        sys.exit(f"`{command}` did not print one JSON object ({error}): build the program of this commit")
    if not isinstance(result, dict):
        sys.exit(f"`{command}` printed JSON that is not an object: build the program of this commit")
    missing = [field for field in FIELDS if field not in result]
    if missing:
        names = ", ".join(f"`{field}`" for field in missing)
        sys.exit(f"the JSON of `{command}` lacks {names}: build the program of this commit")
    for field in NUMBERS:
        if isinstance(result[field], bool) or not isinstance(result[field], int | float) or result[field] <= 0:
            sys.exit(f"the JSON of `{command}` has `{field}`: {result[field]!r}, which is not a positive number")
    return result


def images_per_second(rounds: list[dict], mode: str, measure: str, batch: int) -> float | None:
    """The median over the rounds of the median of a round; nothing if no step came to its end."""
    times = [r["pytorch"].get(mode, {}).get(measure) for r in rounds]
    medians = [statistics.median(seconds) for seconds in times if seconds]
    return batch / statistics.median(medians) if medians else None


def best(speeds: dict, network: str, prefix: str = "") -> str:
    """The fastest mode, of those whose name begins with `prefix`."""
    finished = {mode: speed for mode, speed in speeds.items() if speed is not None and mode.startswith(prefix)}
    if not finished:
        sys.exit(f"{network}: PyTorch finished no step in {LIMIT} s in any {prefix} mode: use a smaller --batch")
    return max(finished, key=finished.get)


def winners(speeds: dict, network: str) -> dict:
    """For each measure, the best mode in f32 and the best of all."""
    return {m: {"f32": best(speeds[m], network, "f32"), "all": best(speeds[m], network)} for m in MEASURES}


def speeds_of(rounds: list[dict], modes: list[str], batch: int) -> dict:
    return {m: {mode: images_per_second(rounds, mode, m, batch) for mode in modes} for m in MEASURES}


def measure(network: str, options) -> dict:
    """All rounds of one network, and their medians."""
    modes, rounds = MODES, []
    for number in range(options.rounds):
        sides = {
            "pytorch": lambda: pytorch(network, modes, options),
            "program": lambda: {p: program(network, p, options.threads, options) for p in PRECISIONS},
        }
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        load = os.getloadavg()[0]
        rounds.append({"load": load} | {side: sides[side]() for side in order})
        if number == 0 and options.skip_slow_modes:
            won = winners(speeds_of(rounds, modes, options.batch), network)
            modes = [mode for mode in MODES if any(mode in kinds.values() for kinds in won.values())]
    single = None
    if options.threads > 1:
        single = {p: program(network, p, 1, options) for p in PRECISIONS}

    # Best of the modes that every round measured.
    won = winners(speeds_of(rounds, modes, options.batch), network)
    weighed = dict.fromkeys(won["training"].values())
    ours = {p: [r["program"][p] for r in rounds] for p in PRECISIONS}
    medians = {
        p: {field: statistics.median(result[field] for result in results) for field in NUMBERS}
        | {"path": results[0]["path"], "peak_bytes": max(result["peak_bytes"] for result in results)}
        for p, results in ours.items()
    }
    return {
        "network": network,
        "batch": options.batch,
        "pytorch": {
            "images_per_second": speeds_of(rounds, MODES, options.batch),
            "best": won,
            "peak_bytes": {mode: pytorch_peak(network, mode, options) for mode in weighed},
        },
        "program": medians,
        "one_thread": single,
        "rounds": rounds,
    }


HEADER = [
    "network", "PyTorch best f32, images/s", "PyTorch best, images/s", "f32, images/s", "faster than f32",
    "bf16, images/s", "faster than best", "Gflop/s, f32 / bf16", "of the peak, f32 / bf16",
    "inference faster than f32 / best", "peak MB, f32 / bf16", "PyTorch peak MB, f32 / best",
    "all threads / one, f32 / bf16",
]  # fmt: skip


def row(result: dict) -> list[str]:
    """One line of the table."""
    theirs, ours = result["pytorch"], result["program"]
    speeds, won = theirs["images_per_second"]["training"], theirs["best"]["training"]
    inference, inference_won = theirs["images_per_second"]["inference"], theirs["best"]["inference"]
    rivals = list(zip(PRECISIONS, ["f32", "all"]))
    gains = {p: ours[p]["images_per_second"] / speeds[won[kind]] for p, kind in rivals}
    inference_gains = [ours[p]["inference_images_per_second"] / inference[inference_won[kind]] for p, kind in rivals]
    scaling = "–"
    if one := result["one_thread"]:
        scaling = both(ours[p]["images_per_second"] / one[p]["images_per_second"] for p in PRECISIONS)
    return [
        result["network"],
        f"{rate(speeds[won['f32']])} ({won['f32'].removeprefix('f32 ')})",
        f"{rate(speeds[won['all']])} ({won['all']})",
        rate(ours["f32"]["images_per_second"]),
        f"{gains['f32']:.2f}x",
        rate(ours["bf16"]["images_per_second"]),
        f"{gains['bf16']:.2f}x",
        " / ".join(f"{ours[p]['gflops']:,.0f}" for p in PRECISIONS),
        " / ".join(f"{100 * ours[p]['gflops'] / ours[p]['peak_gflops']:.0f} %" for p in PRECISIONS),
        both(inference_gains),
        " / ".join(megabytes(ours[p]["peak_bytes"]) for p in PRECISIONS),
        " / ".join(megabytes(theirs["peak_bytes"][won[kind]]) for _, kind in rivals),
        scaling,
    ]


def both(ratios) -> str:
    return " / ".join(f"{ratio:.2f}x" for ratio in ratios)


def rate(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmark training against PyTorch.")
    add_common(parser)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(CLASSES),
                        help="by commas (default: all of %(default)s)")  # fmt: skip
    parser.add_argument("--batch", type=int, default=256, help="images in a step (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="timed in each measurement (default: %(default)s)")
    parser.add_argument("--skip-slow-modes", action="store_true",
                        help="after the first round, measure only the PyTorch modes that won in it")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the record here")
    options = parser.parse_args()
    check_common(parser, options)
    for name in options.networks:
        if name not in CLASSES:
            parser.error(f"--networks {name}: not one of {', '.join(CLASSES)}")
    if options.batch < 2:
        parser.error(f"--batch {options.batch}: must be at least 2, for batch norm")
    if options.steps < 1:
        parser.error(f"--steps {options.steps}: must be at least 1")
    return options


def main():
    options = parse()
    print(table_line(HEADER))
    print(table_line(["---"] + ["---:"] * (len(HEADER) - 1)), flush=True)
    if options.show:
        record = json.loads(options.show.read_text())
        for result in record["results"]:
            print(table_line(row(result)))
        print(f"\n{describe(record)}; batch {record['batch']}.")
        return
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(options.threads),
        "rounds": options.rounds,
        "batch": options.batch,
        "steps": options.steps,
        "results": [],
    }
    for network in options.networks:
        record["results"].append(measure(network, options))
        print(table_line(row(record["results"][-1])), flush=True)
        if options.out:  # after every network, so that a long run that ends early is not lost
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{describe(record)}; batch {options.batch}.")


if __name__ == "__main__":
    main()
