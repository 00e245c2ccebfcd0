"""The studio in JSON: one table of every call under /api; routes and their description are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

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
SENT: Final = {TEXT: {"type": "string"}, BYTES: {"type": "string", "format": "binary"}}  # bodies that are no JSON

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

    `act` is called with the service, the parts of the path, and what the body or the query holds. Its types describe
    the call: an argument `asked` is the query of a GET and of an upload, and otherwise the body.
    """

    verb: str
    path: str
    summary: str
    act: Callable[..., Any]
    status: int = 200
    sends: str = JSON

    @property
    def types(self) -> tuple[type[msgspec.Struct] | None, Any]:
        """What is asked, if anything is, and what is answered."""
        hints = get_type_hints(self.act)
        return hints.get("asked"), hints["return"]

    @property
    def in_query(self) -> bool:
        """Whether what is asked stands in the address."""
        return self.verb == "get" or self.sends == BYTES

    @property
    def parts(self) -> list[str]:
        """Names of the parts of the path."""
        return re.findall(r"\{(\w+)\}", self.path)


_TABLE, _JOB = "/api/datasets/{dataset}", "/api/jobs/{job}"
_CALLS: Final = (
    Call("get", "/api/datasets", "The data sets of the folder, with their budgets.", StudioService.datasets),
    Call("post", "/api/datasets", "Send a table; it is streamed into the folder.", StudioService.uploaded, 201, BYTES),
    Call("get", _TABLE, "One data set.", StudioService.dataset),
    Call(
        "post", f"{_TABLE}/draft", "Write a first schema. Reads every cell, and shows none.",
        StudioService.draft, 201,
    ),
    Call("put", f"{_TABLE}/schema", "Declare the schema.", StudioService.declare),
    Call("get", f"{_TABLE}/schema.toml", "The schema's text; of a draft an outline.", StudioService.schema_text),
    Call("put", f"{_TABLE}/schema.toml", "Declare the schema as TOML.", StudioService.declare_text, sends=TEXT),
    Call("put", f"{_TABLE}/budget", "Set the lifetime budget.", StudioService.set_budget),
    Call("get", f"{_TABLE}/plan", "What a run would ask and take.", StudioService.plan),
    Call(
        "post", f"{_TABLE}/exploration", "Try methods on synthetic tables. Reads no row, and is free.",
        StudioService.explore, 201,
    ),
    Call(
        "put", f"{_TABLE}/facts", "Keep what only people know about releases; a certification pack needs it.",
        StudioService.keep_facts,
    ),
    Call(
        "post", "/api/start", "Answer plain questions about a table; a schema and a look at budgets follow.",
        StudioService.begin, 201,
    ),
    Call("post", "/api/sample", "Add sampled rows of a known network.", StudioService.add_sample),
    Call(
        "post", f"{_JOB}/project", "Write a folder to begin with, from an exploration.",
        StudioService.leave_project, 201,
    ),
    Call("get", "/api/methods", "The methods.", StudioService.methods),
    Call("get", "/api/jobs", "All jobs, newest first.", StudioService.jobs),
    Call("post", "/api/jobs", "Start a run on rows. Spends budget.", StudioService.start, 201),
    Call("get", _JOB, "One job.", StudioService.job),
    Call("post", f"{_JOB}/cancel", "Stop a job.", StudioService.cancel, 202),
    Call(
        "post", f"{_JOB}/finish", "Finish a run that stopped after it was charged. No further charge.",
        StudioService.finish, 202,
    ),
    Call("post", f"{_JOB}/search", "Search a job's evidence again. Free.", StudioService.search, 201),
    Call("get", f"{_JOB}/result", "The result, as result.json.", StudioService.result_file),
    Call("get", f"{_JOB}/evidence", "The evidence, as evidence.json.", StudioService.evidence),
    Call("get", f"{_JOB}/export", "The graph for another program.", StudioService.export),
    Call("get", f"{_JOB}/effect", "What changing one column does to another. Free.", StudioService.effect),
    Call("get", f"{_JOB}/exploration", "What was explored.", StudioService.exploration_file),
    Call("get", "/api/comparison", "Two results side by side.", StudioService.compare),
    Call("get", "/api/history", "Every run of the ledger, newest first.", StudioService.history),
)  # fmt: skip


def describe_api() -> dict[str, Any]:
    """Return the description as OpenAPI 3.1."""
    # other answers are files of the library, whose description is its own
    told = [kind for call in _CALLS for kind in call.types if kind and kind.__module__.startswith("dagveil.studio")]
    types = list(dict.fromkeys((*told, responses.Refusal)))
    shapes, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shape = dict(zip(types, shapes, strict=True))
    refusals = {
        str(code): {"description": why, "content": {JSON: {"schema": shape[responses.Refusal]}}}
        for code, why in REFUSALS.items()
    }

    def describe(call: Call) -> dict[str, Any]:
        kind, gives = call.types
        content = {TEXT: {"schema": {"type": "string"}}}
        if gives not in (str, bytes):
            content = {JSON: {"schema": shape.get(gives, {"type": "object"})}}
        found: dict[str, Any] = {
            "summary": call.summary,
            "responses": {str(call.status): {"description": "done", "content": content}, **refusals},
        }
        if kind is not None and call.in_query:
            asked = components[kind.__name__]
            found["parameters"] = [
                {"name": name, "in": "query", "required": name in asked.get("required", []), "schema": part}
                for name, part in asked["properties"].items()
            ]
        sent = shape.get(kind) if call.sends == JSON and not call.in_query else SENT.get(call.sends)
        if sent is not None:
            found["requestBody"] = {"required": True, "content": {call.sends: {"schema": sent}}}
        return found

    paths: dict[str, Any] = {}
    ids = {"dataset": DATASET_ID, "job": JOB_ID}
    for call in (Call("get", "/api/openapi.json", "This description.", describe_api), *_CALLS):
        paths.setdefault(call.path, {})[call.verb] = describe(call)
        for name in call.parts:
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
        parts, in_query, (kind, gives) = call.parts, call.in_query, call.types

        async def endpoint(request: Request) -> Response:
            given: list[Any] = [request.path_params[name] for name in parts]
            if kind is not None:
                given.append(
                    requests.read_query(request, kind) if in_query else await requests.read_json(request, kind)
                )
            elif call.sends == TEXT:
                given.append(await requests.read_text(request))
            if call.sends == BYTES:
                requests.check_type(request, BYTES)
                with service.folder.incoming(given[0].name, given[0].ending) as handle:
                    await requests.store_body(request, handle, most_uploaded)
            found = await run_in_threadpool(call.act, service, *given)
            if isinstance(found, Path):
                return Response(await run_in_threadpool(found.read_bytes), media_type=JSON)
            return Response(found, media_type=TEXT) if gives in (str, bytes) else answer(call.status, found)

        return Route(call.path, endpoint, methods=[call.verb.upper()])

    return [Route("/api/openapi.json", describe), *map(make_route, _CALLS)]
