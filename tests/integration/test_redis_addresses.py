"""Every kind of address of Redis on a real one: TLS with a CA of one's own, a socket of the file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.settings import Settings
from streams.store.connect import open_store, open_truths, read_truths
from streams.store.contract import StoreUnavailableError
from tests.integration.workers import run_thaw
from tests.support.secured_redis import SecuredRedis
from tests.support.services import running
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

TRUTH = {"numerators": [1], "denominators": [2], "devices": 2, "blocks": 1, "settled": True}


@pytest.fixture(scope="module")
def secured_redis() -> Iterator[SecuredRedis]:
    with running(SecuredRedis) as service:
        yield service


def test_the_ca_file_decides_whether_a_certificate_is_trusted(secured_redis: SecuredRedis, tmp_path: Path) -> None:
    (tmp_path / "colour.toml").write_text(survey_text())
    untrusted = Settings(redis=secured_redis.tls_url, prefix="tls-", surveys=str(tmp_path))
    trusted = Settings(
        redis=secured_redis.tls_url, redis_ca=str(secured_redis.certificate), prefix="tls-", surveys=str(tmp_path)
    )
    open_store(trusted).durability_warnings()
    with pytest.raises(StoreUnavailableError, match=r"its certificate is not trusted: .*; check THAW_REDIS_CA"):
        open_store(untrusted).durability_warnings()
    open_truths(trusted).post("colour", 0, "b", TRUTH)
    found = read_truths(trusted, timeout_seconds=5).read("colour", 0)
    assert found is not None
    assert found.devices == 2
    with pytest.raises(StoreUnavailableError, match="certificate"):
        open_truths(untrusted).read("colour", 0)
    assert run_thaw(trusted, "estimates", "--json", "--redis-ca", trusted.redis_ca).returncode == 0
    refused = run_thaw(untrusted, "estimates", "--json")
    assert (refused.returncode, refused.stdout) == (75, "")
    assert "check THAW_REDIS_CA" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(StoreUnavailableError, match=r"nowhere\.invalid:6379 \((name|temporary|no address)"):
        open_store(Settings(redis="redis://nowhere.invalid:6379/0")).durability_warnings()


def test_a_socket_of_the_file_system_is_an_address(secured_redis: SecuredRedis, tmp_path: Path) -> None:
    (tmp_path / "colour.toml").write_text(survey_text())
    settings = Settings(redis=f"{secured_redis.socket_url}?db=1", prefix="socket-", surveys=str(tmp_path))
    open_truths(settings).post("colour", 0, "b", TRUTH)
    assert read_truths(settings, timeout_seconds=5).read("colour", 0) is not None
    assert run_thaw(settings, "estimates", "--json").stdout == "[]\n"
    with pytest.raises(StoreUnavailableError, match=r"redis\.sock\.gone \(no such file or directory\)"):
        open_store(Settings(redis=f"{secured_redis.socket_url}.gone")).durability_warnings()
