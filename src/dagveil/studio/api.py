"""The studio in JSON: every route under /api."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dagveil._version import __version__
from dagveil.studio import requests, responses
from dagveil.studio.folder import DATASET_ID, JOB_ID
from dagveil.studio.service import StudioService

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

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


Endpoint = Callable[["Request"], Awaitable["Response"]]


def answer(status: int, content: object) -> Response:
    """Return an answer in JSON."""
    from starlette.responses import Response

    return Response(msgspec.json.encode(content), status, media_type="application/json")


def list_routes(service: StudioService, most_uploaded: int) -> list[Route]:
    """Return the routes of the API.

    Parameters
    ----------
    service
        Does what is asked.
    most_uploaded
        Bytes of an upload, at most.
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    described = msgspec.json.encode(describe_api())

    def reading(act: Callable[..., Any], *names: str) -> Endpoint:
        """Make an endpoint of a question without a body; `names` are parts of the path."""

        async def endpoint(request: Request) -> Response:
            return answer(200, await run_in_threadpool(act, *(request.path_params[name] for name in names)))

        return endpoint

    def asking(act: Callable[..., Any], kind: type[Any], status: int, *names: str) -> Endpoint:
        """Make an endpoint of a request with a JSON body."""

        async def endpoint(request: Request) -> Response:
            asked = await requests.read_json(request, kind)
            return answer(status, await run_in_threadpool(act, *(request.path_params[name] for name in names), asked))

        return endpoint

    async def describe(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def upload(request: Request) -> Response:
        asked = requests.read_query(request, requests.UploadQuery)
        requests.check_type(request, "application/octet-stream")
        with service.folder.incoming(asked.name, asked.ending) as handle:
            await requests.store_body(request, handle, most_uploaded)
        return answer(201, await run_in_threadpool(service.uploaded, asked.name + asked.ending))

    async def declare_text(request: Request) -> Response:
        text = await requests.read_text(request)
        return answer(200, await run_in_threadpool(service.declare_text, request.path_params["dataset"], text))

    async def schema_text(request: Request) -> Response:
        text = await run_in_threadpool(service.schema_text, request.path_params["dataset"])
        return Response(text, media_type="text/plain")

    async def plan(request: Request) -> Response:
        query = requests.read_query(request, requests.PlanQuery)
        facts = await run_in_threadpool(
            service.plan, request.path_params["dataset"], query.method, query.epsilon, query.delta, query.redraws
        )
        return answer(200, facts)

    async def result(request: Request) -> Response:
        found = await run_in_threadpool(service.result, request.path_params["job"])
        return Response(found.to_json(), media_type="application/json")

    async def evidence(request: Request) -> Response:
        place = await run_in_threadpool(service.evidence, request.path_params["job"])
        return Response(await run_in_threadpool(place.read_bytes), media_type="application/json")

    async def export(request: Request) -> Response:
        query = requests.read_query(request, requests.ExportQuery)
        text = await run_in_threadpool(service.export, request.path_params["job"], query.to, query.extend)
        return Response(text, media_type="text/plain")

    async def exploration(request: Request) -> Response:
        found = await run_in_threadpool(service.exploration, request.path_params["job"])
        return Response(found.to_json(), media_type="application/json")

    async def compare(request: Request) -> Response:
        query = requests.read_query(request, requests.ComparisonQuery)
        return answer(200, await run_in_threadpool(service.compare, query.here, query.there))

    async def cancel(request: Request) -> Response:
        return answer(202, await run_in_threadpool(service.cancel, request.path_params["job"]))

    async def finish(request: Request) -> Response:
        return answer(202, await run_in_threadpool(service.finish, request.path_params["job"]))

    table, job = "/api/datasets/{dataset}", "/api/jobs/{job}"
    return [
        Route("/api/openapi.json", describe),
        Route("/api/datasets", reading(service.datasets)),
        Route("/api/datasets", upload, methods=["POST"]),
        Route(table, reading(service.dataset, "dataset")),
        Route(f"{table}/draft", asking(service.draft, requests.NewDraft, 201, "dataset"), methods=["POST"]),
        Route(f"{table}/schema", asking(service.declare, requests.NewSchema, 200, "dataset"), methods=["PUT"]),
        Route(f"{table}/schema.toml", schema_text),
        Route(f"{table}/schema.toml", declare_text, methods=["PUT"]),
        Route(f"{table}/budget", asking(service.set_budget, requests.NewBudget, 200, "dataset"), methods=["PUT"]),
        Route(f"{table}/plan", plan),
        Route(
            f"{table}/exploration", asking(service.explore, requests.NewExploration, 201, "dataset"), methods=["POST"]
        ),
        Route("/api/methods", reading(service.methods)),
        Route("/api/jobs", reading(service.jobs)),
        Route("/api/jobs", asking(service.start, requests.NewJob, 201), methods=["POST"]),
        Route(job, reading(service.job, "job")),
        Route(f"{job}/cancel", cancel, methods=["POST"]),
        Route(f"{job}/finish", finish, methods=["POST"]),
        Route(f"{job}/search", asking(service.search, requests.NewSearch, 201, "job"), methods=["POST"]),
        Route(f"{job}/result", result),
        Route(f"{job}/evidence", evidence),
        Route(f"{job}/export", export),
        Route(f"{job}/exploration", exploration),
        Route("/api/comparison", compare),
        Route("/api/history", reading(service.history)),
    ]
