#!/usr/bin/env python3
"""Draws the pictures of docs/model.md from the measurements in data/ and the model's predictions.

Usage: docs/pictures/draw.py [path of xstage]   (needs matplotlib; default build/cpu/xstage)
"""
import collections
import csv
import json
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[2]
XSTAGE = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/cpu/xstage")
WORKERS = {8: "#9ecae1", 16: "#4292c6", 33: "#2171b5", 66: "#08519c", 132: "#08306b"}

plt.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "xstage", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "lines.markersize": 4,
})


def rows(name):
    with open(ROOT / "data" / name) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def predict(dst, workers, size, gap):
    command = [XSTAGE, "predict", "--json", "--path", "st16", "--dst", dst, "--workers", str(workers), "--bytes",
               str(size), "--gap-cycles", str(gap)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["mean_issue_cycles"]


def save(figure, name):
    figure.tight_layout()
    figure.savefig(ROOT / "docs/pictures" / name, metadata={"Date": None})


def mean_issue():
    """(dst, workers, bytes, gap) -> mean issue time of 16-byte stores that await nothing."""
    issues = collections.defaultdict(list)
    for row in rows("h200_burst_gap.csv"):
        if row["path"] == "st16" and row["completion"] == "0":
            key = row["dst"], int(row["ctas"]), int(row["bytes_per_cta"]), int(row["gap_cycles"])
            issues[key].append(float(row["issue_mean"]))
    return {key: sum(values) / len(values) for key, values in issues.items()}


def curves(measured, name, label, base, points):
    """points(key) -> x of a pattern that belongs into the picture, or None."""
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
    for panel, dst in zip(panels, ("nvlink", "host")):
        for workers, colour in WORKERS.items():
            found = sorted((points(key), key, issue) for key, issue in measured.items()
                           if key[:2] == (dst, workers) and points(key) is not None)
            panel.plot([x for x, _, _ in found], [issue for _, _, issue in found], "o", color=colour)
            panel.plot([x for x, _, _ in found], [predict(*key) for _, key, _ in found], color=colour, label=workers)
        panel.set_xscale("log", base=base)
        panel.set(yscale="log", xlabel=label, title=f"st16 to {dst}")
    panels[0].set_ylabel("mean issue of a burst, cycles")
    panels[0].legend(title="SMs (line: predicted)", fontsize=8)
    save(figure, name)


def placement():
    figure, panel = plt.subplots(figsize=(8, 2.8))
    found = [row for row in rows("h200_placement.csv") if row["path"] == "st16" and row["ctas"] == "16"]
    found.sort(key=lambda row: (int(row["gpc"]), int(row["smid"])))
    colours = plt.get_cmap("tab10")
    panel.bar(range(16), [float(row["issue_mean"]) / 1000 for row in found],
              color=[colours(int(row["gpc"])) for row in found])
    panel.set_xticks(range(16), [f"{row['smid']}\nGPC {row['gpc']}" for row in found], fontsize=7)
    panel.set(ylabel="mean issue, 1000 cycles", title="16 SMs x 64 KiB to host, no gap: nine of them share GPC 0")
    save(figure, "placement.svg")


def copies():
    figure, panel = plt.subplots(figsize=(8, 3.2))
    found = [row for row in rows("h200_bulk_copies.csv")
             if row["dst"] == "host" and row["ctas"] == "1" and row["completion"] == "1"]
    for burst, colour in ((65536, "#fdae6b"), (131072, "#e6550d"), (262144, "#7f2704")):
        points = sorted((int(row["path"][4:]), float(row["issue_mean"])) for row in found
                        if int(row["bytes_per_cta"]) == burst)
        sizes = [size for size, _ in points]
        law = [100 + max(46 * burst / size, (burst - 7.2 * size) / 25.5) for size in sizes]
        panel.plot(sizes, [issue for _, issue in points], "o", color=colour)
        panel.plot(sizes, law, color=colour, label=f"{burst // 1024} KiB")
    panel.set_xscale("log", base=2)
    panel.set(yscale="log", xlabel="bytes of a copy", ylabel="issue of a burst, cycles",
              title="one SM, bulk copies to host: 46 cycles a copy, 7.2 copies ahead, 25.5 bytes a cycle")
    panel.legend(title="burst (line: law)", fontsize=8)
    save(figure, "copies.svg")


issues = mean_issue()
curves(issues, "burst.svg", "KiB of a burst, per SM (no gap)", 2, lambda key: key[2] // 1024 if key[3] == 0 else None)
curves(issues, "gap.svg", "gap, cycles (bursts of 64 KiB)", 10,
       lambda key: key[3] if key[2] == 65536 and key[3] > 0 else None)
placement()
copies()
