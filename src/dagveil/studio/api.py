"""The studio in JSON: every route under /api."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from dagveil.studio.openapi import describe_api
from dagveil.studio.request_body import check_type, read_json, read_query, read_text, store_body
from dagveil.studio.requests import (
    ComparisonQuery,
    ExportQuery,
    NewBudget,
    NewDraft,
    NewExploration,
    NewJob,
    NewSchema,
    NewSearch,
    PlanQuery,
    UploadQuery,
)
from dagveil.studio.service import StudioService

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

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
            asked = await read_json(request, kind)
            return answer(status, await run_in_threadpool(act, *(request.path_params[name] for name in names), asked))

        return endpoint

    async def describe(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def upload(request: Request) -> Response:
        asked = read_query(request, UploadQuery)
        check_type(request, "application/octet-stream")
        with service.folder.incoming(asked.name, asked.ending) as handle:
            await store_body(request, handle, most_uploaded)
        return answer(201, await run_in_threadpool(service.uploaded, asked.name + asked.ending))

    async def declare_text(request: Request) -> Response:
        text = await read_text(request)
        return answer(200, await run_in_threadpool(service.declare_text, request.path_params["dataset"], text))

    async def schema_text(request: Request) -> Response:
        text = await run_in_threadpool(service.schema_text, request.path_params["dataset"])
        return Response(text, media_type="text/plain")

    async def plan(request: Request) -> Response:
        query = read_query(request, PlanQuery)
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
        query = read_query(request, ExportQuery)
        text = await run_in_threadpool(service.export, request.path_params["job"], query.to, query.extend)
        return Response(text, media_type="text/plain")

    async def exploration(request: Request) -> Response:
        found = await run_in_threadpool(service.exploration, request.path_params["job"])
        return Response(found.to_json(), media_type="application/json")

    async def compare(request: Request) -> Response:
        query = read_query(request, ComparisonQuery)
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
        Route(f"{table}/draft", asking(service.draft, NewDraft, 201, "dataset"), methods=["POST"]),
        Route(f"{table}/schema", asking(service.declare, NewSchema, 200, "dataset"), methods=["PUT"]),
        Route(f"{table}/schema.toml", schema_text),
        Route(f"{table}/schema.toml", declare_text, methods=["PUT"]),
        Route(f"{table}/budget", asking(service.set_budget, NewBudget, 200, "dataset"), methods=["PUT"]),
        Route(f"{table}/plan", plan),
        Route(f"{table}/exploration", asking(service.explore, NewExploration, 201, "dataset"), methods=["POST"]),
        Route("/api/methods", reading(service.methods)),
        Route("/api/jobs", reading(service.jobs)),
        Route("/api/jobs", asking(service.start, NewJob, 201), methods=["POST"]),
        Route(job, reading(service.job, "job")),
        Route(f"{job}/cancel", cancel, methods=["POST"]),
        Route(f"{job}/finish", finish, methods=["POST"]),
        Route(f"{job}/search", asking(service.search, NewSearch, 201, "job"), methods=["POST"]),
        Route(f"{job}/result", result),
        Route(f"{job}/evidence", evidence),
        Route(f"{job}/export", export),
        Route(f"{job}/exploration", exploration),
        Route("/api/comparison", compare),
        Route("/api/history", reading(service.history)),
    ]
