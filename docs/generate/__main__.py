"""Write the generated parts of the documentation: ``make generate``."""

from docs.generate import generate, notebooks

for path, text in generate():
    path.write_text(text, "utf-8")
for path, content in notebooks.pictures():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
