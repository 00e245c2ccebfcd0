"""The studio in JSON: one table of every call under /api; routes and their description are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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

JSON: Final = "application/json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"

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


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    `act` is called with the service, the parts of the path, and what the body or the query holds. `gives` is the type
    of the answer, None for a file or for text; `body` is the type of a JSON body, or the media type of another one.
    """

    verb: str
    path: str
    summary: str
    act: Callable[..., Any]
    gives: type[msgspec.Struct] | None = None
    status: int = 200
    body: type[msgspec.Struct] | str | None = None
    query: type[msgspec.Struct] | None = None
    media: str = JSON


_TABLE, _JOB = "/api/datasets/{dataset}", "/api/jobs/{job}"
_CALLS: Final = (
    Call(
        "get", "/api/datasets", "The data sets of the folder, with their budgets.",
        StudioService.datasets, responses.Datasets,
    ),
    Call(
        "post", "/api/datasets", "Send a table; it is streamed into the folder.",
        StudioService.uploaded, responses.Dataset, 201, BYTES, requests.UploadQuery,
    ),
    Call("get", _TABLE, "One data set.", StudioService.dataset, responses.Dataset),
    Call(
        "post", f"{_TABLE}/draft", "Write a first schema. Reads every cell, and shows none.",
        StudioService.draft, responses.Dataset, 201, requests.NewDraft,
    ),
    Call(
        "put", f"{_TABLE}/schema", "Declare the schema.",
        StudioService.declare, responses.Dataset, body=requests.NewSchema,
    ),
    Call(
        "get", f"{_TABLE}/schema.toml", "The schema's text; of a draft an outline.",
        StudioService.schema_text, media=TEXT,
    ),
    Call(
        "put", f"{_TABLE}/schema.toml", "Declare the schema as TOML.",
        StudioService.declare_text, responses.Dataset, body=TEXT,
    ),
    Call(
        "put", f"{_TABLE}/budget", "Set the lifetime budget.",
        StudioService.set_budget, responses.Account, body=requests.NewBudget,
    ),
    Call(
        "get", f"{_TABLE}/plan", "What a run would ask and take.",
        StudioService.plan, responses.PlanFacts, query=requests.PlanQuery,
    ),
    Call(
        "post", f"{_TABLE}/exploration", "Try methods on synthetic tables. Reads no row, and is free.",
        StudioService.explore, responses.JobFacts, 201, requests.NewExploration,
    ),
    Call(
        "put", f"{_TABLE}/facts", "Keep what only people know about releases; a certification pack needs it.",
        StudioService.keep_facts, responses.Dataset, body=requests.NewFacts,
    ),
    Call(
        "post", "/api/start", "Answer plain questions about a table; a schema and a look at budgets follow.",
        StudioService.begin, responses.Started, 201, requests.NewStart,
    ),
    Call("post", "/api/sample", "Add sampled rows of a known network.", StudioService.add_sample, responses.Dataset),
    Call(
        "post", f"{_JOB}/project", "Write a folder to begin with, from an exploration.",
        StudioService.leave_project, responses.Project, 201, requests.NewProject,
    ),
    Call("get", "/api/methods", "The methods.", StudioService.methods, responses.Methods),
    Call("get", "/api/jobs", "All jobs, newest first.", StudioService.jobs, responses.Jobs),
    Call(
        "post", "/api/jobs", "Start a run on rows. Spends budget.",
        StudioService.start, responses.JobFacts, 201, requests.NewJob,
    ),
    Call("get", _JOB, "One job.", StudioService.job, responses.JobFacts),
    Call("post", f"{_JOB}/cancel", "Stop a job.", StudioService.cancel, responses.JobFacts, 202),
    Call(
        "post", f"{_JOB}/finish", "Finish a run that stopped after it was charged. No further charge.",
        StudioService.finish, responses.JobFacts, 202,
    ),
    Call(
        "post", f"{_JOB}/search", "Search a job's evidence again. Free.",
        StudioService.search, responses.JobFacts, 201, requests.NewSearch,
    ),
    Call("get", f"{_JOB}/result", "The result, as result.json.", StudioService.result_file),
    Call("get", f"{_JOB}/evidence", "The evidence, as evidence.json.", StudioService.evidence),
    Call(
        "get", f"{_JOB}/export", "The graph for another program.",
        StudioService.export, query=requests.ExportQuery, media=TEXT,
    ),
    Call(
        "get", f"{_JOB}/effect", "What changing one column does to another. Free.",
        StudioService.effect, query=requests.EffectQuery,
    ),
    Call("get", f"{_JOB}/exploration", "What was explored.", StudioService.exploration_file),
    Call(
        "get", "/api/comparison", "Two results side by side.",
        StudioService.compare, responses.ComparisonFacts, query=requests.ComparisonQuery,
    ),
    Call("get", "/api/history", "Every run of the ledger, newest first.", StudioService.history, responses.History),
)  # fmt: skip


