"""What mkdocs does besides rendering pages: it adds those that are made from the program."""

import re
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs imports this file by its path

from mkdocs.structure.files import File, Files  # noqa: E402

from docs.generate import INSERTED, pages  # noqa: E402

_MARK = re.compile(r"<!-- made: (\S+) -->")
_EXAMPLE = re.compile(r"<!-- example: (\S+) -->")
_RECORDING = re.compile(r"^( *)<!-- recording: (\S+) -->$", re.M)


def on_config(config: Any) -> Any:
    """List the made pages in the navigation, below what is written by hand."""
    made: dict[str, list[dict[str, str]]] = {"Methods": [], "Reference": []}
    for page in pages():
        if page.section:
            made[page.section].append({page.title: page.path})
    for entry in config.nav:
        for title, children in entry.items():
            if title == "Methods":
                children.extend(made["Methods"])
            if title == "Reference":
                (api,) = (child for child in children if "API" in child)
                api["API"] = [api["API"], *made["Reference"]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages."""
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what is made, and the examples, where a page asks for them."""
    markdown = _EXAMPLE.sub(lambda mark: _example(mark[1]), markdown)
    markdown = _RECORDING.sub(lambda mark: indent(_recording(mark[2]), mark[1]), markdown)
    return _MARK.sub(lambda mark: INSERTED[mark[1]](), markdown)


def _recording(name: str) -> str:
    """What ``docs.record`` wrote."""
    text = (ROOT / "docs/recordings" / name).read_text(encoding="utf-8")
    return f"```text\n{text}```"


def _example(name: str) -> str:
    """A file that tests run, as it is."""
    text = (ROOT / "docs/examples" / name).read_text(encoding="utf-8")
    language = {".py": "python"}.get(Path(name).suffix, Path(name).suffix[1:])
    return f'```{language} title="docs/examples/{name}"\n{text}```'
