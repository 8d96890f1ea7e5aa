"""The page about mechanisms is what the mechanisms say."""

from __future__ import annotations

import pytest

from deploy.docs import DOCS, generated_block, mechanism_sections
from estimators.mechanism import ParameterError
from estimators.mechanisms import catalogue
from estimators.mechanisms.registry import names, specification_class


def test_the_page_is_not_stale() -> None:
    page = DOCS / "mechanisms.md"
    assert generated_block(page, "overview") == catalogue.overview(), "run make generated"
    assert generated_block(page, "sections") == mechanism_sections(), "run make generated"


@pytest.mark.parametrize("name", names())
def test_every_mechanism_speaks_in_whole_sentences(name: str) -> None:
    kind = specification_class(name)
    for sentence in (catalogue.summary(kind), *kind.corrections):
        assert sentence[0].isupper() or not sentence[0].isalpha()
        assert sentence.endswith((".", ";")), sentence
    assert set(kind.methods) <= {"pooled", "stratified", "mle"}


@pytest.mark.parametrize("name", names())
def test_a_parameter_that_is_not_on_the_page_is_refused(name: str) -> None:
    with pytest.raises(ParameterError) as refused:
        specification_class(name).build(["a", "b"], [1.0], {"no_such_parameter": 1})
    assert refused.value.field == "no_such_parameter"
    assert all(parameter in str(refused.value) for parameter in specification_class(name).parameters)
