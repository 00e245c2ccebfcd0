"""Who is let into the studio: nobody without the token, and no page but its own."""

from __future__ import annotations

import re

import pytest
from caller import ASIA, HOST, Caller
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagveil.studio.app import Keys, Place

PAGES = ("/", "/jobs", "/history", "/api/datasets", "/api/openapi.json", "/nowhere")


def enter(studio: Caller, **headers: str | None) -> str:
    """Open the address with the token, and return the cookie."""
    reply = studio.ask("GET", f"/?token={studio.keys.token}", bare=True, host=HOST, **headers)
    assert reply.status == 303
    return reply.headers["set-cookie"]


def test_the_token_is_exchanged_for_a_cookie_that_opens_every_page(studio: Caller) -> None:
    cookie = enter(studio)
    base = studio.keys.base
    assert {"HttpOnly", "SameSite=Strict", f"Path={base}"} <= set(cookie.split("; "))
    assert studio.keys.token not in cookie
    assert studio.seen[-1].headers["location"] == f"{base}/"
    value = cookie.partition(";")[0]
    for path in PAGES[:-1]:
        assert studio.ask("GET", base + path, bare=True, host=HOST, cookie=value).status == 200
    assert studio.ask("GET", f"{base}/nowhere", bare=True, host=HOST, cookie=value).status == 404


def test_neither_the_cookie_nor_the_path_is_enough(studio: Caller) -> None:
    """Another server on this machine may be sent the cookie, and a shoulder surfer may read the path."""
    cookie = enter(studio).partition(";")[0]
    base = studio.keys.base
    for path in (
        *PAGES,
        f"{base}x/",
        f"/{'x' * len(studio.keys.path)}/",
        base,
        f"{base[:-1]}/",
        f"/static/..{base}/",
        "/static/nowhere",
    ):
        for method in ("GET", "POST", "PUT"):
            told = {"bare": True, "host": HOST, "origin": f"http://{HOST}", "content_type": "application/json"}
            reply = studio.ask(method, path, b"{}", cookie=cookie, **told)
            assert reply.status in (401, 404, 405), path
            assert studio.keys.path not in reply.text + str(reply.headers)
            assert studio.ask(method, f"{base}/api/jobs", b"{}", **told).status == 401
    assert studio.service.store.all() == []


def test_links_of_pages_lead_below_the_path(studio: Caller) -> None:
    for path in ("/", "/jobs", "/history", f"/datasets/{ASIA}", f"/datasets/{ASIA}/plan", "/nowhere"):
        page = studio.ask("GET", path).text
        found = re.findall(r'(?:href|src|action|data-[a-z]+)="(?:[A-Z]+ )?(/[^"]*)"', page)
        assert found
        assert all(place.startswith((f"{studio.keys.base}", "/static/")) for place in found), path


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"authorization": "Bearer "},
        {"authorization": "\xff\xfe"},
        {"cookie": "dagveil-studio-8123=wrong"},
        {"cookie": "dagveil-studio-8123="},
        {"cookie": "x" * 9000},
        {"cookie": "\x00;;=;[]"},
    ],
)
def test_without_the_right_token_every_page_is_closed(studio: Caller, headers: dict[str, str]) -> None:
    for path in (*PAGES, "/?token=wrong", "/?token=", "/?token=\xe9", "/?token=a&token=b", "/api/../api/datasets"):
        reply = studio.ask("GET", path, bare=True, host=HOST, **headers)
        assert reply.status == 401, path
        assert "set-cookie" not in reply.headers
    post = studio.ask("POST", "/api/jobs", b"{}", bare=True, host=HOST, origin=f"http://{HOST}", **headers)
    assert post.status == 401


def test_a_token_does_not_serve_as_cookie_nor_a_cookie_as_token(studio: Caller) -> None:
    cookie = f"dagveil-studio-8123={studio.keys.token}"
    assert studio.ask("GET", "/", bare=True, host=HOST, cookie=cookie).status == 401
    assert studio.ask("GET", "/", authorization=f"Bearer {studio.keys.session}").status == 401
    assert studio.ask("GET", f"/?token={studio.keys.session}", bare=True, host=HOST).status == 401
    assert studio.ask("GET", f"/jobs?token={studio.keys.token}", bare=True, host=HOST).status == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example:8123", "127.0.0.1", "127.0.0.1:80", "10.0.0.1:8123", "localhost.evil.example:8123", "", ":8123"],
)
def test_another_host_is_refused_before_anything_else(studio: Caller, host: str) -> None:
    for path in ("/", f"/?token={studio.keys.token}", "/api/datasets", "/static/studio.css"):
        reply = studio.ask("GET", path, host=host)
        assert reply.status == 421
        assert "set-cookie" not in reply.headers


