"""The wheel holds the three packages and what an installed `thaw demo` needs, and nothing else."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("estimators", "producers", "streams")
CARRIED = ("kafka", "prometheus/rules", "surveys")


def files_of(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_contains_exactly_the_tree(wheel: Path) -> None:
    expected = {str(path.relative_to(ROOT)) for package in PACKAGES for path in files_of(ROOT / package)}
    expected |= {
        f"streams/deploy/{path.relative_to(ROOT / 'deploy')}"
        for name in CARRIED
        for path in files_of(ROOT / "deploy" / name)
    }
    expected |= {f"streams/{path.relative_to(ROOT)}" for path in files_of(ROOT / "docs" / "runbooks")}
    expected |= {f"streams/{path.relative_to(ROOT)}" for path in files_of(ROOT / "clients" / "web")}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        licenses = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert [archive.read(name) for name in licenses] == [(ROOT / "LICENSE").read_bytes()]
    assert len(names) == len(set(names)), "a file is in the wheel twice"
    assert set(names) == expected


def test_an_installed_wheel_finds_what_it_carries(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from streams.folders import cache_folder, checkout_folder, deploy_folder\n"
        "print(checkout_folder(), deploy_folder('kafka'), cache_folder(), sep='\\n')\n"
        "try: deploy_folder('nowhere')\n"
        "except FileNotFoundError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path / "home")},
    )
    checkout, kafka, cache, refusal = ran.stdout.splitlines()
    assert checkout == "None"
    assert kafka == str(tmp_path / "streams" / "deploy" / "kafka")
    assert {path.name for path in Path(kafka).iterdir()} == {"pom.xml", "server.properties"}
    assert cache == str(tmp_path / "home" / ".cache" / "thaw")
    assert refusal.startswith("expected the folder deploy/nowhere at ")
