"""`dagveil certify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
import tomli_w

from dagveil.audit.certificate import load_certificate
from dagveil.cli.output import check_writable, write_output
from dagveil.data.schema import load_toml
from dagveil.errors import DataError
from dagveil.report.certification import certify as write_pack
from dagveil.report.certification import verify_pack
from dagveil.report.registry import NEEDED, DeploymentFacts, read_fact
from dagveil.runs.result import load_result
from dagveil.text import clean_lines

FACTS = "deployment.toml"


@click.command(short_help="Write what a person needs to sign a release, and check it.")
@click.argument("result", metavar="[RESULT.json]", required=False)
@click.option("-o", "--output", metavar="FOLDER", help="A new or empty folder for the pack.")
@click.option("--schema", metavar="SCHEMA.toml", help="The schema of the data set: the facts are kept beside it.")
@click.option(
    "--facts",
    metavar="FILE",
    help=f"What only people know, kept for the next time.  [default: {FACTS} beside the schema, or else the result]",
)
@click.option(
    "--fact",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"A fact, such as {', '.join(NEEDED)}. May be given several times; what is missing is asked for.",
)
@click.option(
    "--certificate", metavar="FILE", help="Of `dagveil audit`.  [default: certificate.json beside the result]"
)
@click.option("--key", metavar="FILE", help="A private key of OpenSSH's to sign with.")
@click.option("--verify", metavar="FOLDER", help="Check a pack instead of writing one.")
@click.option("--public-key", metavar="FILE", help="With --verify: the key that must have signed.")
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
    written = write_pack(
        loaded,
        output,
        known,
        certificate=found,
        certificate_json=b"" if found is None else audited.read_bytes(),
        key=key,
    )
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
