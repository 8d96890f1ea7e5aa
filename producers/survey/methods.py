"""The method of combining rungs: what the assumption about rungs means, or the one that experts ask for."""

from __future__ import annotations

from estimators.estimates import Method
from estimators.mechanism import ParameterError, Specification
from producers.survey.file import EstimateTable


def method_of(table: EstimateTable, mechanism: Specification) -> Method:
    """Return the method that the assumption about rungs means, or the one asked for where they agree.

    Raises:
        ParameterError: they do not agree, or the mechanism does not offer it: field, value, remedy.
    """
    if table.method is None:
        # On one rung nothing is combined, so nothing is assumed.
        return "pooled" if table.rungs == "independent" or mechanism.rungs == 1 else "stratified"
    if table.method == "auto":
        remedy = (
            "there is no automatic choice any more, since no test can make one honest; remove it, and write "
            'rungs = "any" (no assumption, wider bands) or rungs = "independent" (the rung of a device never '
            "depends on its value)"
        )
    elif table.method not in mechanism.methods:
        remedy = f"{mechanism.name} offers {', '.join(mechanism.methods)}; remove it"
    elif table.method != "stratified" and table.rungs == "any" and mechanism.rungs > 1:
        remedy = (
            f"{table.method} is biased where the rung depends on the value; write "
            'rungs = "independent" if it never does, or remove the method'
        )
    else:
        return table.method
    raise ParameterError("estimate.method", table.method, remedy)
