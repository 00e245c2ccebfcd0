"""The studio in HTML: pages that a person reads; what they change goes through the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

from jinja2 import Environment

from dagveil._version import __version__
from dagveil.data.draft import name_dataset
from dagveil.effects.answer import describe_readings
from dagveil.errors import DagveilError
from dagveil.evidence.bundle import load_evidence
from dagveil.forecast import answers
from dagveil.forecast.explore import EPSILONS
from dagveil.graphs.exchange.formats import EXPORTERS, Extension, Format
from dagveil.local.collector import Refused
from dagveil.report.html import make_environment, mark_breaks, mark_long_names, render_report
from dagveil.report.model import build_model
from dagveil.report.registry import NEEDED
from dagveil.report.svg import draw_graph
from dagveil.search.settings import SearchSettings
from dagveil.studio import requests, responses
from dagveil.studio.folder import ENDINGS
from dagveil.studio.responses import refuse
from dagveil.studio.service import StudioService
from dagveil.studio.views import list_facts

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

Answer = TypeVar("Answer")

DRAWING_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
REPORT_POLICY: Final = "frame-ancestors 'self'"  # beside the report's own, stricter one, which stands in its head
EXTENSIONS: Final = (
    (Extension.REFUSE, "edges without a direction stay so"),
    (Extension.CONSISTENT, "one DAG of the class; the choice is arbitrary"),
    (Extension.NEAREST, "a DAG that is near; the choice is arbitrary"),
)


def _list_settings(redraws: int) -> list[dict[str, Any]]:
    """List the settings of a search as fields of a form: what can be set and what it is without anybody's doing."""
    kinds = get_type_hints(SearchSettings)
    found = []
    for one in fields(SearchSettings):
        named = (kinds[one.name], *get_args(kinds[one.name]))
        enums = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Enum)]
        default = redraws if one.name == "redraws" else one.default
        choices = [member.value for kind in enums for member in kind]
        value = default.value if isinstance(default, Enum) else default
        found.append({"name": one.name, "choices": choices, "value": value})
    return found


def show_page(base: str, template: str, status: int = 200, **facts: Any) -> Response:
    """Return a page whose links begin with `base`."""
    from starlette.responses import HTMLResponse

    return HTMLResponse(_environment(base).get_template(template).render(version=__version__, **facts), status)


def show_refusal(told: Refused, base: str) -> Response:
    """Return the page that says why nothing was done."""
    return show_page(base, "refusal.html.j2", told.status, told=told)


