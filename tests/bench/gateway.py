"""The gateway under load: requests per second beside a bare server of the same framework, delays, and memory.

wrk sends one report per request over kept connections, as devices do; slowhttptest holds a thousand connections with
request heads that never end. Both are Debian packages (`make bench` installs them). Requests wait for the hold and for
the broker, so a bare server must be slower than the number of connections over that time for the ratio to mean work.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from producers.clock import system_clock
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, free_ports
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from tests.bench.goals import Result
from tests.bench.processes import forget_peak, peak_mib
from tests.chaos.soak import rss_mib
from tests.integration.workers import Reports
from tests.support.deadline import until
from tests.support.gateways import GatewayProcess
from tests.support.surveys import survey, survey_text

ROUNDS, SECONDS = 2, 4
CONNECTIONS = 256
FRAMES = 1_000
SLOW = 1_000
"""Connections of the slow client."""
MEMORY_MIB = 64
LARGE_REPORTS = 20_000
"""Reports of a request when the broker hangs: a relay's, so that the gateway's memory fills at once."""

_SCRIPT = """
local file = io.open("{file}", "rb")
local frames, size, at = file:read("*a"), {size}, 0
file:close()
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
function request()
  wrk.body = frames:sub(at + 1, at + size)
  at = (at + size) % #frames
  return wrk.format()
end
"""


@dataclass(frozen=True)
class Load:
    """What wrk says."""

    rate: float
    p99_ms: float
    refused: int


def results() -> Iterator[Result]:
    """Measure in turns, then under a slow client, then under a broker that hangs."""
    for tool in ("wrk", "slowhttptest"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing; apt-get install {tool}")
    with Supervisor() as supervisor:
        bench = _Bench(supervisor)
        pairs = [(bench.load(bench.gateway.port), bench.load(bench.bare_port)) for _ in range(ROUNDS)]
        ours = max((pair[0] for pair in pairs), key=lambda load: load.rate)
        bare = max((pair[1] for pair in pairs), key=lambda load: load.rate)
        before_mib = rss_mib(bench.gateway.child.pid)
        slow, slow_mib = bench.under_slow_client()
        hung, hung_mib = bench.under_hung_broker()
        print(f"with a broker that hangs {hung.refused} requests were told to come again", file=sys.stderr)
        bench.gateway.stop()
    yield Result("gateway-requests", ours.rate / 1e3, "k/s", "bare aiohttp", bare.rate / 1e3, least_ratio=0.2)
    yield Result("gateway-p99", ours.p99_ms, "ms", "bare aiohttp", bare.p99_ms)
    yield Result("gateway-slow-client", slow.rate / 1e3, "k/s", "without it", ours.rate / 1e3, least_ratio=0.5)
    yield Result("gateway-slow-client-memory", slow_mib - before_mib, "MiB", most=64)
    yield Result("gateway-hung-broker-memory", hung_mib - before_mib, "MiB", most=2.5 * MEMORY_MIB)


class _Bench:
    """The processes, and one method per measurement."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._folder = supervisor.folder
        self._kafka = supervisor.add(ApacheKafka(folder=supervisor.folder / "kafka"))
        surveys = supervisor.folder / "surveys"
        surveys.mkdir()
        (surveys / "colour.toml").write_text(survey_text())
        asked = survey()
        settings = Settings(kafka=self._kafka.address, surveys=str(surveys))
        Topics(settings).create(wanted(settings, [asked]))
        [self.bare_port] = free_ports(1)
        self._bare: Child = supervisor.run(
            "bare", [sys.executable, "-m", "tests.bench.bare_server", str(self.bare_port)], order=StopOrder.WORKER
        )
        self.gateway = GatewayProcess(
            settings, supervisor.folder, gateway_hold_ms=10, gateway_memory_mib=MEMORY_MIB, gateway_rate=0
        )
        window_ms = asked.windows.latest(system_clock() - asked.windows.size_ms - asked.opens_ms[-1])
        many = Reports.draw(asked, FRAMES, seed=1, window_ms=window_ms)
        frames = [
            frame
            for messages in many.messages(1, limit_bytes=asked.layout.frame_bytes(1)).values()
            for frame in messages
        ]
        large = Reports.draw(asked, LARGE_REPORTS, seed=2, window_ms=window_ms).messages(1)[0]
        self._small = self._script("small", frames)
        self._large = self._script("large", [b"".join(large)])

    def _script(self, name: str, bodies: list[bytes]) -> Path:
        (size,) = {len(body) for body in bodies}
        file, script = self._folder / f"{name}.frames", self._folder / f"{name}.lua"
        file.write_bytes(b"".join(bodies))
        script.write_text(_SCRIPT.format(file=file, size=size))
        return script

    def load(self, port: int, *, connections: int = CONNECTIONS, script: Path | None = None) -> Load:
        """Run wrk."""
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{SECONDS}s", "--latency"]
        command += ["--timeout", "60s", "--script", str(script or self._small), f"http://127.0.0.1:{port}/v1/frames"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
        rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
        p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)\n", text)
        assert rate is not None, text
        assert p99 is not None, text
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        scale = {"us": 1e-3, "ms": 1.0, "s": 1e3}[p99[2]]
        load = Load(float(rate[1]), float(p99[1]) * scale, int(refused[1]) if refused else 0)
        print(f"port {port}: {load.rate:,.0f} requests/s, p99 {load.p99_ms:.0f} ms", file=sys.stderr)
        return load

    def _with_peak(self, script: Path) -> tuple[Load, float]:
        """Run wrk; return the gateway's largest memory meanwhile, too, in MiB."""
        forget_peak(self.gateway.child.pid)
        load = self.load(self.gateway.port, script=script)
        return load, peak_mib(self.gateway.child.pid)

    def under_slow_client(self) -> tuple[Load, float]:
        """Run wrk while slowhttptest holds connections with heads that never end; with the peak of the memory."""
        command = ["slowhttptest", "-H", "-c", str(SLOW), "-r", str(SLOW), "-i", "5", "-l", "60", "-v", "1"]
        slow = subprocess.Popen([*command, "-u", f"{self.gateway.url}/"], stdout=subprocess.DEVNULL)
        try:
            until(lambda: _connections(self.gateway.port) >= SLOW, 60, f"{SLOW} slow connections")
            return self._with_peak(self._small)
        finally:
            slow.send_signal(signal.SIGKILL)
            slow.wait()

    def under_hung_broker(self) -> tuple[Load, float]:
        """Run wrk with large requests while the broker does not answer; with the peak of the memory."""
        self._kafka.child.send_signal(signal.SIGSTOP)
        try:
            return self._with_peak(self._large)
        finally:
            self._kafka.child.send_signal(signal.SIGCONT)


def _connections(port: int) -> int:
    """Return how many connections to a port are established."""
    ends = f":{port:04X} "
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return sum(ends in f"{line.split()[1]} " and line.split()[3] == "01" for line in lines[1:])
