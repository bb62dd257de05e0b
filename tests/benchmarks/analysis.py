"""A year of results: 200,000 trials and 10 million curve rows, ours against pandas on CSV.

python -m tests.benchmarks.analysis [share of a year, 1 unless given]

Both sides do the same in a fresh process each: read all trials, keep those that are done, rank 20
methods over 20 (data set, backbone) columns by the mean ECE of 500 seeds; then read all curves and
take the mean accuracy of each method and epoch. The answers must agree. Ours are 20 runs in 8,000
Parquet files, each of a Ray trial with a head batch of 50, as a year leaves them; pandas has two
CSV files, which somebody must have merged before.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from tune_calib.results import tables as results
from tune_calib.results.columns import TableName
from tune_calib.results.manifests import PlannedRecord, RungRecord, RunManifest

METHODS, EPOCHS, HEADS = 20, 25, 50
COLUMNS = [(f"data{d}", f"net{b}") for d in range(5) for b in range(4)]
CURVES = ("train/accuracy", "train/confidence")
METRICS = ("accuracy", "ece", "aece", "mce", "nll", "brier", "o_ece", "u_ece", "cece", "ace")
BAD = 0.02  # share of trials that diverged


def generate(root: Path, seeds: int) -> None:
    """Write a run for each column, as Ray trials of ``HEADS`` rows, and two CSV files."""
    rng = np.random.default_rng(0)
    trials_csv, curves_csv = [], []
    for place, (dataset, backbone) in enumerate(COLUMNS):
        trials = _trials(rng, place, dataset, backbone, seeds)
        curves = _curves(rng, trials["spec_hash"])
        out = root / f"{dataset}-{backbone}"
        _write_sweep(out, dataset, trials)
        for first in range(0, len(trials), HEADS):
            name = f"heads-{first:06}.parquet"
            rows = slice(first, first + HEADS)
            _write(out / "trials" / name, "trials", trials.iloc[rows])
            many = slice(first * EPOCHS * len(CURVES), (first + HEADS) * EPOCHS * len(CURVES))
            _write(out / "curves" / name, "curves", curves.iloc[many])
        trials_csv.append(trials)
        curves_csv.append(pa.Table.from_pandas(curves, preserve_index=False))
    trials = pa.Table.from_pandas(pd.concat(trials_csv), preserve_index=False)
    pyarrow.csv.write_csv(trials, root / "trials.csv")
    pyarrow.csv.write_csv(pa.concat_tables(curves_csv), root / "curves.csv")


def _trials(
    rng: np.random.Generator, place: int, dataset: str, backbone: str, seeds: int
) -> pd.DataFrame:
    count = METHODS * seeds
    method, seed = np.divmod(np.arange(count), seeds)
    frame = pd.DataFrame(
        {
            "schema_version": 1,
            "spec_hash": [f"{place:04x}{i:012x}" for i in range(count)],
            "sweep": f"{place:016x}",
            "rung": method,
            "rung_label": [f"method{m}" for m in method],
            "data": json.dumps({"dataset": dataset}),
            # As long as the slots of real trials are.
            "network": [json.dumps({"method": f"method{m}", "recipe": "x" * 400}) for m in method],
            "head": [json.dumps({"seed": int(s), "recipe": "x" * 500}) for s in seed],
            "dataset": dataset,
            "backbone": backbone,
            "network_seed": seed,
            "head_seed": seed,
            "status": np.where(rng.random(count) < BAD, "diverged", "done"),
            "wall_s": rng.random(count),
            "device": "cpu",
            "versions": json.dumps({"torch": "x" * 140}),
        }
    )
    for split in ("select", "test"):
        for metric in METRICS:
            values = rng.normal(0.1 + 0.01 * method, 0.02).clip(0, 1)
            frame[f"{split}/{metric}"] = np.where(frame["status"] == "done", values, np.nan)
    return frame


def _curves(rng: np.random.Generator, hashes: "pd.Series[str]") -> pd.DataFrame:
    rows = EPOCHS * len(CURVES)
    return pd.DataFrame(
        {
            "spec_hash": np.repeat(hashes.to_numpy(), rows),
            "epoch": np.tile(np.repeat(np.arange(1, EPOCHS + 1), len(CURVES)), len(hashes)),
            "name": np.tile(CURVES, EPOCHS * len(hashes)),
            "value": rng.random(rows * len(hashes)),
        }
    )


def _write(path: Path, table: TableName, frame: pd.DataFrame) -> None:
    schema = results._schema(table, [dict.fromkeys(frame)])
    full = frame.reindex(columns=schema.names)
    content = pa.Table.from_pandas(full, schema, preserve_index=False)
    results.write_file(path.parents[1], path.stem, table, content)


def _write_sweep(out: Path, dataset: str, trials: pd.DataFrame) -> None:
    rungs = [
        RungRecord(index=m, label=f"method{m}", published=None, kind="variant")
        for m in range(METHODS)
    ]
    columns = ["spec_hash", "rung", "network_seed", "head_seed"]
    seeds = sorted(set(trials["network_seed"].tolist()))
    RunManifest(
        version=1,
        sweep=trials["sweep"].iloc[0],
        title="Generated",
        command="none",
        dataset=dataset,
        setting="generated",
        published=None,
        rungs=rungs,
        network_seeds=seeds,
        head_seeds=seeds,
        paired_seeds=True,
        planned=[PlannedRecord(**row) for row in trials[columns].to_dict("records")],
    ).write(out)


def ours(root: Path) -> dict[str, Any]:
    """Load, filter and rank with this project; then the curves."""
    from analysis.compare.gather import collect
    from analysis.compare.ranks import rank
    from analysis.load import load
    from analysis.tidy import choose

    start = time.perf_counter()
    folders = sorted(path.parent for path in root.glob("*/sweep.json"))
    collected = collect(folders, None, "ece")
    table = rank(choose(collected.frame, status="done"), "ece")
    ranked = time.perf_counter()
    sums = []
    for folder in folders:
        sweep = load(folder, "ece")
        curves = sweep.recorded("train/accuracy")
        methods = sweep.trials.set_index("spec_hash")["rung_label"]
        sums.append(_sums(curves.assign(method=curves["spec_hash"].map(methods))))
    return _answer(start, ranked, table.summary["mean_rank"], pd.concat(sums))


def plain(root: Path) -> dict[str, Any]:
    """The same with pandas on two CSV files."""
    start = time.perf_counter()
    trials = pd.read_csv(root / "trials.csv", low_memory=False).drop_duplicates("spec_hash")
    done = trials[trials["status"] == "done"]
    cells = done.groupby(["rung_label", "dataset", "backbone"])["test/ece"].mean()
    printed = (100 * cells).round(2).unstack(["dataset", "backbone"])
    mean_rank = printed.rank(method="min").mean(axis="columns")
    ranked = time.perf_counter()
    curves = pd.read_csv(root / "curves.csv").drop_duplicates(["spec_hash", "epoch", "name"])
    curves = curves[curves["name"] == "train/accuracy"]
    methods = trials.set_index("spec_hash")["rung_label"]
    sums = _sums(curves.assign(method=curves["spec_hash"].map(methods)))
    return _answer(start, ranked, mean_rank, sums)


def _sums(curves: pd.DataFrame) -> pd.DataFrame:
    return curves.groupby(["method", "epoch"], observed=True)["value"].agg(["sum", "count"])


def _answer(
    start: float, ranked: float, mean_rank: "pd.Series[float]", sums: pd.DataFrame
) -> dict[str, Any]:
    total = sums.groupby(level=["method", "epoch"]).sum()
    means = total["sum"] / total["count"]
    return {
        "rank_s": ranked - start,
        "curves_s": time.perf_counter() - ranked,
        "cpu_s": time.process_time(),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "ranks": {method: round(value, 9) for method, value in sorted(mean_rank.items())},
        "trajectory": [round(value, 9) for value in means.sort_index()],
    }


def _in_a_process(*arguments: str) -> dict[str, Any]:
    """A part in a process of its own, whose peak memory is that of the part alone."""
    command = [sys.executable, "-m", "tests.benchmarks.analysis", *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(run.stdout))


def _part(name: str, folder: Path, seeds: str) -> dict[str, Any]:
    if name != "generate":
        return {"ours": ours, "plain": plain}[name](folder)
    start = time.perf_counter()
    generate(folder, int(seeds))
    return {"generated_s": time.perf_counter() - start}


def main() -> None:
    """Generate, measure both sides in processes of their own, compare the answers."""
    if len(sys.argv) == 4:
        print(json.dumps(_part(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
        return
    seeds = max(10, int(500 * float(sys.argv[1]) if sys.argv[1:] else 500))
    trials = len(COLUMNS) * METHODS * seeds
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        took = _in_a_process("generate", folder, str(seeds))["generated_s"]
        files = len(list(Path(folder).glob("*/*/*.parquet")))
        print(f"{trials:,} trials, {trials * EPOCHS * len(CURVES):,} curve rows, {files:,} files,")
        print(f"generated in {took:.0f} s", flush=True)
        for side in ("ours", "plain"):
            answer = answers[side] = _in_a_process(side, folder, str(seeds))
            print(
                f"{side:6} load, filter, rank {answer['rank_s']:6.1f} s, curves "
                f"{answer['curves_s']:6.1f} s, CPU {answer['cpu_s']:6.1f} s, peak "
                f"{answer['peak_bytes'] / 1e9:.2f} GB",
                flush=True,
            )
    for key in ("ranks", "trajectory"):
        assert answers["ours"][key] == answers["plain"][key], f"the two {key} differ"
    print("both give the same ranks and the same trajectories")


if __name__ == "__main__":
    main()
