"""What the benchmarks share: starting one side in a process of its own, the machine, and the table."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import cpuid

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/lsoftmax"
FLAGS = ["avx2", "avx512f", "avx512_bf16", "amx_bf16"]


def run(command: list, threads: int, **settings: str) -> str:
    """What a command prints. It sees only `threads` cores."""
    done = finished(command, threads, **settings)
    if done.returncode != 0:
        sys.exit(f"failed with code {done.returncode}: {' '.join(done.args)}")
    return done.stdout


def run_mode(mode: str, command: list, threads: int, **settings: str) -> str | None:
    """What PyTorch prints in a mode. If it crashes, says so and returns nothing: the mode is left out."""
    done = finished(command, threads, **settings)
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        print(f"PyTorch {mode} crashes on this machine ({name}), and is left out.", file=sys.stderr)
        return None
    if done.returncode != 0:
        sys.exit(f"failed with code {done.returncode}: {' '.join(done.args)}")
    return done.stdout


def finished(command: list, threads: int, **settings: str) -> subprocess.CompletedProcess:
    """A command that has come to its end."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)} | settings
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=subprocess.PIPE,
        text=True,
    )


def machine(threads: int) -> dict:
    """What the numbers depend on."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.+)", text)
    flags = cpuid.flags()
    return {
        "cpu": model[1] if model else platform.machine(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "threads": threads,
        "torch": importlib.metadata.version("torch"),
    }


def describe(record: dict) -> str:
    """The machine line."""
    host = record["machine"]
    flags = " ".join(host["flags"]) or "none of " + " ".join(FLAGS)
    return (
        f"{host['cpu']}, {host['cores']} cores, {host['threads']} thread(s); {flags}; "
        f"torch {host['torch']}; {record['date']}; median of {record['rounds']} round(s)"
    )


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def table_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def report(options, head: list[str], rows, measure, note: str = ""):
    """Prints the table of a record (`--show`), or measures every number of classes and writes the record.

    `rows` gives the lines of one result, `measure` the result of one number of classes.
    """
    print(table_line(head))
    print(table_line(["---:"] * len(head)), flush=True)
    shown = json.loads(options.show.read_text()) if options.show else None
    results = []
    for result in shown["results"] if shown else (measure(classes, options) for classes in options.classes):
        results.append(result)
        for line in rows(result):
            print(table_line(line), flush=True)
    record = shown or {
        "date": datetime.date.today().isoformat(),
        "machine": machine(options.threads),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "results": results,
    }
    print(f"\n{describe(record)}.")
    if shown:
        return
    if note:
        print(note)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def add_common(parser):
    """Options of every benchmark. `check_common` checks them."""
    available = len(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=available, help="for both sides (default: %(default)s)")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="(default: %(default)s)")
    parser.add_argument("--show", type=Path, metavar="RECORD", help="print the table of a record, measure nothing")


def check_common(parser, options):
    available = len(os.sched_getaffinity(0))
    if not 1 <= options.threads <= available:
        parser.error(f"--threads {options.threads}: this process may use 1 to {available}")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be at least 1")
    if not options.show and cpuid.amx_is_hidden():
        sys.exit(
            "The comparison would be void: this CPU has AMX, but the hypervisor hides the CPUID leaf that describes it "
            "(1Dh). PyTorch's oneDNN does not use AMX then, or crashes, while this program does."
        )
    if not options.show and not options.program.exists():
        parser.error(f"{options.program} is missing: run `cargo build --release` first")
