"""The folder of a studio: what counts as a data set, and that no upload reaches anything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from caller import ASIA, SECRET, VISITS, Caller, open_studio
from live_server import Server

from dagveil.errors import DataError
from dagveil.studio.folder import Folder, file_id
from dagveil.studio.jobs import holding

BYTES = "application/octet-stream"


def listing(folder: Path) -> dict[str, bytes]:
    """Return every file below the folder and its parent, but for the databases."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.parent.rglob("*"))
        if path.is_file() and "sqlite" not in path.name
    }


def test_tables_are_found_with_their_schemas(studio: Caller) -> None:
    found = studio.ask("GET", "/api/datasets").json
    assert [(one["id"], one["file"], one["schema_state"]) for one in found["datasets"]] == [
        (ASIA, "asia.csv", "reviewed"),
        (VISITS, "visits.csv", "none"),
    ]
    assert found["datasets"][0]["name"] == "asia-sample"


def test_links_folders_and_hidden_files_are_no_data_sets(
    studio: Caller, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text(f"a,b\n{SECRET},1\n")
    (outside / "secret.toml").write_text('[dataset]\nname = "stolen"\nreviewed = true\n[columns.a]\nkind = "boolean"\n')
    (studio.folder / "link.csv").symlink_to(outside / "secret.csv")
    (studio.folder / "visits.toml").symlink_to(outside / "secret.toml")
    (studio.folder / "folder.csv").mkdir()
    (studio.folder / ".hidden.csv").write_text("a\n1\n")
    (studio.folder / "notes.txt").write_text("a\n1\n")
    (studio.folder / ".csv").write_text("a\n1\n")
    os.close(os.open(os.fsencode(studio.folder) + b"/\xff\xfe.csv", os.O_CREAT, 0o600))
    os.mkfifo(studio.folder / "pipe.csv")
    found = studio.ask("GET", "/api/datasets").json["datasets"]
    assert [(one["file"], one["schema_state"]) for one in found] == [
        ("asia.csv", "reviewed"),
        ("visits.csv", "unreadable"),
    ]
    for name in ("link.csv", "folder.csv", ".hidden.csv", "pipe.csv", "../outside/secret.csv"):
        assert studio.ask("GET", f"/api/datasets/{file_id(name)}").status == 404
        assert studio.ask("POST", f"/api/datasets/{file_id(name)}/draft", {}).status == 404
    refused = studio.ask("POST", "/api/jobs", {"dataset": VISITS, "epsilon": "1"})
    assert (refused.status, refused.json["error"]) == (409, "unreadable schema")
    # a schema that is written replaces the link, and what it led to stays as it was
    text = b'[dataset]\nname = "own"\nreviewed = true\n[columns.age]\nkind = "numeric"\nbounds = [0, 100]\n'
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema.toml", text, "text/plain").status == 200
    assert "stolen" in (outside / "secret.toml").read_text()
    assert not (studio.folder / "visits.toml").is_symlink()


@pytest.mark.parametrize(
    "name",
    ["../evil", "..", ".", "/etc/passwd", "a/b", "a\\b", "a\x00b", "%2e%2e%2fevil", "..%2fevil", "~root", "-rf", "",
     "con:", "a b", "é", "x" * 65, "ledger", "studio", ".hidden", "a\nb", "CON .", "$(id)"],
)  # fmt: skip
def test_names_that_could_be_paths_are_refused(studio: Caller, name: str) -> None:
    from urllib.parse import quote

    before = listing(studio.folder)
    for shown in {quote(name), quote(name, safe="%")}:
        reply = studio.ask("POST", f"/api/datasets?name={shown}&ending=.csv", b"a,b\n1,2\n", BYTES)
        assert reply.status == 422, reply.text
    for ending in ("/../x.csv", ".toml", ".sqlite", ".py", "", ".csv/..", ".csv\x00", ".csv\n"):
        reply = studio.ask("POST", f"/api/datasets?name=fine&ending={quote(ending)}", b"a,b\n1,2\n", BYTES)
        assert reply.status == 422
    assert listing(studio.folder) == before


@pytest.mark.parametrize("path", ["..", "../asia.csv", "%2e%2e", "asia.csv", "\x00", "a" * 5000, "0" * 12, "~", "*"])
def test_ids_that_could_be_paths_lead_nowhere(studio: Caller, path: str) -> None:
    for address in (f"/api/datasets/{path}", f"/api/jobs/{path}", f"/api/jobs/{path}/result", f"/jobs/{path}/report"):
        assert studio.ask("GET", address).status == 404
    assert studio.ask("GET", f"/api/comparison?here={path}&there={path}".replace("\x00", "%00")).status == 422
    for act in ("cancel", "search"):
        assert studio.ask("POST", f"/api/jobs/{path}/{act}", {}).status == 404


def test_an_upload_is_taken_whole_or_not_at_all(studio: Caller) -> None:
    content = f"a,b\n{SECRET},2\n".encode() * 10
    reply = studio.ask("POST", "/api/datasets?name=new-table&ending=.csv", content, BYTES, piece=7)
    assert reply.status == 201, reply.text
    assert (studio.folder / "new-table.csv").read_bytes() == content
    assert (studio.folder / "new-table.csv").stat().st_mode & 0o077 == 0
    assert reply.json["schema_state"] == "none"
    again = studio.ask("POST", "/api/datasets?name=new-table&ending=.csv", b"x", BYTES)
    assert (again.status, (studio.folder / "new-table.csv").read_bytes()) == (409, content)
    before = listing(studio.folder)
    large = studio.ask("POST", "/api/datasets?name=large", b"x" * 2001, BYTES, piece=100)
    declared = studio.ask("POST", "/api/datasets?name=large", b"x", BYTES, content_length="9" * 30)
    wrong = studio.ask("POST", "/api/datasets?name=large", b"x", "multipart/form-data")
    assert [reply.status for reply in (large, declared, wrong)] == [413, 413, 415]
    assert listing(studio.folder) == before


def test_an_endless_upload_is_cut_off_and_leaves_nothing(studio: Caller) -> None:
    import asyncio

    taken = 0

    async def endless() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 500, "more_body": True}

    async def leave() -> dict[str, object]:
        return {"type": "http.disconnect"}

    before = listing(studio.folder)
    for receive, status in ((endless, 413), (leave, 400)):
        sent: list[dict[str, object]] = []

        async def send(message: dict[str, object], sent: list[dict[str, object]] = sent) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1:8123"), (b"authorization", f"Bearer {studio.keys.token}".encode()),
                   (b"content-type", BYTES.encode())]  # fmt: skip
        scope = {"type": "http", "method": "POST", "path": "/api/datasets", "query_string": b"name=endless",
                 "headers": headers, "scheme": "http", "server": ("127.0.0.1", 8123), "root_path": ""}  # fmt: skip
        asyncio.run(studio.app(scope, receive, send))  # type: ignore[arg-type]
        assert sent[0]["status"] == status
    assert taken == 5
    assert listing(studio.folder) == before


