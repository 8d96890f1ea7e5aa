"""Spans are optional: without them nothing is loaded, and without their packages the remedy is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streams.settings import Settings, SettingsError
from streams.tracing import Tracing


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from streams.settings import Settings\n"
        "from streams.tracing import Tracing\n"
        "tracing = Tracing('thaw-worker', Settings())\n"
        "with tracing.spans('thaw.batch') as span: span.set_attribute('thaw.reports', 1)\n"
        "tracing.close()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_packages_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"pip install 'thaw\[tracing\]'"):
        Tracing("thaw-worker", Settings(tracing=True))
