"""What is done with a result: `dagveil report`, `export`, `compare` and `certify`."""

import sys
from pathlib import Path

import click
import msgspec
import tomli_w

from dagveil.audit.certificate import load_certificate
from dagveil.cli.options import option
from dagveil.cli.output import check_writable, count, echo_document, say, write_output, write_pages
from dagveil.data.schema import load_toml
from dagveil.effects.answer import load_effect
from dagveil.errors import DataError
from dagveil.evaluation.comparison import Comparison, Difference, Graph, Reading, compare_graphs
from dagveil.graphs.exchange.formats import EXPORTERS, Extension, Format, load_graph
from dagveil.report.certification import certify as write_pack
from dagveil.report.certification import verify_pack
from dagveil.report.model import build_model
from dagveil.report.registry import NEEDED, DeploymentFacts, build_card, encode_card, read_fact
from dagveil.runs.result import load_result, result_from_json
from dagveil.text import clean_lines


@click.command(short_help="Draw the report and the graph of a result again.")
@click.argument("result", metavar="RESULT.json")
@option(
    "-o --output FOLDER",
    "Folder for report.html and graph.svg, or another name ending in .html.  [default: beside the result]",
)
@option("--card FILE", "Also write the card: what a public registry of deployments asks for, as JSON.")
@option("--certificate FILE", "A certificate of `dagveil audit`: the report shows what was tried against the method.")
@option("effects --effect FILE", "An effect.json of `dagveil effect` to show.", multiple=True)
def report(
    result: str, output: str | None, card: str | None, certificate: str | None, effects: tuple[str, ...]
) -> None:
    """Draw report.html and graph.svg again from RESULT.json, at no cost. Existing ones are replaced."""
    loaded = load_result(result)
    audited = None if certificate is None else load_certificate(certificate)
    answers = [load_effect(path) for path in effects]
    place = Path(output) if output else Path(result).parent
    page = place if place.suffix == ".html" else place / "report.html"
    drawing = page.with_name("graph.svg")
    written = [page, drawing, *([Path(card)] if card else ())]
    read = [Path(result), *([Path(certificate)] if certificate else ()), *map(Path, effects)]
    if len({path.absolute() for path in written}) < len(written):
        raise click.UsageError("the report, the drawing and the card must be different files")
    check_writable(*written, reads=read)
    model = build_model(loaded, audited, answers)
    write_pages(model, page, drawing)
    if card:
        write_output(Path(card), f"{encode_card(build_card(model))}\n".encode())
    click.echo(f"wrote {' and '.join(map(str, written))}")


@click.command(short_help="Write the graph of a result for another program.")
@click.argument("result", metavar="RESULT.json", type=click.Path())
@option(
    "form --to",
    "The other program's format. dowhy takes DAGs only, and neither it nor pgmpy a PAG.",
    type=click.Choice([form.value for form in Format]),
    required=True,
)
@option(
    "extension --extend",
    "Write one DAG of the equivalence class. The choice is arbitrary: the data do not make it.",
    flag_value=Extension.CONSISTENT.value,
)
@option(
    "extension --extend-nearest",
    "Like --extend, but accept the closest DAG if no exact extension exists.",
    flag_value=Extension.NEAREST.value,
)
@option("-o --output FILE", "File to write; otherwise it is printed.", type=click.Path())
def export(result: str, form: str, extension: str | None, output: str | None) -> None:
    """Write the graph of RESULT.json for another program, at no cost.

    Edges without a direction stay so. dowhy cannot have them: without --extend such a graph is refused. For dowhy a DAG
    is written as GML, for pgmpy a Python program, for causal-learn Tetrad's text.
    """
    graph = load_result(result).graph
    chosen, rule = Format(form), Extension(extension or Extension.REFUSE.value)
    text = graph.export(chosen, rule)
    if output is None:
        echo_document(text)
        return
    path = Path(output)
    check_writable(path, reads=(result,))
    write_output(path, text.encode())
    hint = EXPORTERS[chosen].hint.replace("{path}", str(path))
    click.echo(f"wrote {path}" + (f"; read it with {hint}" if hint else ""))
    undirected = len(graph.lines)
    if rule is not Extension.REFUSE and undirected:
        click.echo(f"{undirected} of its arrows were chosen arbitrarily: other DAGs fit the data as well", err=True)


