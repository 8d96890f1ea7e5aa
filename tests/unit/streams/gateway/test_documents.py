"""Served surveys: what a device takes, and what it refuses."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from producers.survey.bulletin import bulletin_of, opened_bulletin, sealed_bulletin
from producers.survey.document import DocumentError, client_of, opened
from producers.survey.folder import SurveyFolder
from producers.survey.signing import KeyFileError, Signer, verifier
from producers.survey.survey import canonical_json, parse_survey
from streams.folders import deploy_folder
from streams.gateway.documents import HOUR_MS, Documents
from tests.support.continuing import LONGER, LONGEST, SHORT, text_with_rungs
from tests.support.signing import signer_in, while_wide, while_wide_text
from tests.support.surveys import WEEK, survey_text

NOW = WEEK + 1_234_567


def key_file(folder: Path, name: str = "key.pem") -> Path:
    key = Ed25519PrivateKey.generate()
    path = folder / name
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(key_file(tmp_path))


def documents(folder: Path, signer: Signer | None, now_ms: int = NOW) -> Documents:
    surveys = folder / "surveys"
    surveys.mkdir(exist_ok=True)
    (surveys / "colour.toml").write_text(survey_text())
    return Documents(SurveyFolder(surveys, now_ms), valid_hours=2, signer=signer, clock=lambda: now_ms)


def served(folder: Path, signer: Signer | None, now_ms: int = NOW) -> bytes:
    made = documents(folder, signer, now_ms)
    raw = made.envelope(made.index().surveys[0].id)
    assert raw is not None
    return raw


def test_a_signed_survey_is_taken_by_its_key_and_its_id_follows_from_what_is_in_it(
    tmp_path: Path, signer: Signer
) -> None:
    raw = served(tmp_path, signer)
    found, document = opened(raw, "gateway", NOW, verifier(signer.public_text))
    assert found.decoding_hash == parse_survey(survey_text()).decoding_hash
    assert found.id == document.id
    assert canonical_json(document.decoding) == canonical_json(found.decoding)
    assert document.client == client_of(found)
    assert document.issued_ms % HOUR_MS == 0
    assert raw == served(tmp_path, signer, NOW + 60_000)


@pytest.mark.parametrize("example", sorted(deploy_folder("surveys").glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_survey_can_be_served_as_json(example: Path) -> None:
    folder = SurveyFolder(example.parent, NOW)
    found = parse_survey(example.read_text(), str(example))
    raw = Documents(folder, valid_hours=2, clock=lambda: NOW).envelope(found.id)
    if found.canary is not None:
        return
    assert raw is not None
    there, document = opened(raw, "gateway", NOW)
    assert (there.id, document.client.digest) == (found.id, found.digest.hex())
    json.dumps(json.loads(base64.b64decode(json.loads(raw)["payload"])), allow_nan=False)


def test_a_device_with_a_key_refuses_what_is_unsigned_or_signed_by_another(tmp_path: Path, signer: Signer) -> None:
    other = verifier(Signer(key_file(tmp_path, "other.pem")).public_text)
    with pytest.raises(DocumentError, match="another key"):
        opened(served(tmp_path, signer), "gateway", NOW, other)
    with pytest.raises(DocumentError, match="not signed"):
        opened(served(tmp_path, None), "gateway", NOW, verifier(signer.public_text))
    assert opened(served(tmp_path, None), "gateway", NOW)[0].name == "colour"


def test_a_changed_survey_is_refused(tmp_path: Path, signer: Signer) -> None:
    envelope = json.loads(served(tmp_path, signer))
    payload = base64.b64decode(envelope["payload"])
    envelope["payload"] = base64.b64encode(payload.replace(b"colour", b"covert")).decode()
    with pytest.raises(DocumentError, match="another key"):
        opened(json.dumps(envelope).encode(), "gateway", NOW, verifier(signer.public_text))


@pytest.mark.parametrize("away_ms", [-365 * 24 * HOUR_MS, 2 * HOUR_MS, 365 * 24 * HOUR_MS])
def test_an_expired_survey_or_a_clock_that_is_off_is_named(tmp_path: Path, signer: Signer, away_ms: int) -> None:
    with pytest.raises(DocumentError, match="clock of this device says"):
        opened(served(tmp_path, signer), "gateway", NOW + away_ms, verifier(signer.public_text))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"payload": "%%", "signature": null, "key": null}', b"\xff" * 9])
def test_what_is_no_envelope_is_refused_in_one_sentence(raw: bytes) -> None:
    with pytest.raises(DocumentError, match="no survey"):
        opened(raw, "https://gateway.example", NOW)


def test_keys_of_other_forms_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    with pytest.raises(KeyFileError, match="Ed25519"):
        Signer(tmp_path / "text")
    for wrong in ("", "abc", "%%%", base64.b64encode(bytes(31)).decode()):
        with pytest.raises(KeyFileError, match="32 bytes"):
            verifier(wrong)


def test_canaries_are_not_served_and_a_removed_survey_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "surveys"
    folder.mkdir()
    (folder / "canary.toml").write_text((deploy_folder("surveys") / "canary.toml").read_text())
    made = Documents(SurveyFolder(folder, NOW), valid_hours=2, clock=lambda: NOW)
    assert made.index().surveys == []
    assert made.envelope("canary-00000000") is None


def test_a_bulletin_is_served_as_it_lies_beside_its_survey_file(tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked = while_wide(signer)
    (tmp_path / "colour.toml").write_text(while_wide_text(signer))
    served_here = Documents(SurveyFolder(tmp_path, NOW), valid_hours=24, clock=lambda: NOW)
    assert served_here.bulletin(asked.id) is None
    raw = sealed_bulletin(bulletin_of(asked, 1, NOW, {0: 1}), signer.sign)
    (tmp_path / "colour.bulletin").write_bytes(raw)
    assert served_here.bulletin(asked.id) == raw
    assert opened_bulletin(raw, asked, verifier(signer.public_text)).rung(0) == 1
    assert served_here.bulletin("another-00000000") is None


def test_a_survey_that_continues_others_is_served_under_all_their_ids(tmp_path: Path) -> None:
    for rungs, earlier in ((2, ()), (3, (SHORT.id,)), (5, (SHORT.id, LONGER.edition))):
        (tmp_path / f"{rungs}.toml").write_text(text_with_rungs(rungs, *earlier))
    made = Documents(SurveyFolder(tmp_path, NOW), valid_hours=2, clock=lambda: NOW)
    assert [listed.id for listed in made.index().surveys] == [SHORT.id]
    for name in (SHORT.id, LONGER.edition, LONGEST.edition):
        raw = made.envelope(name)
        assert raw is not None
        found, _ = opened(raw, "gateway", NOW)
        assert (found.edition, found.id) == (LONGEST.edition, SHORT.id)
