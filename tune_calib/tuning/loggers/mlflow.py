"""MLflow: an experiment for each folder, where ``MLFLOW_TRACKING_URI`` points."""

import logging
import os
import time

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from tune_calib.tuning.loggers.base import Logger, Run, Values

_KEY, _NAME = "tune_calib.trial", "mlflow.runName"
_MOST = 100  # parameters per request
_LONGEST = 6000  # characters of a parameter
# By default, a request to a server that does not respond takes a quarter of an hour.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


class MLflow(Logger):
    """Writes a run for each trial, found by a tag."""

    remedy = "check MLFLOW_TRACKING_URI"

    def _connect(self) -> None:
        for variable, value in _PATIENCE.items():
            os.environ.setdefault(variable, value)
        logger = logging.getLogger("mlflow")
        level = logger.level
        logger.setLevel(logging.WARNING)  # it logs every table that it creates
        try:
            self._client = MlflowClient()
            if experiment := self._client.get_experiment_by_name(self.group):
                self._experiment = experiment.experiment_id
            else:
                self._experiment = self._client.create_experiment(self.group)
        finally:
            logger.setLevel(level)

    def _open_run(self, run: Run) -> str:
        tag = f"{self.sweep} {run.key}"
        runs = self._client.search_runs([self._experiment], f"tags.`{_KEY}` = '{tag}'") or [
            self._client.create_run(self._experiment, tags={_KEY: tag, _NAME: run.name})
        ]
        run_id = str(runs[0].info.run_id)
        parameters = [Param(name, str(value)[:_LONGEST]) for name, value in run.settings.items()]
        for first in range(0, len(parameters), _MOST):
            self._client.log_batch(run_id, params=parameters[first : first + _MOST])
        return run_id

    def _write_epoch(self, opened: str, epoch: int, values: Values) -> None:
        now = int(time.time() * 1000)
        points = [Metric(name, value, now, step=epoch) for name, value in values.items()]
        self._client.log_batch(opened, metrics=points)

    def _end_run(self, opened: str, run: Run, epoch: int, status: str, final: Values) -> None:
        self._write_epoch(opened, epoch, final)
        self._client.set_tag(opened, "status", status)
        state = "FINISHED" if status == "done" else "FAILED"
        self._client.set_terminated(opened, state)

    def _close_run(self, opened: str) -> None:
        self._client.set_terminated(opened, "KILLED")
