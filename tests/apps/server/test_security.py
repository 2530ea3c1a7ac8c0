"""What hostile requests get: nothing, and no word about the inside."""

import logging
import re

import httpx
import pandas as pd
import pytest

from choicegp.apps.server.app import create_app
from choicegp.apps.server.cards import Cards
from choicegp.apps.server.security import HEADERS, Buckets, Limits, _address
from choicegp.apps.server.study_file import read_study
from choicegp.errors import ChoiceGPError, StoreError, Unavailable

from .conftest import INVITE, Client

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def ours_in(caplog) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "choicegp.server")


class TestOrigin:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:8001"},
            {"Origin": "http://["},
            {},
        ],
    )
    def test_forms_of_other_sites_are_refused(self, site, headers):
        anna = site.join()
        stranger = Client(site.app, headers)
        key = anna.field("key")
        for path, data in (
            (f"{anna.path}/answer", {"key": key, "chosen": "0"}),
            (f"{anna.path}/stop", {}),
            (f"/join/{INVITE}", {}),
        ):
            assert stranger.post(path, data=data).status_code == 403
        assert [event.kind for event in site.store.events()] == ["opened", "joined", "asked"]

    @pytest.mark.parametrize("headers", [{"Origin": "http://127.0.0.1:8000"}, {"Sec-Fetch-Site": "same-origin"}])
    def test_either_sign_is_enough(self, site, headers):
        anna = site.join()
        key = anna.field("key")
        reply = Client(site.app, headers).post(f"{anna.path}/answer", data={"key": key, "chosen": "0"})
        assert reply.status_code == 303

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80"])
    def test_other_names_of_this_machine_are_refused(self, site, host):
        assert site.client(Host=host).get("/").status_code == 400

    @pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000"])
    def test_loopback_is_known_by_its_names(self, site, host):
        assert site.client(Host=host).get("/").status_code == 200

    def test_the_address_of_the_page_is_known(self, site, objects):
        app = create_app(site.study, site.store, Cards(objects, site.study), site.stub, url="https://study.example")
        client = Client(app, {"Host": "study.example", "Origin": "https://study.example"})
        reply = client.post(f"/join/{INVITE}", data={})
        assert reply.status_code == 303
        assert "Secure" in reply.headers["set-cookie"]
        for origin in ("http://study.example", "https://study.example:8443", "https://study.example.org", "null"):
            assert client.post(f"/join/{INVITE}", data={}, headers={"Origin": origin}).status_code == 403

    def test_one_customer_of_ipv6_is_one_address(self):
        addresses = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "192.0.2.7", "fe80::1%eth0", "")
        found = [_address({"client": (one, 1)}) for one in addresses]
        assert found == ["2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.7", "fe80::/64", ""]

    def test_addresses_of_ipv4_stay_apart_on_a_port_for_both_kinds(self):
        found = [_address({"client": (one, 1)}) for one in ("::ffff:192.0.2.7", "::ffff:192.0.2.8")]
        assert found == ["192.0.2.7", "192.0.2.8"]

    def test_a_port_that_browsers_leave_out(self, site, objects):
        cards = Cards(objects, site.study)
        app = create_app(site.study, site.store, cards, site.stub, url="https://study.example:443/")
        client = Client(app, {"Host": "study.example", "Origin": "https://study.example"})
        assert client.post(f"/join/{INVITE}", data={}).status_code == 303

    def test_an_address_of_ipv6(self, site, objects):
        app = create_app(site.study, site.store, Cards(objects, site.study), site.stub, url="http://[2001:db8::1]:8000")
        client = Client(app, {"Host": "[2001:DB8:0::1]:8000", "Origin": "http://[2001:db8::1]:8000"})
        assert client.post(f"/join/{INVITE}", data={}).status_code == 303
        assert client.get("/", headers={"Host": "[2001:db8::2]:8000"}).status_code == 400

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
    def test_other_methods(self, site, method):
        assert site.client().request(method, site.join().path).status_code == 405

    @pytest.mark.parametrize("path", ["/next", "/answer", "/undo", "/stop"])
    def test_no_change_by_get(self, site, path):
        anna = site.join()
        before = len(site.store.events())
        assert anna.client.get(anna.path + path).status_code in (404, 405)
        assert len(site.store.events()) == before


class TestHeaders:
    @pytest.mark.parametrize("path", ["/", f"/join/{INVITE}", "/static/page.css", "/nowhere", "/owner", "/images/5"])
    def test_every_reply_is_strict(self, site, path):
        headers = site.client().get(path).headers
        for name, value in HEADERS.items():
            assert headers[name] == value
        assert "no-store" in headers["cache-control"] or path.startswith("/static")
        assert "unsafe" not in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]

    def test_pages_hold_no_scripts_or_styles_of_their_own(self, site):
        anna = site.join()
        for _ in range(4):
            for page in (anna.see(), anna.client.get(f"/join/{INVITE}").text):
                assert not re.search(
                    r"<style|style=|\son\w+=|<script(?! src=\"/static/page.js\" defer></script>)", page
                )
                assert not re.search(r'(src|href|action)="(https?:)?//', page)
            anna.send()

    def test_the_schema_is_not_public(self, site):
        for path in ("/openapi.json", "/docs", "/redoc"):
            assert site.client().get(path).status_code == 404


