"""buildah and podman with a storage of their own, so that the images of whoever runs the test stay as they are.

No registry is needed: a minimal Debian made by mmdebstrap is imported under the public name of the base image, and the
shipped Dockerfile is built unchanged. Containers run as root starts them, without a daemon.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from streams.local.process import ServiceError
from tests.support.paths import ROOT

DOCKERFILE: Final = ROOT / "deploy" / "images" / "Dockerfile"
BASE: Final = "docker.io/library/debian:bookworm-slim"
SUITE: Final = "bookworm"
# What the public slim image leaves out too.
LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
LIMITS: Final = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""What a container engine inside a container may set without further rights."""
LOCKED: Final = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges")
COMMAND_SECONDS: Final = 300
BUILD_SECONDS: Final = 1_800


class Engine:
    """Builds images and runs containers.

    Args:
        folder: where the base, the storage and pip's downloads are kept from run to run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._storage = [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=overlay"]
        self._podman = ["podman", *self._storage, "--cgroup-manager=cgroupfs", "--runtime=runc"]

    def make_base(self) -> None:
        """Import a minimal Debian under the name of the base image, if that was not done before."""
        if self._call([*self._podman, "image", "exists", BASE], check=False).returncode == 0:
            return
        tar = self.folder / "base.tar"
        options = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        self._call(["mmdebstrap", "--quiet", "--variant=minbase", *options, SUITE, str(tar)], seconds=BUILD_SECONDS)
        self._call([*self._podman, "import", "--quiet", str(tar), BASE], seconds=BUILD_SECONDS)
        tar.unlink()

    def build(self, target: str) -> str:
        """Build a target of the Dockerfile; return the name of the image."""
        downloads = self.folder / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        name = f"localhost/thaw-{target}"
        command = ["buildah", *self._storage, "bud", "--isolation=chroot", "--layers", "--pull-never"]
        for place, inside in {**self._pip_settings(), str(downloads): "/root/.cache/pip"}.items():
            command += ["--volume", f"{place}:{inside}"]
        command += [f"--target={target}", f"--tag={name}", f"--file={DOCKERFILE}", str(ROOT)]
        self._call(command, seconds=BUILD_SECONDS)
        return name

    def _pip_settings(self) -> dict[str, str]:
        """Return mounts that give pip the authorities of this machine, which a company's proxy may need.

        They are mounted while the image is built and are no part of it.
        """
        authorities = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
        if not authorities:
            return {}
        settings = self.folder / "pip.conf"
        settings.write_text("[global]\ncert = /run/authorities.pem\ndisable-pip-version-check = true\n")
        return {str(settings): "/etc/pip.conf:ro", authorities: "/run/authorities.pem:ro"}

    def config(self, image: str) -> Any:
        """Return what an image says of itself."""
        [found] = json.loads(self._call([*self._podman, "image", "inspect", image]).stdout)
        return found

    def run(
        self,
        image: str,
        arguments: Sequence[str] = (),
        *,
        entry: str | None = None,
        variables: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        network: str = "none",
    ) -> subprocess.CompletedProcess[str]:
        """Run a container to its end, on a read-only root and without rights; return how it ended."""
        command = self._run_command(variables, mounts, network)
        command += ["--rm", *(["--entrypoint", entry] if entry else []), image, *arguments]
        return self._call(command, check=False)

    @contextmanager
    def running(
        self,
        name: str,
        image: str,
        arguments: Sequence[str],
        *,
        variables: Mapping[str, str],
        mounts: Mapping[Path, str],
    ) -> Iterator[str]:
        """Run a container on the network of this machine until the block ends."""
        self._call([*self._podman, "rm", "--force", "--ignore", name])
        self._call([*self._run_command(variables, mounts, "host"), "--detach", "--name", name, image, *arguments])
        try:
            yield name
        finally:
            self._call([*self._podman, "rm", "--force", "--ignore", "--time=0", name], check=False)

    def _run_command(
        self, variables: Mapping[str, str] | None, mounts: Mapping[Path, str] | None, network: str
    ) -> list[str]:
        command = [*self._podman, "run", *LIMITS, *LOCKED, f"--network={network}"]
        command += [word for item in (variables or {}).items() for word in ("--env", "=".join(item))]
        return command + [word for item in (mounts or {}).items() for word in ("--volume", "{}:{}:ro".format(*item))]

    def inside(self, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a running container, as a health check is."""
        return self._call([*self._podman, "exec", name, *command], check=False)

    def kill(self, name: str) -> None:
        """End a container at once, and start it again."""
        self._call([*self._podman, "kill", name])
        self._call([*self._podman, "wait", name])
        self._call([*self._podman, "start", name])

    def stop(self, name: str) -> int:
        """Ask a container to stop; return its exit status."""
        self._call([*self._podman, "stop", "--time=60", name])
        return int(self._call([*self._podman, "inspect", "--format={{.State.ExitCode}}", name]).stdout)

    def log(self, name: str) -> str:
        """Return what a container has written."""
        done = self._call([*self._podman, "logs", name])
        return done.stdout + done.stderr

    def _call(
        self, command: Sequence[str], *, check: bool = True, seconds: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if check and done.returncode:
            tool = next(word for word in command if not word.startswith("-"))
            raise ServiceError(f"{tool} ended with status {done.returncode}; the end of its output:\n{_end(done)}")
        return done


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join((done.stdout + done.stderr).splitlines()[-25:])