def test_what_a_killed_upload_left_is_swept_away(studio: Caller) -> None:
    (studio.folder / ".incoming-0123").write_text("half")
    Folder.open(studio.folder).sweep()
    assert not (studio.folder / ".incoming-0123").exists()
    assert (studio.folder / "asia.csv").exists()


def test_one_folder_has_one_server(tmp_path: Path) -> None:
    with (
        holding(tmp_path / "lock", "taken"),
        pytest.raises(DataError, match="taken"),
        holding(tmp_path / "lock", "taken"),
    ):
        pass
    with holding(tmp_path / "lock", "taken"):
        pass


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 3000, "x = " + "1" * 5000, "a." * 100_000 + "a = 1", "\x00", "[dataset"]
)
def test_one_hostile_schema_does_not_close_the_pages(studio: Caller, text: str) -> None:
    (studio.folder / "visits.toml").write_text(text)
    found = {one["file"]: one["schema_state"] for one in studio.ask("GET", "/api/datasets").json["datasets"]}
    assert found == {"asia.csv": "reviewed", "visits.csv": "unreadable"}
    for page in ("/", "/jobs", f"/datasets/{VISITS}", f"/datasets/{VISITS}/schema"):
        assert studio.ask("GET", page).status == 200
    assert studio.ask("PUT", f"/api/datasets/{VISITS}/schema.toml", text.encode(), kind="text/plain").status == 422


def test_what_is_written_is_for_its_owner_alone(studio: Caller) -> None:
    before = os.umask(0o022)
    try:
        assert studio.ask("POST", f"/api/datasets/{VISITS}/draft", {}).status == 201
        studio.ask(
            "PUT", f"/api/datasets/{VISITS}/schema.toml", (studio.folder / "asia.toml").read_bytes(), "text/plain"
        )
    finally:
        os.umask(before)
    for name in ("visits.toml", "studio.sqlite"):
        assert (studio.folder / name).stat().st_mode & 0o777 == 0o600, name


def test_a_live_studio_makes_everything_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir(mode=0o755)
    (tmp_path / "box" / "studio.sqlite").touch(mode=0o644)
    server = Server(tmp_path / "box")
    try:
        server.ask("GET", "/api/datasets")
    finally:
        server.stop()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "box").iterdir()}
    assert {"studio.sqlite", "ledger.sqlite", "results"} <= set(modes)
    assert set(modes.values()) <= {0o600, 0o700}, modes


def test_messages_of_errors_are_withheld_from_page_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stumble() -> None:
        raise ValueError(f"could not convert {SECRET}")

    caller = open_studio(tmp_path)
    monkeypatch.setattr(caller.service, "jobs", stumble)
    reply = caller.ask("GET", "/jobs")
    caller.service.books.close()
    assert reply.status == 500
    log = capfd.readouterr().err
    assert SECRET not in reply.text + log
    assert "ValueError" in reply.text
    assert "ValueError in test_studio_folder.py" in log
