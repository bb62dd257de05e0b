"""Add the pages that exist only on the built site, and complete the navigation."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs imports this file by its path

from mkdocs.structure.files import File, Files

from docs.generate import methods, pages


def on_config(config: Any) -> Any:
    """List the generated pages in the navigation."""
    generated: dict[str, list[dict[str, str]]] = {"Methods": [], "Reference": []}
    for page in (*methods.pages(), *pages()):
        if page.section:
            generated[page.section].append({page.title: page.path})
    for entry in config.nav:
        for title, children in entry.items():
            if title == "Methods":
                children.extend(generated["Methods"])
            if title == "Reference":
                (api,) = (child for child in children if "API" in child)
                api["API"] = [api["API"], *generated["Reference"]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that exist only on the built site."""
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
    return files
