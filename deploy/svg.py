"""What the figures of the documentation have in common: a style that follows the reader's theme, and text."""

_LIGHT = """\
  .card { fill: #ffffff; stroke: #d5dde6 }
  text { fill: #1c2733; font: 14px system-ui, sans-serif }
  .title { font-size: 17px; font-weight: 600 }
  .small { font-size: 12.5px; fill: #52616f }
  .grid { stroke: #e3e9ef }
"""
_DARK = """\
    .card { fill: #0f161f; stroke: #263341 }
    text { fill: #e6edf3 }
    .small { fill: #9fb0c0 }
    .grid { stroke: #223040 }
"""


def style(light: str, dark: str) -> str:
    """Return the common rules and those of one figure, one rule a line, for a light and a dark ground."""
    own_light = "".join(f"  {rule}\n" for rule in light.strip().splitlines())
    own_dark = "".join(f"    {rule}\n" for rule in dark.strip().splitlines())
    return f"\n{_LIGHT}{own_light}  @media (prefers-color-scheme: dark) {{\n{_DARK}{own_dark}  }}\n"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text at a point."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def framed(label: str, height: int, rules: str, body: list[str]) -> str:
    """Return a whole picture, 1,000 wide, on a card."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height}" role="img" aria-label="{label}">\n'
        f'<style>{rules}</style>\n<rect class="card" x="1" y="1" width="998" height="{height - 2}" rx="12"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )
