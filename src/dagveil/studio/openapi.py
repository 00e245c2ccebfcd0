"""The API's own description, made from the messages that it takes and gives."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dagveil._version import __version__
from dagveil.studio import requests, responses
from dagveil.studio.folder import DATASET_ID, JOB_ID

REFUSALS: Final = {
    400: "the body cannot be read",
    401: "no token, or a wrong one",
    403: "the request comes from another page",
    404: "there is no such thing",
    405: "method not allowed",
    408: "the body came too slowly",
    409: "it does not fit what is there: budget, schema, name or state",
    413: "the body is too large",
    415: "the body has another type",
    421: "another host was asked for",
    422: "the request does not say what it must",
    501: "a package is not installed",
    503: "too much waits already",
    507: "the disk does not take it",
}

_ANSWERS: Final = (
    responses.Account,
    responses.ComparisonFacts,
    responses.Dataset,
    responses.Datasets,
    responses.History,
    responses.JobFacts,
    responses.Jobs,
    responses.Methods,
    responses.PlanFacts,
    responses.Refusal,
)
_ASKED: Final = (
    requests.NewBudget,
    requests.NewDraft,
    requests.NewExploration,
    requests.NewJob,
    requests.NewSchema,
    requests.NewSearch,
)
_QUERIES: Final = (requests.UploadQuery, requests.PlanQuery, requests.ExportQuery, requests.ComparisonQuery)


def describe_api() -> dict[str, Any]:
    """Return the description as OpenAPI 3.1.

    Examples
    --------
    >>> sorted(describe_api()["paths"])[:2]
    ['/api/comparison', '/api/datasets']
    """
    types = [*_ANSWERS, *_ASKED, *_QUERIES]
    shapes, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shape = dict(zip((kind.__name__ for kind in types), shapes, strict=True))
    dataset = _path_part("dataset", DATASET_ID)
    job = _path_part("job", JOB_ID)

    def route(
        summary: str, gives: str | None, status: int = 200, media: str = "application/json", **more: Any
    ) -> dict[str, Any]:
        kind = {"type": "object" if media == "application/json" else "string"}
        content = {"schema": shape[gives] if gives else kind}
        refusals = {
            str(code): {"description": why, "content": {"application/json": {"schema": shape["Refusal"]}}}
            for code, why in REFUSALS.items()
        }
        good = {str(status): {"description": "done", "content": {media: content}}}
        return {"summary": summary, "responses": {**good, **refusals}, **more}

    def body(kind: str, media: str = "application/json") -> dict[str, Any]:
        content = shape[kind] if media == "application/json" else {"type": "string"}
        return {"required": True, "content": {media: {"schema": content}}}

    def query(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
        described = components[kind.__name__]
        needed = described.get("required", [])
        return [
            {"name": name, "in": "query", "required": name in needed, "schema": part}
            for name, part in described["properties"].items()
        ]

    upload = {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
    paths: dict[str, Any] = {
        "/api/openapi.json": {"get": route("This description.", None)},
        "/api/datasets": {
            "get": route("The data sets of the folder, with their budgets.", "Datasets"),
            "post": route(
                "Send a table; it is streamed into the folder.", "Dataset", 201,
                parameters=query(requests.UploadQuery), requestBody=upload,
            ),
        },
        "/api/datasets/{dataset}": {"get": route("One data set.", "Dataset"), "parameters": [dataset]},
        "/api/datasets/{dataset}/draft": {
            "post": route(
                "Write a first schema. Reads every cell, and shows none.", "Dataset", 201, requestBody=body("NewDraft")
            ),
            "parameters": [dataset],
        },
        "/api/datasets/{dataset}/schema": {
            "put": route("Declare the schema.", "Dataset", requestBody=body("NewSchema")),
            "parameters": [dataset],
        },
        "/api/datasets/{dataset}/schema.toml": {
            "get": route("The schema's text; of a draft an outline.", None, media="text/plain"),
            "put": route("Declare the schema as TOML.", "Dataset", requestBody=body("", "text/plain")),
            "parameters": [dataset],
        },
        "/api/datasets/{dataset}/budget": {
            "put": route("Set the lifetime budget.", "Account", requestBody=body("NewBudget")),
            "parameters": [dataset],
        },
        "/api/datasets/{dataset}/plan": {
            "get": route("What a run would ask and take.", "PlanFacts", parameters=query(requests.PlanQuery)),
            "parameters": [dataset],
        },
        "/api/datasets/{dataset}/exploration": {
            "post": route(
                "Try methods on synthetic tables. Reads no row, and is free.", "JobFacts", 201,
                requestBody=body("NewExploration"),
            ),
            "parameters": [dataset],
        },
        "/api/methods": {"get": route("The methods.", "Methods")},
        "/api/jobs": {
            "get": route("All jobs, newest first.", "Jobs"),
            "post": route("Start a run on rows. Spends budget.", "JobFacts", 201, requestBody=body("NewJob")),
        },
        "/api/jobs/{job}": {"get": route("One job.", "JobFacts"), "parameters": [job]},
        "/api/jobs/{job}/cancel": {"post": route("Stop a job.", "JobFacts", 202), "parameters": [job]},
        "/api/jobs/{job}/finish": {
            "post": route("Finish a run that stopped after it was charged. No further charge.", "JobFacts", 202),
            "parameters": [job],
        },
        "/api/jobs/{job}/search": {
            "post": route("Search a job's evidence again. Free.", "JobFacts", 201, requestBody=body("NewSearch")),
            "parameters": [job],
        },
        "/api/jobs/{job}/result": {"get": route("The result, as result.json.", None), "parameters": [job]},
        "/api/jobs/{job}/evidence": {
            "get": route("The evidence, as evidence.json.", None),
            "parameters": [job],
        },
        "/api/jobs/{job}/export": {
            "get": route(
                "The graph for another program.", None, media="text/plain", parameters=query(requests.ExportQuery)
            ),
            "parameters": [job],
        },
        "/api/jobs/{job}/exploration": {"get": route("What was explored.", None), "parameters": [job]},
        "/api/comparison": {
            "get": route("Two results side by side.", "ComparisonFacts", parameters=query(requests.ComparisonQuery))
        },
        "/api/history": {"get": route("Every run of the ledger, newest first.", "History")},
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dagveil studio",
            "version": __version__,
            "description": "Send the token of the studio's address as `Authorization: Bearer TOKEN`.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path_part(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}
