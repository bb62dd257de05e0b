"""Test that the documentation agrees with the program."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from docs.generate import INSERTED, generate
from docs.generate.commands import commands as known_commands
from tune_calib.spec.methods import METHODS

KNOWN = known_commands()
ROOT = Path(__file__).parents[2]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in
         [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
          *sorted((ROOT / "docs/pages").rglob("*.md"))]}  # fmt: skip
SOURCES = sorted(
    path
    for folder in ("tune_calib", "search_spaces", "ablations", "analysis", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
)
ANCHOR = re.compile(r"docs/pages/([\w/-]+\.md)#([\w-]+)")


def page(name: str) -> str:
    return PAGES[f"docs/pages/{name}.md"]


def blocks(text: str, language: str = "") -> list[str]:
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.S | re.M)
    return [content for kind, content in fenced if kind == language]


def commands() -> list[tuple[str, str]]:
    """Return each ``tune-calib`` line in a block without a language."""
    lines_of_pages = []
    for name, text in PAGES.items():
        for block in blocks(text):
            lines = block.replace("\\\n", " ").splitlines()
            lines_of_pages += [(name, line) for line in lines if line.startswith("tune-calib ")]
    return lines_of_pages


@pytest.mark.parametrize("path", sorted({path for path, _ in commands()}))
def test_every_command_shown_is_one_that_the_program_knows(path):
    for line in [line for other, line in commands() if other == path]:
        words = shlex.split(line, comments=True)[1:]
        words = words[: words.index(">")] if ">" in words else words
        if words == ["--help"]:
            continue
        name = " ".join(words[: 2 if words[0] == "analyze" else 1])
        # This parses the words, and runs nothing.
        context = KNOWN[name].make_context(name, words[len(name.split()) :])
        assert context.params, line


def test_every_picture_is_there_and_shown():
    shown = set()
    for name, text in PAGES.items():
        folder = (ROOT / name).parent
        shown |= {(folder / link).resolve() for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)}
    images = (ROOT / "docs/pages/images").rglob("*")
    assert shown == {path for path in images if path.is_file()}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name):
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", PAGES[name], flags=re.S | re.M)
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)[^)]*\)", text):
        assert (ROOT / name).parent.joinpath(link).exists(), link


def test_sources_point_to_sections_that_exist():
    missing = []
    for path in SOURCES:
        for name, anchor in ANCHOR.findall(path.read_text()):
            if anchor not in anchors(name):
                missing.append(f"{path}: {name}#{anchor}")
    assert not missing


def anchors(name: str) -> set[str]:
    """Return the anchors of the headings of a page, as mkdocs makes them."""
    headings = re.findall(r"^#+ (.+)$", page(name.removesuffix(".md")), re.M)
    return {re.sub(r"[^\w]+", "-", heading.lower()).strip("-") for heading in headings}


def test_generated_parts_are_up_to_date():
    for path, text in generate():
        name = path.relative_to(ROOT)
        assert path.is_file(), f"run make generate, which writes {name}"
        assert path.read_text("utf-8") == text, f"run make generate, which updates {name}"


@pytest.mark.parametrize("name", INSERTED)
def test_a_generated_part_is_on_a_page(name):
    assert any(f"<!-- made: {name} -->" in text for text in PAGES.values())


def test_yaml_blocks_are_yaml():
    yaml_blocks = [block for text in PAGES.values() for block in blocks(text, "yaml")]
    assert yaml_blocks
    assert all(isinstance(yaml.safe_load(block), dict) for block in yaml_blocks)


def test_readme_is_short_and_counts_the_methods():
    lines = PAGES["README.md"].splitlines()
    assert len(lines) <= 110
    assert len(PAGES["README.md"].split()) <= 900
    assert max(len(line) for line in lines if line.startswith("|")) <= 100
    assert f"{len(list(METHODS))} methods" in PAGES["README.md"]


def test_the_way_of_a_number_leads_to_functions_that_exist():
    """CONTRIBUTING names the functions from images to ``test/ece`` with their files."""
    section = PAGES["CONTRIBUTING.md"].split("### How `test/ece` of a row comes about")[1]
    links = re.findall(r"\[`(\w+)`\]\(([\w/]+\.py)\)", section.split("\n### ")[0])
    assert len(links) > 30
    for name, path in links:
        assert re.search(rf"^(?:class|def) {name}\b", (ROOT / path).read_text(), re.MULTILINE), name
