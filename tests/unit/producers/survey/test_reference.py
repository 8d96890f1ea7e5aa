"""The pages about surveys and devices agree with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.docs import DOCS, generated_block
from producers.survey import reference as survey_docs
from producers.survey.file import SurveyFile
from producers.survey.messages import tables
from producers.survey.survey import load_survey, parse_survey
from tests.support.transports import MemoryTransport

SURVEYS, DEVICE = DOCS / "surveys.md", DOCS / "device.md"


def test_the_reference_is_what_the_code_says() -> None:
    assert generated_block(SURVEYS, "fields") == survey_docs.fields(), "run make generated"


def test_every_table_of_the_file_is_in_the_reference() -> None:
    structs = {
        name for name, kind in SurveyFile.__annotations__.items() if "Table" in str(kind) or "Release" in str(kind)
    }
    assert structs == set(tables()) - {"grid"}, "which is a table of `values`"


def test_the_example_on_the_page_is_a_survey() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", SURVEYS.read_text(), re.DOTALL)
    asked = parse_survey(text)
    assert asked.mechanism.epsilons[-1] == 2.0


def test_every_example_survey_is_named_on_the_page() -> None:
    page = SURVEYS.read_text()
    for path in (DOCS.parent / "deploy" / "surveys").glob("*.toml"):
        assert f"`{path.name}`" in page


def test_the_program_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", DEVICE.read_text(), re.DOTALL)
    sent = MemoryTransport()
    monkeypatch.setattr("producers.wire.kafka.KafkaTransport", lambda _: sent)
    monkeypatch.chdir(tmp_path)
    source = DOCS.parent / "deploy" / "surveys" / "browser.toml"
    # On a busy machine the program itself may take longer than the jitter of the demo.
    slow = source.read_text().replace('jitter = "200ms"', 'jitter = "20d"').replace('"10m"', '"30d"')
    (tmp_path / "browser.toml").write_text(slow)
    names: dict[str, Any] = {}
    exec(program, names)
    assert sent.messages == [], "the first report has its jitter, too"
    with names["device"] as device:
        for _ in range(10):  # the two upper rungs open meanwhile
            if not sent.messages:
                device.tick(device.next_ms())
    assert len(sent.messages) == 1
    assert load_survey(source).digest in sent.messages[0].value


def test_fields_are_those_that_are_decoded() -> None:
    """Every field of the reference can be written in a file: nothing is documented that the decoder refuses."""
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", survey_docs.fields(), re.MULTILINE))
    decoded = set(SurveyFile.__struct_encode_fields__)
    decoded |= {name for structs in tables().values() for struct in structs for name in struct.__struct_encode_fields__}
    assert documented == decoded
    with pytest.raises(msgspec.ValidationError, match="unknown field `surprise`"):
        msgspec.convert(tomllib.loads("surprise = 1"), SurveyFile)
