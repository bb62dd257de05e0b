"""Write the generated parts of the documentation: ``python -m docs.generate``."""

from docs.generate import generate

for path, text in generate():
    path.write_text(text, "utf-8")