def list_routes(service: StudioService, base: str) -> list[Route]:
    """Return the pages. The paths in their links begin with `base`."""
    from starlette.responses import Response
    from starlette.routing import Route

    show = partial(show_page, base)

    def asked(request: Request) -> responses.Dataset:
        return service.dataset(request.path_params["dataset"])

    def dataset(request: Request) -> Response:
        found = asked(request)
        jobs = [job for job in service.jobs().jobs if job.dataset == found.id]
        return show("dataset.html.j2", dataset=found, jobs=jobs)

    def start(request: Request) -> Response:
        query = requests.read_query(request, requests.StartQuery) if request.url.query else requests.StartQuery()
        table, names, semicolons = None, tuple(requests.split_names(query.columns)), False
        if query.dataset:
            table, names, layout = service.header(query.dataset)
            semicolons = layout.separator == ";"
        if not query.dataset and not query.columns:
            return show("start.html.j2", tables=[one for one in service.datasets().datasets if not one.columns])
        if len(names) < 2:
            raise Refused(422, "too few columns", "a graph needs at least two columns; name them with commas")
        return show(
            "start_questions.html.j2", table=table, names=names, semicolons=semicolons, say=answers,
            proposed="" if table is None else name_dataset(table.file),
        )  # fmt: skip

    def plan(request: Request) -> Response:
        found = asked(request)
        service.folder.table(found.id).reviewed_schema()
        query = (
            requests.read_query(request, requests.PlanQuery) if request.url.query else requests.PlanQuery(epsilon="1")
        )
        facts, told, status = _attempt(service.plan, found.id, query)
        return show(
            "plan.html.j2", status, dataset=found, query=query, plan=facts, told=told,
            methods=service.methods().methods, **explored(found.id),
        )  # fmt: skip

    def explored(table: str) -> dict[str, Any]:
        last = service.latest_exploration(table)
        done = None if last is None or not last.has_exploration else service.exploration(last.id)
        return {"exploring": last, "explored": done, "epsilons": EPSILONS}

    def jobs(request: Request) -> Response:
        return show("jobs.html.j2", jobs=service.jobs().jobs, groups=service.group_results())

    def job(request: Request) -> Response:
        found = service.job(request.path_params["job"])
        others = [one for one in service.comparable(found.id) if one.id != found.id]
        explored = service.exploration(found.id) if found.has_exploration else None
        return show(
            "job.html.j2", job=found, others=others, explored=explored, settings=_list_settings(found.redraws),
            say=answers, most_synthetic=requests.MOST_SYNTHETIC,
            formats=[form.value for form in Format], extensions=EXTENSIONS,
            columns=service.result(found.id).graph.nodes if found.has_result else (),
        )  # fmt: skip

    def tables(request: Request) -> Response:
        found, query = service.job(request.path_params["job"]), requests.read_query(request, requests.TablesQuery)
        shown, told, status = _attempt(service.tables, found.id, query.first, query.second)
        columns = list(load_evidence(service.evidence(found.id)).schema.columns)
        return show("tables.html.j2", status, job=found, query=query, shown=shown, told=told, columns=columns)

    def certify(request: Request) -> Response:
        found = service.job(request.path_params["job"])
        service.result_file(found.id)
        return show("certify.html.j2", job=found, facts=list_facts(service.facts(found.id)), needed=list(NEEDED))

    def send_zip(content: bytes, name: str) -> Response:
        named = {"content-disposition": f'attachment; filename="{name}.zip"'}
        return Response(content, media_type="application/zip", headers=named)

    def synthetic(request: Request) -> Response:
        query = requests.read_query(request, requests.SyntheticQuery)
        return send_zip(service.synthetic(request.path_params["job"], query.rows, query.seed), "synthetic")

    def certification(request: Request) -> Response:
        return send_zip(service.certification(request.path_params["job"]), "certification")

    def export(request: Request) -> Response:
        query = requests.read_query(request, requests.ExportQuery)
        text = service.export(request.path_params["job"], query)
        named = {"content-disposition": f'attachment; filename="graph-{query.to.value}{EXPORTERS[query.to].ending}"'}
        return Response(text, media_type="text/plain", headers=named)

    def report(request: Request) -> Response:
        page = render_report(build_model(service.result(request.path_params["job"])))
        return Response(page, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    def graph(request: Request) -> Response:
        job_id, differing = request.path_params["job"], set[frozenset[str]]()
        if (beside := request.query_params.get("beside")) is not None:
            found = service.compare_results(job_id, beside)
            groups = (found.only_here, found.only_there, found.turned, found.marked)
            differing = {frozenset((one.first, one.second)) for group in groups for one in group}
        title = f"Causal graph of {service.job(job_id).name}"
        return send_drawing(draw_graph(service.result(job_id).graph, title, differing=differing))

    def curve(request: Request) -> Response:
        return send_drawing(service.exploration(request.path_params["job"]).to_svg())

    def send_drawing(drawing: str) -> Response:
        return Response(drawing, media_type="image/svg+xml", headers={"content-security-policy": DRAWING_POLICY})

    def effect(request: Request) -> Response:
        found = service.job(request.path_params["job"])
        query = requests.read_query(request, requests.EffectQuery)
        answer, told, status = _attempt(service.effect, found.id, query)
        nodes = service.result(found.id).graph.nodes
        return show(
            *("effect.html.j2", status), job=found, query=query, answer=answer, told=told, columns=nodes,
            describe_readings=describe_readings,
        )  # fmt: skip

    def compare(request: Request) -> Response:
        query = requests.read_query(request, requests.ComparisonQuery)
        return show("compare.html.j2", found=service.compare(query))

    return [
        Route("/", lambda request: show("datasets.html.j2", found=service.datasets(), endings=ENDINGS)),
        Route("/favicon.ico", lambda request: Response(b"", 204)),
        Route("/datasets/{dataset}", dataset),
        Route("/datasets/{dataset}/schema", lambda request: show("schema.html.j2", dataset=asked(request))),
        Route("/datasets/{dataset}/plan", plan),
        Route("/jobs", jobs),
        Route("/jobs/{job}", job),
        Route("/start", start),
        Route("/jobs/{job}/report", report),
        Route("/jobs/{job}/tables", tables),
        Route("/jobs/{job}/synthetic.zip", synthetic),
        Route("/jobs/{job}/certify", certify),
        Route("/jobs/{job}/certification.zip", certification),
        Route("/jobs/{job}/graph.svg", graph),
        Route("/jobs/{job}/export", export),
        Route("/jobs/{job}/effect", effect),
        Route("/jobs/{job}/curve.svg", curve),
        Route("/compare", compare),
        Route("/history", lambda request: show("history.html.j2", runs=service.history().runs, ledger=service.shown)),
    ]


def _attempt(ask: Callable[..., Answer], *asked: Any) -> tuple[Answer | None, Refused | None, int]:
    """Ask, and return the answer, or else why there is none; and the status of the page that tells it."""
    try:
        return ask(*asked), None, 200
    except DagveilError as error:
        told = refuse(error)
        return None, told, told.status


@lru_cache(maxsize=4)
def _environment(base: str) -> Environment:
    environment = make_environment("dagveil.studio")
    # a time as it stands in the ledger or the jobs, for people: to the minute, in UTC
    environment.filters["moment"] = lambda text: f"{text[:16].replace('T', ' ')} UTC"
    environment.filters |= {"breakable": mark_breaks, "sentence": mark_long_names}
    environment.globals["base"] = base
    return environment
