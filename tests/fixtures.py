"""Fixtures shared by the suite: one small real network on digits, and its feature bank."""

import contextlib
import gc
import importlib
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from threadpoolctl import threadpool_limits

from tests import drawing, support
from tests.support import CPU, small_spec
from tune_calib.cli import main
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.files.store import Store

# These two and the fixture `executors` change the program for all tests. A test that needs it as it
# is undoes them by a fixture (`with_figures`, `every_format`), a mark (`ray`) or a process.

# 1. A figure takes most of a second, and most tests that write a report do not look at its figures.
drawing.without_figures()
# 2. Files of tests need not survive a power cut; waiting for the disk is most of some tests.
os.fsync = lambda descriptor: None

# What follows is the environment of the tests, as a user may have it.

# Head trials run on one thread: exact comparisons of head batches with single heads rely on it.
torch.set_num_threads(1)
# Threads of BLAS spin while they wait: on two busy cores a small fit takes forty times as long.
threadpool_limits(1, user_api="blas")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes that tests start

# Expected output has full lines: readline sets COLUMNS when it is imported, which would wrap them.
with contextlib.suppress(ImportError):
    importlib.import_module("readline")
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# Tests neither read nor fill the user's cache.
CACHE = tempfile.TemporaryDirectory(prefix="tune-calib-tests-")
os.environ["TUNE_CALIB_CACHE"] = CACHE.name


def pytest_configure(config: pytest.Config) -> None:
    """Let sampled tests run all of their cases unless the slow tests are left out."""
    support.EVERY_CASE = "not slow" not in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that run Ray come first, and last of them what needs a Ray of its own."""
    files = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: (item.path not in files, "own_ray" in item.fixturenames))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep what a file has imported out of further collections of garbage: there are many."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let what is imported go at the end, where some libraries complain of what is left."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def executors():
    """3. Let runs without an address heed ``executor``, for starting a Ray takes seconds."""
    with support.choosing_executors():
        yield


@pytest.fixture(autouse=True)
def executor(request):
    """Execute the runs of a test in its own process, or by Ray if it is marked ``ray``."""
    with support.on_ray(request.node.get_closest_marker("ray") is not None):
        yield


@pytest.fixture(autouse=True)
def close_figures():
    """Close figures that a test left open: pyplot keeps them, and warns from the twentieth on."""
    yield
    plt.close("all")


@pytest.fixture
def with_figures():
    """Reports with their figures, in one format."""
    with drawing.figures("png"):
        yield


@pytest.fixture
def every_format():
    """Reports with their figures as they are written for a user."""
    with drawing.figures(*drawing.FORMATS):
        yield


@pytest.fixture
def own_ray(monkeypatch):
    """For a test whose runs start a Ray of their own each."""
    import ray

    if support.shared_ray.cache_info().currsize:
        support.shared_ray().close()
        support.shared_ray.cache_clear()
    assert not ray.is_initialized()  # a session stops the Ray that it started
    monkeypatch.setattr(support, "shared_ray", lambda: None)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that holds the network of ``small_spec``."""
    spec = small_spec()
    store = Store(tmp_path_factory.mktemp("store"))
    run = NetworkTraining(spec, store, load_development(spec.data, None), CPU)
    while run.step() is not None:
        pass
    run.close()
    return store


@pytest.fixture(scope="session")
def bank(trained: Store) -> FeatureBank:
    """The clean feature bank of ``small_spec``."""
    spec = small_spec(method="retrain")

    def splits():
        return load_development(spec.data, None), load_test(spec.data, None)

    return ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), trained, splits, CPU)


@pytest.fixture(scope="session")
def cifar_root() -> Path:
    """The real CIFAR-10 beside the checkout, where there is one."""
    root = Path(__file__).parents[2] / "shared" / "data"
    if not root.exists():
        pytest.skip("no ../shared/data")
    return root


@pytest.fixture(scope="session")
def calarena_results() -> Path:
    """The published result files of CalArena beside the checkout, where there are any."""
    root = Path(__file__).parents[2] / "shared" / "published" / "calarena"
    if not root.exists():
        pytest.skip("no ../shared/published/calarena")
    return root


@pytest.fixture
def refusal(capsys):
    """Run a command that must be refused, and return its message of one line."""

    def run_refused(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        message = capsys.readouterr().err
        assert ended.value.code == 2
        assert len(message.strip().splitlines()) == 1, message
        return message

    return run_refused