@click.command(short_help="Compare a result with a known graph or with another result.")
@click.argument("result", metavar="RESULT.json", type=click.Path())
@click.argument("known", metavar="KNOWN", type=click.Path())
@option(
    "--drawn",
    "Take the arrows of a known DAG as they are drawn. Otherwise those that data alone cannot tell do not count.",
)
@option("as_json --json", "Print numbers and edges as JSON.")
def compare(result: str, known: str, drawn: bool, as_json: bool) -> None:
    """Say how the graph of RESULT.json (here) differs from another one (there), at no cost.

    KNOWN is another result, or a graph as .dot, .graphml, .gml, .dagitty, .txt (dagitty, Tetrad) or .json (networkx).
    Both graphs must have the same columns. In the scores KNOWN counts as the truth.
    """
    reading = Reading.DRAWN if drawn else Reading.CLASS
    here = load_result(result).graph.structure
    found = compare_graphs(here, _read_known(known), reading)
    if as_json:
        echo_document(msgspec.json.format(msgspec.json.encode(_summarise(found)), indent=2).decode() + "\n")
    else:
        _print(found, known)


def _read_known(path: str) -> Graph:
    """Read a result, or a graph; a JSON file may be either."""
    file = Path(path)
    if file.suffix.lower() == ".json":
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}; check the path") from error
        if b'"dagveil-result"' in content:
            return result_from_json(content).graph.structure
    return load_graph(file)


def _summarise(found: Comparison) -> dict[str, object]:
    rates = {f"skeleton_{name}": getattr(found.skeleton, name) for name in ("f1", "precision", "recall")}
    names = (
        "shd",
        "marked_f1",
        "arrow_precision",
        "arrow_recall",
        "same",
        "only_here",
        "only_there",
        "turned",
        "marked",
    )
    return rates | {name: getattr(found, name) for name in names}


def _print(found: Comparison, known: str) -> None:
    rates = found.skeleton
    say(
        f"taking {known} (there) as the truth:",
        f"skeleton: F1 {rates.f1:.3f}, precision {rates.precision:.3f}, recall {rates.recall:.3f}; "
        f"structural Hamming distance {found.shd}",
        f"arrows: precision {found.arrow_precision:.3f}, recall {found.arrow_recall:.3f}; "
        f"F1 of edges with their marks {found.marked_f1:.3f}",
        f"{count(found.same, 'edge')} the same in both",
    )
    plain = all({difference.here, difference.there} <= {"→", "←", "—"} for difference in found.marked)
    sections = {
        "only here": found.only_here,
        "only there": found.only_there,
        "turned, as they are here": found.turned,
        "with a direction in one only" if plain else "with other marks": found.marked,
    }
    for title, differences in sections.items():
        if differences:
            say(f"{title}: {count(len(differences), 'edge')}")
        for difference in differences:
            here, there = _write(difference, difference.here), _write(difference, difference.there)
            say(f"  {here} here, {there} there" if differences is found.marked else f"  {here or there}")


def _write(difference: Difference, sign: str) -> str:
    if not sign:
        return ""
    first, second = difference.first, difference.second
    return f"{second} {sign[1:]}→ {first}" if sign.startswith("←") else f"{first} {sign} {second}"


FACTS = "deployment.toml"


