"""A call leaves the process of its caller, e.g. a notebook, as it was."""

import importlib
import logging
import os
import random
import signal
import sys
import warnings

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optuna
import pytest
import torch
from threadpoolctl import threadpool_info

import tune_calib
from tests import drawing
from tune_calib.spec import plugins
from tune_calib.tuning.work.execution import restored_process

# Libraries that change the process as they are loaded, which a call may be the first to need.
for _name in ("mlflow", "ray.tune", "scipy.special", "sklearn.linear_model", "sympy", "wandb"):
    importlib.import_module(_name)

ASKED = {"epochs": 1, "set": {"network.deterministic": True}}
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def state_of_process():
    """Everything that a call may have changed, by name."""
    loggers = {"": logging.root}
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            loggers[name] = logger
    state = {
        "environment": dict(os.environ),
        "folder and paths": (os.getcwd(), list(sys.path), plugins.in_use()),
        "filters of warnings": list(warnings.filters),
        "handlers of signals": list(map(signal.getsignal, HANDLED)),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.stdout, sys.stderr),
        "random": random.getstate(),
        "numpy": (*map(str, np.random.get_state()), np.geterr()),
        "torch random": torch.get_rng_state().tolist(),
        "torch": (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_deterministic_debug_mode(),
            torch.get_float32_matmul_precision(),
            torch.backends.cuda.matmul.fp32_precision,
            torch.backends.cudnn.conv.fp32_precision,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
        ),
        "threads of BLAS": {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()},
        "backend": (mpl.get_backend(), mpl.is_interactive(), plt.get_fignums()),
        "style": dict(mpl.rcParams),
        "colours": [mpl.colors.to_rgba(letter) for letter in "bgrcmyk"],
    }
    for name, logger in loggers.items():
        state[f"logger {name}"] = (logger.level, logger.propagate, list(logger.handlers))
    return state


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """A process whose every setting is another than that of the program and of its trials."""
    with monkeypatch.context() as patched, mpl.rc_context(), restored_process():
        patched.chdir(tmp_path)
        patched.setenv("TUNE_GLOBAL_CHECKPOINT_S", "7")
        patched.delenv("RAY_AIR_NEW_OUTPUT", raising=False)
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_default_dtype(torch.float64)
        torch.backends.cudnn.benchmark = True
        for name in ("ray", "ray.tune"):
            logging.getLogger(name).setLevel(logging.DEBUG)
        level, backend = optuna.logging.get_verbosity(), mpl.get_backend()
        optuna.logging.set_verbosity(optuna.logging.INFO)
        plt.switch_backend("svg")
        plt.ion()
        plt.figure()
        mpl.rcParams["lines.linewidth"] = 7
        with torch.no_grad():
            yield
        plt.ioff()
        plt.close("all")
        plt.switch_backend(backend)
        optuna.logging.set_verbosity(level)


def check_unchanged(before):
    after = state_of_process()
    for name in before:
        assert after[name] == before[name], name


def test_a_call_without_ray_leaves_the_process_as_it_was(notebook, tmp_path, capsys):
    before = state_of_process()
    run = tune_calib.compare(["ce", "temperature"], **ASKED, address="none", out=tmp_path / "run")
    check_unchanged(before)
    assert set(run.rows["status"]) == {"done"}
    assert set(run.rows["threads"]) == {1}
    search = tune_calib.search("ls", epochs=1, trials=1, address="none", out=tmp_path / "search")
    check_unchanged(before)
    assert set(search.rows["status"]) == {"done"}
    assert "[I " not in capsys.readouterr().err  # of Optuna, as a line of its log begins
    with drawing.figures("png", names=["reliability"]):
        path = run.report()
    check_unchanged(before)
    assert len(list((path.parent / "figures").iterdir())) == 1
    assert search.figure("history").axes
    check_unchanged(before)
