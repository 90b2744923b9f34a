"""The speed-up of training on several machines, on paper: the formula of docs/scale.md with measured constants.

    python bench/scale.py records/2026-11-17-scale/scale.jsonl

Speed, exchanges per step and the latency between two hosts are those of the record; parameters and features those of
`lsoftmax network NAME`. What is assumed: 10 µs more per exchange for every further rank, and the bandwidth of the cable.
"""

import json
import sys

PARAMETERS = {"mnist": 597_184, "cifar10": 1_534_976}
FEATURES = 256
BATCH = 1024
PER_RANK = 10e-6
RANKS = (2, 4, 8, 16, 32, 64)


def main(path):
    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
    print("| network | machine | Gbit/s | " + " | ".join(f"{ranks} ranks" for ranks in RANKS) + " |")
    print("|---|---|---:|" + "---:|" * len(RANKS))
    for network, parameters in PARAMETERS.items():
        alone = [one for one in lines if one["network"] == network and (one["ranks"], one["threads"]) == (1, 2)]
        shared = [one for one in lines if one["network"] == network and one["ranks"] == 2]
        speed = max(one["images_per_second"] for one in alone)
        exchanges = shared[0]["exchanges_per_step"]
        latency = max(one["latency_seconds"] for one in shared)
        for factor, machine in ((1, "as measured"), (16, "16 times as fast")):
            for gigabits in (10, 100):
                def seconds(ranks):
                    rest = (ranks - 1) / ranks
                    sent = 8 * parameters + 4 * BATCH * FEATURES
                    messages = exchanges * (latency + PER_RANK * (ranks - 2)) if ranks > 1 else 0
                    return BATCH / (ranks * speed * factor) + messages + rest * sent / (gigabits * 1e9 / 8)

                cells = (f"{seconds(1) / seconds(ranks):.1f}x" for ranks in RANKS)
                print(f"| {network} | {machine} | {gigabits} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
