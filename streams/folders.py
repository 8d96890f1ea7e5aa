"""Folders of files that are not code, in a checkout and in an installed wheel."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def checkout_folder() -> Path | None:
    """Return the root of the checkout that this code runs from, or None if it runs from an installed wheel."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "deploy").is_dir() else None


def deploy_folder(name: str) -> Path:
    """Return `deploy/<name>` of the checkout, or its copy inside the wheel (`kafka`, `prometheus/rules`, `surveys`).

    Raises:
        FileNotFoundError: neither exists.
    """
    checkout = checkout_folder()
    folder = (checkout if checkout is not None else _PACKAGE) / "deploy" / name
    if not folder.is_dir():
        raise FileNotFoundError(
            f"expected the folder deploy/{name} at {folder}; it is not there; "
            "run from a whole checkout, or install the wheel again"
        )
    return folder


def runbooks_folder() -> Path:
    """Return `docs/runbooks` of the checkout, or its copy inside the wheel."""
    checkout = checkout_folder()
    return (checkout if checkout is not None else _PACKAGE) / "docs" / "runbooks"


def client_folder() -> Path:
    """Return `clients/web` of the checkout, or its copy inside the wheel."""
    checkout = checkout_folder()
    return (checkout if checkout is not None else _PACKAGE) / "clients" / "web"


def cache_folder() -> Path:
    """Return the folder for things that can be fetched again: `.cache` of the checkout, else `~/.cache/thaw`."""
    checkout = checkout_folder()
    if checkout is not None:
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thaw"
