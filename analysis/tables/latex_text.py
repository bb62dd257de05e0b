"""Any text as pdflatex takes it: ASCII alone, nothing that is a command by accident."""

import re
import unicodedata

_MATH = {
    "±": "pm", "∞": "infty", "↓": "downarrow", "↑": "uparrow", "→": "rightarrow",
    "←": "leftarrow", "×": "times", "·": "cdot", "≤": "leq", "≥": "geq", "≠": "neq",  # noqa: RUF001
    "≈": "approx", "∈": "in", "∂": "partial", "∇": "nabla", "∑": "sum", "√": "surd", "…": "dots",
    "µ": "mu", "ℓ": "ell", "∆": "Delta",  # noqa: RUF001
}  # fmt: skip
_PLAIN = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "<": "$<$", ">": "$>$", "|": "$|$", "°": r"$^\circ$",
    "−": "$-$", "–": "--", "—": "---", "’": "'", "‘": "{`}", "“": "{``}",  # noqa: RUF001
    "”": "{''}", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "ł": r"\l{}", "Ł": r"\L{}",
    "†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}",
}  # fmt: skip
_PLAIN |= {mark: rf"\{mark}" for mark in "&%_#${}"}
_PLAIN |= {mark: f"$\\{name}$" for mark, name in _MATH.items()}
_PLAIN |= {mark: f"$^{n}$" for n, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_PLAIN |= {mark: f"$_{n}$" for n, mark in enumerate("₀₁₂₃₄₅₆₇₈₉")}
# Greek letters that have a command; LaTeX writes the others as Latin ones.
_GREEK = {
    "SMALL": "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho "
    "sigma tau upsilon phi chi psi omega",
    "CAPITAL": "gamma delta theta lambda xi pi sigma upsilon phi psi omega",
}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip


def escape(text: str) -> str:
    """Text for pdflatex: its special characters made harmless, all others as commands.

    What no font of the default encoding has stands as its code, e.g. ``[U+4E2D]``.
    """
    # Composed: a letter and the accent behind it become one command.
    whole = unicodedata.normalize("NFC", text)
    return "".join(map(_letter, whole, " " + whole))


def _letter(mark: str, before: str) -> str:
    if mark == before == "-":
        return "{}-"  # two hyphens would be a dash
    if mark in _PLAIN:
        return _PLAIN[mark]
    if mark.isascii():
        return mark if mark.isprintable() else " "
    if mark.isspace():
        return "~"
    greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(mark, ""))
    name = greek[2].lower().replace("lamda", "lambda") if greek else ""
    if greek and name in _GREEK[greek[1]].split():
        return f"$\\{name if greek[1] == 'SMALL' else name.capitalize()}$"
    parts = list(unicodedata.normalize("NFD", mark))
    base, accents = parts[0], parts[1:]
    if base.isascii() and all(accent in _ACCENTS for accent in accents):
        for accent in accents:
            base = rf"\{_ACCENTS[accent]}{{{base}}}"
        return base
    return f"[U+{ord(mark):04X}]"