def test_no_host_or_two_are_refused(studio: Caller) -> None:
    token = (b"authorization", f"Bearer {studio.keys.token}".encode())
    assert studio.raw("GET", "/", b"", [token]).status == 421
    twice = [(b"host", HOST.encode()), (b"host", b"evil.example:8123"), token]
    assert studio.raw("GET", "/", b"", twice).status == 421


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8123"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_other_pages_are_refused_even_with_the_cookie(studio: Caller, method: str, foreign: dict[str, str]) -> None:
    cookie = enter(studio).partition(";")[0]
    for path in ("/", "/api/jobs", "/api/datasets"):
        reply = studio.ask(method, studio.keys.base + path, b"{}", bare=True, host=HOST, cookie=cookie, **foreign)
        assert reply.status == 403
        assert not [name for name in reply.headers if name.startswith("access-control")]
    studio.check_nothing_spent()
    assert studio.service.store.all() == []


def test_a_change_with_a_cookie_must_say_where_it_comes_from(studio: Caller) -> None:
    cookie = enter(studio).partition(";")[0]
    body = b'{"epsilon": "1"}'
    told = {"bare": True, "host": HOST, "cookie": cookie, "content_type": "application/json"}
    path = f"{studio.keys.base}/api/datasets/0123456789ab/budget"
    assert studio.ask("PUT", path, body, **told).status == 403
    assert studio.ask("PUT", path, body, sec_fetch_site="none", **told).status == 403
    assert studio.ask("PUT", path, body, origin=f"http://{HOST}", **told).status == 404
    assert studio.ask("PUT", path, body, sec_fetch_site="same-origin", **told).status == 404


def test_every_answer_has_its_headers(studio: Caller) -> None:
    replies = [
        studio.ask("GET", path) for path in (*PAGES, "/static/studio.css", "/static/../app.py", "/static/%2e%2e/app.py")
    ]
    replies += [studio.ask("GET", "/", bare=True, host=HOST), studio.ask("GET", "/", host="evil.example")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers
    assert replies[len(PAGES) + 1].status == replies[len(PAGES) + 2].status == 404


def test_websockets_are_closed(studio: Caller) -> None:
    import asyncio

    sent: list[object] = []

    async def send(message: object) -> None:
        sent.append(message)

    asyncio.run(studio.app({"type": "websocket", "path": "/", "headers": []}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_studio_for_others_answers_to_numbers_but_to_no_foreign_name() -> None:
    place = Place("0.0.0.0", 80_80)
    known = {host: place.knows(f"{host}:8080") for host in ("10.1.2.3", "[2001:db8::1]", "evil.example", "localhost")}
    assert known == {"10.1.2.3": True, "[2001:db8::1]": True, "evil.example": False, "localhost": True}
    assert Place("studio.lan", 8080).knows("Studio.lan:8080")


def test_secrets_are_long_different_and_never_printed() -> None:
    first, second = Keys(), Keys()
    secrets = {secret for keys in (first, second) for secret in (keys.token, keys.session, keys.path)}
    assert len(secrets) == 6
    assert all(len(secret) >= 40 for secret in secrets)
    assert not any(secret in repr(first) for secret in secrets)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"host", b"origin", b"cookie", b"authorization", b"sec-fetch-site", b"content-type"]),
            st.binary(max_size=40),
        ),
        max_size=5,
    ),
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "TRACE", "\x00"]),
)
def test_no_headers_open_the_door_by_chance(studio: Caller, headers: list[tuple[bytes, bytes]], method: str) -> None:
    for given_headers in (headers, [(b"host", HOST.encode()), *headers]):
        reply = studio.raw(method, "/api/datasets", b"{}", given_headers)
        assert reply.status in (401, 403, 421)