@click.command(short_help="Write what a person needs to sign a release, and check it.")
@click.argument("result", metavar="[RESULT.json]", required=False)
@option("-o --output FOLDER", "A new or empty folder for the pack.")
@option("--schema SCHEMA.toml", "The schema of the data set: the facts are kept beside it.")
@option(
    "--facts FILE",
    f"What only people know, kept for the next time.  [default: {FACTS} beside the schema, or else the result]",
)
@option(
    "given --fact NAME=VALUE",
    f"A fact, such as {', '.join(NEEDED)}. May be given several times; what is missing is asked for.",
    multiple=True,
)
@option("--certificate FILE", "Of `dagveil audit`.  [default: certificate.json beside the result]")
@option("--key FILE", "A private key of OpenSSH's to sign with.")
@option("--verify FOLDER", "Check a pack instead of writing one.")
@option("--public-key FILE", "With --verify: the key that must have signed.")
def certify(
    result: str | None,
    output: str | None,
    schema: str | None,
    facts: str | None,
    given: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    verify: str | None,
    public_key: str | None,
) -> None:
    """Write the certification pack of RESULT.json, at no cost; or check one with --verify.

    The pack has a page to print and sign, an entry for the public registry of deployments, answers to the hazards of
    NIST SP 800-226, a bill of materials, the audit's certificate if there is one, digests, and with --key a detached
    signature. Facts that only people know are asked for once and kept in a file. The exit code of --verify is 1 if
    something is wrong.
    """
    if verify is not None:
        if result is not None or output is not None:
            raise click.UsageError("--verify takes a pack alone, without RESULT.json and -o")
        _verify(verify, public_key)
        return
    if result is None or output is None:
        raise click.UsageError("give RESULT.json and -o FOLDER, or --verify FOLDER")
    loaded = load_result(result)
    place = Path(facts) if facts else Path(schema or result).parent / FACTS
    known = _collect(place, given)
    audited = Path(certificate) if certificate else Path(result).parent / "certificate.json"
    found = load_certificate(audited) if certificate or audited.exists() else None
    content = b"" if found is None else audited.read_bytes()
    written = write_pack(loaded, output, known, certificate=found, certificate_json=content, key=key)
    click.echo(f"wrote {len(written)} files to {output}; print and sign {Path(output) / 'sign.html'}")
    if key is None:
        click.echo("The pack is not signed; --key FILE signs it.", err=True)
    if found is None:
        click.echo(f"No audit is in it; `dagveil audit {loaded.method.name}` writes a certificate.", err=True)


def _verify(folder: str, public_key: str | None) -> None:
    wrong, signer = verify_pack(folder, public_key)
    for line in wrong:
        click.echo(clean_lines(line), err=True)
    click.echo(clean_lines(signer))
    if wrong:
        click.echo("This pack is not what was signed: do not rely on it.", err=True)
        sys.exit(1)
    click.echo("All files are as they were written, and the receipt follows from its events.")


def _collect(place: Path, given: tuple[str, ...]) -> DeploymentFacts:
    """Read the facts that are kept, add those that are given, ask for what is missing, and keep them all."""
    kept = load_toml(place, DataError, "the facts", "they are written by `dagveil certify`") if place.exists() else {}
    before = dict(kept)
    for word in given:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.UsageError(f"--fact takes NAME=VALUE, not {word!r}")
        kept[name.strip()] = read_fact(name.strip(), value)
    facts = _convert(kept, place)
    if facts.missing():
        if not sys.stdin.isatty():
            raise DataError(
                f"these facts are missing: {', '.join(facts.missing())}; give each as --fact NAME=VALUE, or write them "
                f"into {place}"
            )
        for name in facts.missing():
            kept[name] = read_fact(name, click.prompt(NEEDED[name]))
        facts = _convert(kept, place)
    if kept != before:
        check_writable(place, option="--facts")
        write_output(place, tomli_w.dumps(msgspec.to_builtins(facts)).encode())
        click.echo(f"kept the facts in {place}", err=True)
    return facts


def _convert(kept: dict[str, object], place: Path) -> DeploymentFacts:
    try:
        return msgspec.convert(kept, DeploymentFacts)
    except msgspec.ValidationError as error:
        names = ", ".join(DeploymentFacts.__struct_fields__)
        raise DataError(f"the facts for {place} cannot be read: {error}; the names are {names}") from None
