"""The supervisor with small Python programs in place of real services."""

import sys
import threading
from pathlib import Path

import pytest

from streams.local.demo import Demo
from streams.local.kafka import ApacheKafka, EmbeddedKafka, ExternalKafka, find_kafka
from streams.local.process import (
    Child,
    ChildDied,
    NotReady,
    RunFolder,
    ServiceError,
    ServiceMissing,
    free_ports,
    wait_until_ready,
)
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from tests.support.deadline import END_SECONDS, until

IDLE = "import time\ntime.sleep(600)"
READY_THEN_IDLE = "print('ready', flush=True)\n" + IDLE
NOTES_ITS_END = """
import signal, sys
def end(*_):
    with open(sys.argv[1], "a") as notes:
        print(sys.argv[2], file=notes)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
"""
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY_THEN_IDLE
WITH_GRANDCHILD = f"""
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", {IDLE!r}])
print(grandchild.pid, flush=True)
grandchild.wait()
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def first_line(child: Child) -> str:
    return until(lambda: child.log.read_text().partition("\n")[0], 30, f"a line from {child.name}")


def test_stages_are_stopped_in_order_whatever_the_order_of_starting(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    started = [StopOrder.KAFKA, StopOrder.WORKER, StopOrder.REDIS, StopOrder.FLEET, StopOrder.EXPORTER]
    with Supervisor() as supervisor:
        for stage in started:
            supervisor.run(stage.name, python(NOTES_ITS_END, str(notes), stage.name), order=stage)
        for stage in started:
            until(
                lambda log=supervisor.folder / f"{stage.name}.log": log.read_text() == "ready\n",  # type: ignore[misc]
                30,
                f"{stage.name} to be ready",
            )
    assert notes.read_text().split() == ["FLEET", "WORKER", "EXPORTER", "REDIS", "KAFKA"]


def test_the_folder_of_a_run_goes_with_it() -> None:
    with Supervisor() as supervisor:
        folder = supervisor.folder
        child = supervisor.run("child", python(READY_THEN_IDLE), order=StopOrder.WORKER)
        assert first_line(child) == "ready"
    assert not folder.exists()
    assert not child.alive()


def test_a_child_that_does_not_listen_is_killed_and_leaves_time_for_the_others(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with Supervisor(stop_seconds=6) as supervisor:
        deaf = supervisor.run("deaf", python(DEAF), order=StopOrder.FLEET)
        polite = supervisor.run("polite", python(NOTES_ITS_END, str(notes), "polite"), order=StopOrder.WORKER)
        assert first_line(deaf) == first_line(polite) == "ready"
    assert deaf.returncode == -9
    assert polite.returncode == 0
    assert notes.read_text() == "polite\n"


def test_a_child_that_dies_is_told_with_the_end_of_its_log() -> None:
    with Supervisor() as supervisor:
        code = "import sys\nfor n in range(100): print('line', n)\nsys.exit(3)"
        child = supervisor.run("worker", python(code), order=StopOrder.WORKER)
        assert child.wait(END_SECONDS)
        with pytest.raises(ChildDied, match=r"worker \(process \d+\) ended with status 3 .*") as caught:
            supervisor.check()
        assert "line 99" in str(caught.value)
        assert "line 79" not in str(caught.value)
        supervisor.forget(child)
        supervisor.check()


def test_a_program_that_does_not_exist_is_told_by_name() -> None:
    with Supervisor() as supervisor:
        child = supervisor.run("nobody", ["/no/such/program"], order=StopOrder.WORKER)
        assert child.wait(END_SECONDS)
        with pytest.raises(ChildDied, match=r"(?s)status 127 .*cannot run /no/such/program: No such file"):
            child.check()


def test_grandchildren_go_with_their_group() -> None:
    with Supervisor() as supervisor:
        child = supervisor.run("family", python(WITH_GRANDCHILD), order=StopOrder.FLEET)
        grandchild = int(first_line(child))
        child.kill()

        def ended() -> bool:
            stat = Path(f"/proc/{grandchild}/stat")
            return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in {"Z", "X"}

        until(ended, 30, f"grandchild {grandchild} to be gone")


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    with Supervisor() as supervisor:
        children: list[Child] = []

        def start() -> None:
            child = supervisor.run("child", python(NOTES_ITS_END, "/dev/null", ""), order=StopOrder.FLEET)
            # Only a child that has been tied to its parent can show that it was not tied to this thread.
            first_line(child)
            children.append(child)

        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        # Ended by SIGTERM in an orderly way, not by the kernel when the thread ended.
        children[0].terminate(END_SECONDS)
        assert children[0].returncode == 0


def test_a_part_that_does_not_get_ready_is_told_with_what_was_expected() -> None:
    with Supervisor() as supervisor:
        child = supervisor.run("slow", python(READY_THEN_IDLE), order=StopOrder.WORKER)
        assert first_line(child) == "ready"
        with pytest.raises(NotReady, match=r"(?s)expected the moon within 0 s; it did not happen; .*\| ready"):
            wait_until_ready(child, lambda: False, seconds=0.1, what="the moon")


def test_a_living_run_is_not_swept_by_another() -> None:
    mine, other = RunFolder(), RunFolder()
    try:
        assert mine.path.exists()
        assert other.path.exists()
    finally:
        mine.close()
        other.close()
    assert not mine.path.exists()
    assert not other.path.exists()


def test_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(15_000 <= port < lowest_ephemeral for port in ports)


def test_without_jars_auto_means_embedded_and_real_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THAW_KAFKA_LIBS", str(tmp_path))
    chosen = find_kafka("auto", topics={"thaw.reports.v1": 8})
    assert isinstance(chosen, EmbeddedKafka)
    assert chosen.topics == {"thaw.reports.v1": 8}
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServiceMissing, match="expected java on the PATH"):
        find_kafka("real")


def test_with_java_and_jars_auto_means_apache_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("THAW_KAFKA_LIBS", str(tmp_path))
    with pytest.raises(ServiceMissing, match=r"expected Apache Kafka's jars in .*; run `make setup`"):
        find_kafka("real")
    (tmp_path / "kafka_2.13-4.2.1.jar").touch()
    chosen = find_kafka("auto")
    assert isinstance(chosen, ApacheKafka)
    assert chosen.describe() == "Apache Kafka 4.2.1"


def test_an_address_means_a_broker_elsewhere() -> None:
    chosen = find_kafka("one:9092,two:9093")
    assert isinstance(chosen, ExternalKafka)
    assert chosen.address == "one:9092,two:9093"
    assert chosen.kind == "external"


@pytest.mark.parametrize("choice", ["", "mock", "localhost", "localhost:", ":9092", "localhost:99999", "a:1,b"])
def test_any_other_choice_is_refused(choice: str) -> None:
    with pytest.raises(ValueError, match="--kafka: expected auto, real, embedded or HOST:PORT; got"):
        find_kafka(choice)


def test_a_fleet_that_is_stopped_before_it_began_has_nothing_to_note_and_one_that_fails_then_has() -> None:
    def stopped(code: str) -> None:
        with Supervisor() as supervisor:
            demo = Demo(supervisor, Settings(), [], 1, 1, "steady", False, "apache", {})
            fleet = supervisor.run("fleet", python(code), order=StopOrder.FLEET)
            demo.fleets.append(fleet)
            until(lambda: "ready" in fleet.tail(), 30, "the fleet to run")
            demo.stop_fleets()
            assert demo.sent() == 0

    stopped(READY_THEN_IDLE)
    fails = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n" + READY_THEN_IDLE
    with pytest.raises(ServiceError, match="ended with status 3 and may not have noted"):
        stopped(fails)
