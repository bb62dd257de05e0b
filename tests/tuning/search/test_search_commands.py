"""The command that a search prints for its choice, typed again, is that choice."""

import shlex
from dataclasses import replace
from unittest import mock

import pytest

from tests.support import here, sample
from tune_calib.cli import run as commands
from tune_calib.tuning import plan as planning
from tune_calib.tuning.search.outcome import format_choice
from tune_calib.tuning.search.study import SearchStudy

FIXED = {
    "a variant of the method": [
        "fedlas_ls", "--set", "network.indicator=max_prob", "--epochs", "3", "--seeds", "2",
    ],
    "recipe, data and seeds": [
        "mac_cal", "--dataset", "cifar10", "--recipe", "focal", "--backbone", "resnet50",
        "--set", "data.train_fraction=0.1", "--set", "network.weight_decay=0.00001",
        "--network-seeds", "2", "--head-seeds", "3", "--own-recipes", "--portable",
        "--holdout", "test", "--norm", "half", "--data-root", "some where",
    ],
    "a backbone that the quick recipe was not made for": [
        "ls", "--dataset", "cifar10", "--recipe", "quick", "--backbone", "small_cnn",
    ],
    "a pipeline": ["ls+mac_cal+temperature", "--set", "network.lr=0.05", "--epochs", "3"],
    "null and lists": [
        "mac_cal", "--set", "network.milestones=[0.3, 0.9]", "--set", "network.clip_grad_norm=null",
        "--set", "head.q0=0.5",
    ],
}  # fmt: skip


def job_of(*words):
    """The job behind a command, which is not carried out."""
    with (
        mock.patch.object(planning, "check_run"),  # which needs the data
        mock.patch.object(commands, "print_plan") as printed,
    ):
        ended = here(*words, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    return printed.call_args.args[0].run


@pytest.mark.parametrize("name", sample(list(FIXED), 2))
def test_the_command_of_a_choice_gives_its_trials(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    job = job_of("search", *FIXED[name], "--sampler", "random", "--out", tmp_path / "out")
    candidates = job.definition.candidates
    study = SearchStudy(job.definition, job.out)
    for number in range(4):
        point = study.suggestion(number).params
        command = format_choice(job.definition, job.location, point)
        words = shlex.split(command)
        assert words[:2] == ["tune-calib", "compare"]
        again = job_of(*words[1:])
        chosen = {trial.spec.hash for trial in candidates.trials(point, number)}
        assert {trial.spec.hash for trial in again.planned_trials} == chosen
        assert again.location.data_root == job.location.data_root
        assert again.location.store == job.location.store


def test_a_search_under_a_recipe_of_before_has_no_command(tmp_path):
    job = job_of("search", "ls", "--out", tmp_path / "out")
    asked = job.definition.resolved
    recipe = replace(asked.recipe, settings={"network": {"epochs": 7}})
    question = replace(job.definition, resolved=replace(asked, recipe=recipe))
    job = replace(job, definition=question)
    assert format_choice(job.definition, job.location, {"network.alpha": 0.1}) == ""