class TestMarkup:
    def test_names_and_values_are_text(self, sites):
        table = pd.DataFrame({EVIL: [EVIL, "plain"], "x": [1, 2]}, index=[EVIL, "b"])
        site = sites(objects=table, set_size=2, title={"en": EVIL})
        anna = site.join(PROLIFIC_PID=EVIL)
        page = anna.see()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page
        owner = site.client()
        owner.get(f"/owner/enter/{site.store.owner_token}")
        anna.send()
        for path in (
            "/owner",
            "/owner/people/1",
            "/owner/population",
            f"/join/{INVITE}?PROLIFIC_PID={EVIL}&lang={EVIL}",
        ):
            assert "<script>alert" not in owner.get(path).text

    def test_pictures_stay_in_their_folder(self, tmp_path, objects):
        folder = tmp_path / "images"
        folder.mkdir()
        (tmp_path / "secret.png").write_bytes(PNG)
        (folder / "o0.png").write_bytes(PNG)
        (folder / "link.png").symlink_to(tmp_path / "secret.png")
        (folder / "page.html").write_text("<script>")
        names = [
            "o0.png",
            "../secret.png",
            str(tmp_path / "secret.png"),
            "link.png",
            "page.html",
            "none.png",
            "ä" * 200 + ".png",
            "a\0.png",
        ]
        table = objects.assign(picture=names + [None] * 4)
        cards = Cards(table, read_study(images="picture"), folder)
        assert list(cards.pictures) == [0]
        assert [one.column for one in cards.features] == ["price_eur", "colour", "weight_kg"]
        by_id = Cards(objects, read_study(), folder)
        assert list(by_id.pictures) == [0]
        with pytest.raises(ChoiceGPError, match="no folder"):
            Cards(objects, read_study(), tmp_path / "nowhere")

    def test_pictures_are_served_by_number(self, sites, tmp_path, objects):
        (tmp_path / "o3.png").write_bytes(PNG)
        site = sites(images=tmp_path)
        reply = site.client().get("/images/3")
        assert (reply.content, reply.headers["content-type"]) == (PNG, "image/png")
        for path in ("/images/4", "/images/-1", "/images/..%2f..%2fetc%2fpasswd", "/images/99999999999999999999"):
            assert site.client().get(path).status_code in (404, 422)
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
            assert site.client().get(path).status_code == 404


class TestLimits:
    def test_long_bodies(self, site):
        anna = site.join()
        assert anna.client.post(f"{anna.path}/answer", content=b"a" * 70_000).status_code == 413

        async def endless():
            while True:
                yield b"a" * 10_000

        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert anna.client.post(f"{anna.path}/answer", content=endless(), headers=kind).status_code in (400, 413)
        assert anna.client.post(f"/join/{INVITE}", content=endless(), headers=kind).status_code in (400, 413)
        lying = {**kind, "Content-Length": "-5"}
        assert anna.client.post(f"{anna.path}/answer", content=b"a", headers=lying).status_code == 413

    def test_many_fields(self, site):
        data = {f"f{i}": "1" for i in range(100)}
        assert site.client().post(f"/join/{INVITE}", data=data).status_code == 400

    def test_requests_in_a_row(self, sites):
        site = sites(limits=Limits(rate=0.0, burst=5.0))
        anna = site.join()
        assert [anna.client.get(anna.path).status_code for _ in range(7)] == [200] * 5 + [429] * 2
        assert "wait a moment" in anna.client.get(anna.path).text
        assert site.join().client.get("/").status_code == 200

    def test_people_who_join(self, sites):
        site = sites(limits=Limits(joins=0.0, joins_burst=2.0))
        client = site.client()
        assert [client.post(f"/join/{INVITE}", data={}).status_code for _ in range(3)] == [303, 303, 429]

    def test_links_that_are_guessed(self, sites):
        site = sites(limits=Limits(misses=0.0, misses_burst=3.0))
        client = site.client()
        assert [client.get(f"/p/{i:020}").status_code for i in range(5)] == [404] * 3 + [429] * 2

    def test_wrong_links_lock_nobody_out_who_has_a_valid_one(self, sites):
        site = sites(limits=Limits(misses=0.0, misses_burst=3.0))
        anna, stranger = site.join(), site.client()
        assert [stranger.get(f"/x{i}").status_code for i in range(5)] == [404] * 3 + [429] * 2
        assert "wait a moment" in stranger.get("/x").text
        assert stranger.request("HEAD", "/static/no.css").text == ""
        paths = (anna.path, "/static/page.css", f"/join/{INVITE}", f"/owner/enter/{site.store.owner_token}")
        assert [anna.client.get(path).status_code for path in paths] == [200, 200, 200, 303]
        assert anna.send().status_code == 303

    def test_buckets_fill_again(self):
        now = [0.0]
        buckets = Buckets(rate=2.0, burst=3.0, most=2, clock=lambda: now[0])
        assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
        now[0] = 1.0
        assert [buckets.take("a") for _ in range(3)] == [True, True, False]
        assert buckets.take("b")
        assert buckets.take("c")  # "a" is forgotten
        assert buckets.take("a")

    def test_full_buckets_take_no_memory(self):
        now = [0.0]
        buckets = Buckets(rate=2.0, burst=3.0, clock=lambda: now[0])
        for key in "aaabc":
            assert buckets.take(key)
        now[0] = 1.0  # "a" has had the time for two of its three
        assert buckets.take("d")
        assert list(buckets._left) == ["a", "b", "c", "d"]
        now[0] = 1.5
        assert buckets.take("d")
        assert list(buckets._left) == ["d"]


