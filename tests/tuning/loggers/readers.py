"""What the real libraries hold of what they were sent, read back by themselves."""

import json
import struct
from types import SimpleNamespace

from tune_calib.tuning.loggers.tensorboard import FOLDER


def of_tensorboard(out):
    """Curves, final metrics and settings by the name of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    runs = {}
    for folder in (out / FOLDER).iterdir():
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        tags = events.Tags()
        points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}
        start_info = events.summary_metadata.get("_hparams_/session_start_info")
        settings = {}
        if start_info is not None:
            info = HParamsPluginData.FromString(start_info.plugin_data.content).session_start_info
            settings = {
                key: getattr(value, value.WhichOneof("kind")) for key, value in info.hparams.items()
            }
        runs[folder.name.rpartition("-")[0] or folder.name] = SimpleNamespace(
            points=points, settings=settings, status=settings.get("status")
        )
    return runs


def of_mlflow(out):
    from mlflow import MlflowClient

    client = MlflowClient()
    runs = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            points = {
                name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            runs[run.info.run_name] = SimpleNamespace(
                points=points, settings=dict(run.data.params), status=run.data.tags.get("status")
            )
    return runs


def records(path):
    """Contents of an offline file of W&B: a log as LevelDB has it, in blocks of 32 KiB."""
    content, at, content_parts = path.read_bytes(), 7, b""
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        content_parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield content_parts
            content_parts = b""


def of_wandb(out):
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    # A finished run is written by a process of its own, which may not have got to it yet.
    wandb.teardown()
    runs = {}
    for path in sorted(out.rglob("*.wandb")):
        run = SimpleNamespace(points={}, settings={}, status=None)
        name = None
        for content in records(path):
            record = Record.FromString(content)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name = record.run.display_name
                run.settings |= {
                    update.key: json.loads(update.value_json) for update in record.run.config.update
                }
            elif kind == "history":
                row = {
                    ".".join(update.nested_key) or update.key: json.loads(update.value_json)
                    for update in record.history.item
                }
                for key, value in row.items():
                    run.points.setdefault(key, []).append((row.get("epoch"), value))
            elif kind == "summary":
                for update in record.summary.update:
                    key = ".".join(update.nested_key) or update.key
                    run.points.setdefault(key, []).append((None, json.loads(update.value_json)))
        run.status = dict(run.points.get("status", [])).get(None)
        runs[name] = run
    return runs


READERS = {"tensorboard": of_tensorboard, "mlflow": of_mlflow, "wandb": of_wandb}
