"""Pages whose code is run: docs/library.md and docs/tour.md.

    python -m deploy.pages [PAGE ...]

(`make pages`) runs them in an empty folder, compares what is printed with what the page says, and writes the pictures
of the page. A test does the same and compares the pictures.

A block marked `toml` is a survey: a file with its name. Blocks marked `console` are typed into one shell, in the order
of the page: `$ ` begins a command, the lines after it are what it prints. Blocks marked `python` are one program, run
after the commands; a block marked `text` after one of them is what it prints. `...` stands for anything.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streams.reproduction.pictures import CARD, LIGHT, STYLE, themed

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("library.md", "tour.md")

_END = "end of block"
_SHELL_SECONDS = 420


class PageError(Exception):
    """A page does not say what its code does: where, and both texts."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line where it begins."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], page.count("\n", 0, match.start()) + 1) for match in found]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with the output that the page states."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        length = next(number for number, line in enumerate(lines, 1) if not line.rstrip("\n").endswith("\\"))
        yield "".join(lines[:length]).rstrip("\n"), "".join(lines[length:])


def run_page(name: str, folder: Path) -> None:
    """Run a page in an empty folder; raise PageError at the first difference."""
    found = blocks((DOCS / name).read_text())
    (folder / "deploy").symlink_to(ROOT / "deploy")
    environment = _environment(folder)
    with Shell(folder, environment) as shell:
        for block in found:
            if block.language == "toml":
                (folder / f"{tomllib.loads(block.text)['name']}.toml").write_text(block.text)
            for command, expected in commands(block) if block.language == "console" else ():
                status, printed = shell.run(command)
                compare(f"{name}:{block.line}: $ {command}", expected, printed)
                if status:
                    raise PageError(f"{name}:{block.line}: $ {command}\nended with status {status}")
    _run_program(name, found, folder, environment)


def compare(place: str, expected: str, printed: str) -> None:
    """Raise PageError unless the text is as expected; `...` stands for anything, widths of blanks do not matter."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if expected.strip() != printed.strip() and not doctest.OutputChecker().check_output(expected, printed, options):
        raise PageError(f"{place}\nthe page says:\n{expected}\nprinted was:\n{printed}")


def _run_program(name: str, found: Sequence[Block], folder: Path, environment: dict[str, str]) -> None:
    """Run all Python blocks of a page as one program."""
    parts = [number for number, block in enumerate(found) if block.language == "python"]
    if not parts:
        return
    program = folder / "page.py"
    program.write_text("".join(f"{found[number].text}\nprint({_END!r})\n" for number in parts))
    style = folder / "matplotlibrc"
    style.write_text("\n".join(_style_lines()))
    environment = environment | {"MATPLOTLIBRC": str(style), "MPLBACKEND": "agg", "SOURCE_DATE_EPOCH": "0"}
    done = subprocess.run([sys.executable, program], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise PageError(f"{name}: the program ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    for number, printed in zip(parts, done.stdout.split(f"{_END}\n"), strict=False):
        following = found[number + 1] if number + 1 < len(found) else None
        expected = following.text if following is not None and following.language == "text" else ""
        compare(f"{name}:{found[number].line}", expected, printed)


def _environment(folder: Path) -> dict[str, str]:
    """Return variables under which `thaw` and `python` are those of this checkout."""
    tools = folder / ".bin"
    tools.mkdir()
    for tool, words in {"thaw": "-m streams.cli ", "python": ""}.items():
        script = tools / tool
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THAW_")}
    return kept | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def _style_lines() -> Iterator[str]:
    """Yield the settings of our pictures as a file for matplotlib: a page's program draws with its defaults."""
    for name, value in STYLE.items():
        yield f"{name}: {json.dumps(value) if isinstance(value, str) else value}"
    colours = ", ".join(repr(colour.removeprefix("#")) for colour in LIGHT)
    yield f"axes.prop_cycle: cycler('color', [{colours}])"
    yield f'savefig.facecolor: "{CARD}"'


class Shell:
    """One bash in which commands are run one after the other; what it started is ended with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["timeout", str(_SHELL_SECONDS), "bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            os.killpg(self._process.pid, signal.SIGTERM)

    def run(self, command: str) -> tuple[int, str]:
        """Run one command; return its status and what it printed, errors included."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The end is on a line of its own, whether or not the output ends with a line break.
        self._process.stdin.write(f'{command}\nprintf "\\n{_END} %s\\n" $?\n')
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.startswith(_END):
                return int(line.removeprefix(_END)), printed.removesuffix("\n")
            printed += line
        raise PageError(f"$ {command}\ndid not end within {_SHELL_SECONDS} s of the shell's life\n{printed}")


def pictures(name: str, folder: Path) -> dict[Path, str]:
    """Return the pictures of a page that its commands have drawn: the file in docs, and its text."""
    made = {path.name: path for path in folder.rglob("*.svg") if "deploy" not in path.parts}
    found = {}
    for link in re.findall(r"!\[[^\]]*\]\((images/[\w/-]+\.svg)\)", (DOCS / name).read_text()):
        target = DOCS / link
        if target.name not in made:
            raise PageError(f"{name}: no command draws {target.name}; remove it, or add the command")
        text = made[target.name].read_text()
        found[target] = text if "prefers-color-scheme" in text else themed(text)
    return found


def main(names: Sequence[str]) -> None:
    """Run pages and write their pictures."""
    for name in names or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            run_page(name, Path(folder))
            for target, text in pictures(name, Path(folder)).items():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
        print(f"{name}: as it says")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PageError as error:
        sys.exit(str(error))
