"""Training on several machines, on paper: the formulas of docs/scale.md with measured constants.

    python bench/scale.py records/2026-11-17-scale/scale.jsonl records/2026-11-17-shards/shards.jsonl

Speeds (of cifar100 and lfw those of docs/speed.md), the latency between two hosts and the cost of a class are those of the records;
parameters and units those of `lsoftmax network NAME`. What is assumed: 10 µs more per exchange for every further rank, and the bandwidth of the cable.
"""

import json
import sys

# Parameters, units, features.
NETWORKS = {
    "mnist": (597_184, 11, 256),
    "cifar10": (1_534_976, 14, 256),
    "cifar100": (9_296_064, 14, 512),
    "lfw": (12_301_440, 18, 512),
}
SPEEDS = {"cifar100": 77.9, "lfw": 32.5}
BATCH = 1024
PER_RANK = 10e-6
RANKS = (2, 4, 8, 16, 32, 64)
GIGABITS = (10, 100)
MACHINES = ((1, "as measured"), (16, "16 times as fast"))
# A divided head: samples per batch, features, shards, and the exchanges of its pass.
SAMPLES, FEATURES, SHARDS, EXCHANGES = 256, 128, 64, 4


def lines_of(path):
    return [json.loads(line) for line in open(path) if line.startswith("{")]


def cable(gigabits, ranks, sent):
    return (ranks - 1) / ranks * sent / (gigabits * 1e9 / 8)


def main(scale, shards):
    scale, shards = lines_of(scale), lines_of(shards)
    latency = max(one["latency_seconds"] for one in scale if one["ranks"] == 2)
    messages = lambda exchanges, ranks: exchanges * (latency + PER_RANK * (ranks - 2)) if ranks > 1 else 0
    speeds = dict(SPEEDS)
    for one in scale:
        if (one["ranks"], one["threads"]) == (1, 2):
            speeds[one["network"]] = max(speeds.get(one["network"], 0), one["images_per_second"])
    columns = " | ".join(f"{ranks} ranks" for ranks in RANKS)
    print(f"| network | machine | Gbit/s | {columns} |")
    print("|---|---|---:|" + "---:|" * len(RANKS))
    shares = {}
    for network, (parameters, units, features) in NETWORKS.items():
        for factor, machine in MACHINES:
            for gigabits in GIGABITS:
                def seconds(ranks):
                    sent = 8 * parameters + 4 * BATCH * features
                    work = BATCH / (ranks * speeds[network] * factor)
                    return work + messages(4 * units + 2, ranks) + cable(gigabits, ranks, sent)

                cells = (f"{seconds(1) / seconds(ranks):.1f}x" for ranks in RANKS)
                print(f"| {network} | {machine} | {gigabits} | " + " | ".join(cells) + " |")
                shares[network, factor, gigabits] = cable(gigabits, 8, 8 * parameters) / seconds(8)
    print("\nthe share of gradients on the cable, on 8 ranks, by machine and Gbit/s:")
    for (network, factor, gigabits), share in shares.items():
        print(f"{network}, {factor}x, {gigabits}: {100 * share:.1f} %")

    # The cost of a class is that of its samples, and that of reading and updating its weights: a N + b.
    alone = {one["samples"]: one for one in shards if one["ranks"] == 1 and one["sample_rate"] == 1}
    few, many = min(alone), max(alone)
    cost = lambda samples: min(alone[samples]["step_seconds"]) / alone[samples]["classes"]
    a = (cost(many) - cost(few)) / (many - few)
    b = cost(few) - a * few
    print(f"\na = {1e9 * a:.2f} ns, b = {1e9 * b:.0f} ns per class, from batches of {few} and {many}\n")
    columns = " | ".join(["1 rank", *(f"{ranks} ranks" for ranks in RANKS)])
    print(f"| classes | machine | Gbit/s | {columns} |")
    print("|---:|---|---:|" + "---:|" * (1 + len(RANKS)))
    for classes in (1_000_000, 10_000_000):
        for factor, machine in MACHINES:
            for gigabits in GIGABITS:
                def seconds(ranks):
                    sent = 8 * SAMPLES * FEATURES + 16 * SAMPLES * SHARDS
                    work = classes * (a * SAMPLES + b) / (ranks * factor)
                    return work + messages(EXCHANGES, ranks) + cable(gigabits, ranks, sent)

                cells = (f"{1e3 * seconds(ranks):,.0f} ms" for ranks in (1, *RANKS))
                print(f"| {classes:,} | {machine} | {gigabits} | " + " | ".join(cells) + " |")
        memory = (f"{8 * classes * FEATURES / ranks / 1e9:.2f} GB" for ranks in (1, *RANKS))
        print(f"| {classes:,} | memory of each | | " + " | ".join(memory) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:3])