class TestErrors:
    @pytest.mark.parametrize(
        "data",
        [
            {}, {"key": ""}, {"key": "x" * 200}, {"key": "no-such"}, {"key": "a b"}, {"key": "KEY", "chosen": "9"},
            {"key": "KEY", "chosen": "-1"}, {"key": "KEY", "chosen": "x"}, {"key": "KEY", "action": "drop"},
            {"key": "KEY", "chosen": "4"},
        ],
    )  # fmt: skip
    def test_answers_that_make_no_sense(self, site, data):
        anna = site.join()
        data = {**data, "key": anna.field("key")} if data.get("key") == "KEY" else data
        reply = anna.client.post(f"{anna.path}/answer", data=data)
        assert reply.status_code == 422
        assert "could not understand" in reply.text
        assert site.store.answers() == []
        assert anna.client.post(f"{anna.path}/undo", data={"key": "no-such"}).status_code == 422

    @pytest.mark.parametrize(
        "path", ["/p/short", "/p/" + "x" * 43, "/p/" + "x" * 300, "/join/" + "x" * 30, "/p/%00", "/nowhere"]
    )
    def test_links_that_lead_nowhere(self, site, path):
        reply = site.client().get(path)
        assert reply.status_code in (404, 422)
        assert "Traceback" not in reply.text
        assert "<h1>" in reply.text

    def test_a_defect_shows_no_internals_and_logs_no_answer(self, site, caplog, monkeypatch):
        anna = site.join()
        key = anna.field("key")

        def broken(*_):
            raise RuntimeError(f"secret {key}")

        monkeypatch.setattr(site.store, "answer", broken)
        with caplog.at_level(logging.INFO):
            reply = anna.send(key=key)
        assert reply.status_code == 500
        assert "secret" not in reply.text
        assert "Something went wrong" in reply.text
        ours = ours_in(caplog)
        assert "RuntimeError" in ours
        assert "/p/{token}/answer" in ours
        for word in ("secret", key, anna.path[3:]):
            assert word not in ours

    def test_a_database_that_fails_is_not_hidden(self, site, caplog, monkeypatch):
        anna = site.join()
        key = anna.field("key")

        def locked(*_):
            raise StoreError("the database is locked")

        with monkeypatch.context() as patch:
            patch.setattr(site.store, "answer", locked)
            reply = anna.send(key=key)
        assert reply.status_code == 503
        assert "This was not saved" in reply.text
        assert anna.send(key=key).status_code == 303
        assert len(site.store.answers()) == 1

    def test_a_database_that_is_away_is_never_taken_for_something_else(self, site, monkeypatch):
        anna, owner = site.join(), site.client()
        anna.send()
        owner.get(f"/owner/enter/{site.store.owner_token}")

        def away(*_, **__):
            raise Unavailable("postgresql://u@10.0.0.3/db cannot be reached")

        with monkeypatch.context() as patch:
            patch.setattr(site.store, "undo", away)
            assert anna.undo().status_code == 503
        for name, ask in (
            ("participant", lambda: owner.get("/owner/people/1")),
            ("events", lambda: anna.client.get(anna.path)),
            ("join", lambda: owner.post("/owner/people", data={"name": "Bert"})),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(site.store, name, away)
                reply = ask()
            assert reply.status_code == 503
            assert "10.0.0.3" not in reply.text
            assert ("This was not saved" in reply.text) is (name == "join")

    def test_the_log_holds_neither_links_nor_answers(self, site, caplog):
        with caplog.at_level(logging.DEBUG, logger="choicegp.server"):
            anna = site.join(PROLIFIC_PID="pid-7")
            anna.send()
        ours = ours_in(caplog)
        assert "POST /join/{invite} 303" in ours
        for word in (anna.path[3:], INVITE, "pid-7", "o1"):
            assert word not in ours

    def test_head(self, site):
        reply = site.client().request("HEAD", "/owner")
        assert isinstance(reply, httpx.Response)
        assert reply.status_code in (404, 405)
