"""Test that the files around the program agree with it: workflows, hooks, templates, Makefile."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(set((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) - {
    ROOT / ".github/ISSUE_TEMPLATE/config.yml"
})  # fmt: skip
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def recipe(target: str) -> str:
    """Return the commands of a target of the Makefile."""
    (commands,) = re.findall(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.M)
    return commands


def jobs(path: Path) -> dict[str, dict]:
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def steps(path: Path) -> list[dict]:
    return [step for job in jobs(path).values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_make_and_pins_its_actions(path):
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        assert re.fullmatch(r"make ([\w-]+|\$\{\{ matrix\.suite \}\})", command), command
        if "$" not in command:
            assert recipe(command.removeprefix("make "))
    for action in [step["uses"] for step in steps(path) if "uses" in step]:
        assert re.fullmatch(r"actions/[\w-]+@v\d+", action), action


def test_slow_workflow_runs_each_slow_suite():
    (job,) = jobs(ROOT / ".github/workflows/slow.yml").values()
    targets = re.findall(r"^(test-[\w-]+):", MAKEFILE, re.M)
    targets.remove("test-gpu")  # the machines of the workflow have none
    assert job["strategy"]["matrix"]["suite"] == targets


def test_tests_run_on_each_supported_version_of_python():
    prefix = "Programming Language :: Python :: "
    versions = [name.removeprefix(prefix) for name in PROJECT["classifiers"]]
    job = jobs(ROOT / ".github/workflows/ci.yml")["test"]
    assert job["strategy"]["matrix"]["python-version"] == versions
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_hooks_run_the_commands_of_make_lint():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe("lint").splitlines()]
    expected = [command.removesuffix(" .") for command in commands]  # hooks get the changed files
    assert [entry.removesuffix(" --force-exclude") for entry in entries] == expected


def test_versions_of_make_lint_are_pinned():
    pins = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert {"ruff", "mypy", "import-linter"} <= set(pins)


def test_make_generate_runs_each_generator():
    modules = [
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "docs/generate").glob("*.py")
        if '__name__ == "__main__"' in path.read_text("utf-8")
    ]
    for module in [*modules, "docs.generate", "docs.results"]:
        assert f"-m {module}\n" in recipe("generate"), module


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_form_has_what_github_requires(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form)
    assert len({part["id"] for part in form["body"]}) == len(form["body"])
    assert all(part["attributes"]["label"] for part in form["body"])