def describe_api() -> dict[str, Any]:
    """Return the description as OpenAPI 3.1."""
    told = [kind for call in _CALLS for kind in (call.gives, call.body, call.query) if isinstance(kind, type)]
    types = list(dict.fromkeys((*told, responses.Refusal)))
    shapes, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shape = dict(zip(types, shapes, strict=True))
    refusals = {
        str(code): {"description": why, "content": {JSON: {"schema": shape[responses.Refusal]}}}
        for code, why in REFUSALS.items()
    }

    def describe(call: Call) -> dict[str, Any]:
        plain = {"type": "object" if call.media == JSON else "string"}
        content = {call.media: {"schema": plain if call.gives is None else shape[call.gives]}}
        found: dict[str, Any] = {
            "summary": call.summary,
            "responses": {str(call.status): {"description": "done", "content": content}, **refusals},
        }
        if call.query is not None:
            asked = components[call.query.__name__]
            found["parameters"] = [
                {"name": name, "in": "query", "required": name in asked.get("required", []), "schema": part}
                for name, part in asked["properties"].items()
            ]
        if isinstance(call.body, type):
            found["requestBody"] = {"required": True, "content": {JSON: {"schema": shape[call.body]}}}
        elif call.body is not None:
            sent = {"type": "string"} | ({"format": "binary"} if call.body == BYTES else {})
            found["requestBody"] = {"required": True, "content": {call.body: {"schema": sent}}}
        return found

    paths: dict[str, Any] = {}
    ids = {"dataset": DATASET_ID, "job": JOB_ID}
    for call in (Call("get", "/api/openapi.json", "This description.", describe_api), *_CALLS):
        paths.setdefault(call.path, {})[call.verb] = describe(call)
        for name in _list_parts(call.path):
            part = {"type": "string", "pattern": ids[name]}
            paths[call.path]["parameters"] = [{"name": name, "in": "path", "required": True, "schema": part}]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dagveil studio",
            "version": __version__,
            "description": "Send the token of the studio's address as `Authorization: Bearer TOKEN`.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def answer(status: int, content: object) -> Response:
    """Return an answer in JSON."""
    from starlette.responses import Response

    return Response(msgspec.json.encode(content), status, media_type=JSON)


def list_routes(service: StudioService, most_uploaded: int) -> list[Route]:
    """Return the routes of the API."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    described = msgspec.json.encode(describe_api())

    async def describe(request: Request) -> Response:
        return Response(described, media_type=JSON)

    def make_route(call: Call) -> Route:
        names = _list_parts(call.path)

        async def endpoint(request: Request) -> Response:
            given = [request.path_params[name] for name in names]
            asked = {} if call.query is None else msgspec.structs.asdict(requests.read_query(request, call.query))
            if isinstance(call.body, type):
                given.append(await requests.read_json(request, call.body))
            elif call.body == TEXT:
                given.append(await requests.read_text(request))
            elif call.body == BYTES:
                requests.check_type(request, BYTES)
                with service.folder.incoming(**asked) as handle:
                    await requests.store_body(request, handle, most_uploaded)
            found = await run_in_threadpool(call.act, service, *given, **asked)
            if isinstance(found, Path):
                return Response(await run_in_threadpool(found.read_bytes), media_type=call.media)
            return Response(found, media_type=TEXT) if call.media == TEXT else answer(call.status, found)

        return Route(call.path, endpoint, methods=[call.verb.upper()])

    return [Route("/api/openapi.json", describe), *map(make_route, _CALLS)]


def _list_parts(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)
