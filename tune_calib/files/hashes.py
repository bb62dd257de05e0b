"""SHA-256 of bytes, texts and files."""

import hashlib
from pathlib import Path


def hash_bytes(*parts: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of some bytes, one after another."""
    content = hashlib.sha256()
    for part in parts:
        content.update(part)
    return content.hexdigest()


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hash_bytes(text.encode())


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
