"""Schemathesis against the studio's own description: no answer that it does not describe, no 500, nothing spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from caller import ASIA, HOST, Caller, fill_folder, open_studio
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from dagveil.studio.api import describe_api
from dagveil.studio.app import Limits

SEEN: Counter[int] = Counter()
EXAMPLES = 20
"""For each of the API's operations, about half of them with data that the description forbids."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
DESCRIPTION = schemathesis.openapi.from_dict(describe_api())
OPERATIONS = {found.ok().label: found.ok() for found in DESCRIPTION.get_all_operations()}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Return one studio for all examples; its jobs never start, so every charge would be a fault."""
    folder = tmp_path_factory.mktemp("fuzz")
    fill_folder(folder)
    kept = [(folder / name).read_bytes() for name in ("asia.csv", "visits.csv")]
    beside = set(folder.parent.iterdir())
    caller = open_studio(folder, Limits(upload_bytes=2000, running=0))
    yield caller
    caller.check_nothing_spent()
    assert [(folder / name).read_bytes() for name in ("asia.csv", "visits.csv")] == kept
    assert set(folder.parent.iterdir()) == beside
    assert list((folder / "results").iterdir()) == []
    caller.service.books.close()


@pytest.mark.parametrize("label", OPERATIONS)
def test_the_api_keeps_to_its_description(label: str, target: Caller) -> None:
    operation = OPERATIONS[label]
    modes = schemathesis.GenerationMode
    cases = operation.as_strategy(generation_mode=modes.POSITIVE)
    if operation.body or operation.query or operation.path_parameters:
        cases |= operation.as_strategy(generation_mode=modes.NEGATIVE)

    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases, st.booleans())
    def story(case: Any, known: bool) -> None:
        if known and "dataset" in (case.path_parameters or {}) and case.meta.generation.mode is modes.POSITIVE:
            case.path_parameters["dataset"] = ASIA  # otherwise little but 404 would be seen
        if known and isinstance(case.body, dict) and case.body.get("dataset") and case.path == "/api/jobs":
            case.body["dataset"] = ASIA
        response = case.call(
            base_url=f"http://{HOST}", app=target.app, headers={"Authorization": f"Bearer {target.keys.token}"}
        )
        SEEN[response.status_code] += 1
        text = response.content.decode(errors="replace")
        assert not any(secret in text for secret in (target.keys.token, target.keys.session, "Traceback"))
        case.validate_response(response, checks=CHECKS)

    story()


def test_the_examples_reached_what_they_were_meant_for() -> None:
    """A test that only ever sees refusals would prove little."""
    assert {200, 201, 404, 409, 422} <= set(SEEN)
    # forbidden data include requests without the token; the door refuses those
    assert SEEN[200] + SEEN[201] > SEEN[401] + SEEN[403] + SEEN[421]
