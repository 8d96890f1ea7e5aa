"""`python -m tests.images`, which `make image-test` runs.

Builds both images from the shipped Dockerfile, runs them on a read-only root as a user without a name, and counts a
fleet's reports with them, on Kafka and Redis of this machine; then runs the services of deploy/compose. Talk goes to
stderr; stdout ends with `passed: ...`.
Exit status 1 if anything differs, 3 if this machine cannot run containers.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from streams.folders import cache_folder
from streams.local.process import ServiceError, signals_as_interrupt
from tests.images.checks import CHECKS, count_real_reports, documented_sizes, outdated_sizes, sizes
from tests.images.compose import run_apart
from tests.images.engine import Engine

ROLES: Final = ("exporter", "worker")
TOOLS: Final = ("podman", "buildah", "runc", "mmdebstrap", "docker-compose")
CANNOT: Final = 3


def main() -> int:
    """Build and run; return the exit status."""

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking or os.geteuid():
        tell(f"images: needs root and {', '.join(TOOLS)}; missing: {', '.join(lacking) or 'root'}")
        return CANNOT
    engine = Engine(_folder())
    try:
        with signals_as_interrupt():
            engine.make_base()
            images = {}
            for role in ROLES:
                tell(f"building the image of the {role}")
                images[role] = engine.build(role)
                for check in CHECKS:
                    check(engine, images[role], role)
                    tell(f"{role}: {check.__name__.replace('_', ' ')}")
            counted = count_real_reports(engine, images["worker"], images["exporter"], tell)
            tell(run_apart())
            built = sizes(engine, images)
            outdated = outdated_sizes(built, documented_sizes())
            assert not outdated, outdated
    except (AssertionError, ServiceError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    held = ", ".join(f"{role} {size} MB" for role, size in built.items())
    print(f"passed: {len(CHECKS)} checks of {len(ROLES)} images ({held}), {counted} reports counted, lost 0, double 0")
    return 0


def _folder() -> Path:
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
