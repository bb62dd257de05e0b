from pathlib import Path

from typer.testing import CliRunner

from tune_calib.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_table_of_methods_is_that_of_the_registry():
    command = "list methods --markdown"
    printed = CliRunner().invoke(app, command.split()).stdout.strip()
    after = README.split(f"<!-- tune-calib {command} -->")[1]
    assert after.split("<!-- end -->")[0].strip() == printed


def test_every_image_of_the_readme_is_there():
    names = [part.split(")")[0] for part in README.split("](.readme/")[1:]]
    assert names
    assert all((Path(__file__).parents[1] / ".readme" / name).exists() for name in names)
