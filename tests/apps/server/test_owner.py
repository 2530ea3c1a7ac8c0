"""The owner's pages."""

import json
import re

import pandas as pd
import pytest

from .conftest import INVITE

PAGES = [
    "/owner", "/owner/people/1", "/owner/people/1/status", "/owner/people/1/effects.svg", "/owner/people/1/model.cgp",
    "/owner/population", "/owner/population/status", "/owner/population/objects.svg", "/owner/downloads/events.jsonl",
    "/owner/downloads/answers.csv", "/owner/downloads/model.cgp", "/owner/downloads/report.html",
    "/owner/downloads/participants.csv", "/owner/segments", "/owner/segments/status", "/owner/segments/shares.svg",
    "/owner/downloads/people.cgp",
]  # fmt: skip
FORMS = [
    ("/owner/state", {"state": "closed"}), ("/owner/people", {"name": "Eve"}), ("/owner/leave", {}),
    ("/owner/people/1/delete", {"sure": "yes"}),
]  # fmt: skip


@pytest.fixture
def owner(site):
    client = site.client()
    reply = client.get(f"/owner/enter/{site.store.owner_token}")
    assert (reply.status_code, reply.headers["location"]) == (303, "/owner")
    return client


class TestEntering:
    def test_the_cookie_is_for_the_owners_pages_alone(self, site):
        reply = site.client().get(f"/owner/enter/{site.store.owner_token}")
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Path=/owner" in cookie

    def test_nobody_else_sees_a_page(self, site):
        anna, bert = site.join(), site.join()
        anna.send()
        bert.send()
        for client in (site.client(), anna.client, site.client(Cookie="choicegp_owner=" + anna.path[3:])):
            assert {path: client.get(path).status_code for path in PAGES} == dict.fromkeys(PAGES, 404)

    def test_nobody_else_changes_anything(self, site):
        anna = site.join()
        before = len(site.store.events())
        for path, data in FORMS:
            assert anna.client.post(path, data=data).status_code == 404
        assert len(site.store.events()) == before
        assert site.store.state == "open"

    def test_a_wrong_token(self, site):
        reply = site.client().get("/owner/enter/" + "x" * 43)
        assert reply.status_code == 404
        assert "set-cookie" not in reply.headers

    def test_leaving(self, site, owner):
        assert owner.post("/owner/leave").headers["location"] == "/"
        assert owner.get("/owner").status_code == 404


class TestPages:
    def test_the_owner_sees_every_page(self, site, owner):
        for _ in range(2):
            site.join().send()
        before = len(site.store.events())
        assert {path: owner.get(path).status_code for path in PAGES} == dict.fromkeys(PAGES, 200)
        assert len(site.store.events()) == before

    def test_participants_and_their_progress(self, site, owner):
        assert "Nobody has joined yet" in owner.get("/owner").text
        anna = site.join(PROLIFIC_PID="p7")
        anna.send()
        anna.send("skip", ())
        page = owner.get("/owner").text
        assert "participant-1" in page
        assert re.search(r'<progress value="2" max="4"', page)
        assert f"http://127.0.0.1:8000/join/{INVITE}" in page
        assert "PROLIFIC_PID: p7" in owner.get("/owner/people/1").text

    def test_who_came_more_than_once_is_marked(self, site, owner):
        for who in ({"PROLIFIC_PID": "p7", "STUDY_ID": "s"}, {"PROLIFIC_PID": "p8", "STUDY_ID": "s"}, {}, {}):
            site.join(**who)
        assert "more than once" not in owner.get("/owner").text
        site.join(PROLIFIC_PID="p7")
        assert owner.get("/owner").text.count("came more than once") == 2

    def test_what_one_person_answered_and_what_it_says(self, site, owner):
        anna = site.join()
        anna.send(chosen=(0,))
        anna.send("none", ())
        page = owner.get("/owner/people/1").text
        assert "none of these" in page
        assert "Price: the less, the better" in page
        assert "90 %" in page

    def test_pages_without_answers(self, site, owner):
        site.join()
        assert "not enough answers" in owner.get("/owner/people/1").text
        assert "not enough answers" in owner.get("/owner/population").text
        assert owner.get("/owner/people/1/status").json() == {"ready": True}
        assert owner.get("/owner/population/status").json() == {"ready": True}
        for path in ("/owner/downloads/answers.csv", "/owner/downloads/model.cgp", "/owner/people/1/effects.svg"):
            assert owner.get(path).status_code == 404

    def test_a_result_that_is_not_ready(self, site, owner):
        site.join().send()
        site.stub.knows = False
        assert 'data-wait="/owner/people/1/status"' in owner.get("/owner/people/1").text
        assert owner.get("/owner/population/status").json() == {"ready": False}
        assert owner.get("/owner/population/effects.svg").status_code == 404

    def test_shares_of_what_was_kept(self, site, owner):
        anna = site.join()
        kept = re.search(r'<label for="c1">(\w+)', anna.see())[1]
        anna.send(chosen=(1,))
        row = f'<th scope="row">{kept}</th><td class="number">1</td><td class="number">1</td>'
        assert row in owner.get("/owner/population").text

    def test_everyone_together_may_be_from_earlier_answers(self, site, owner):
        anna = site.join()
        anna.send()
        known = site.stub.everyone()
        assert "from the first" not in owner.get("/owner/population").text
        anna.send()
        site.stub.everyone = lambda: known
        assert "This is from the first 1 answers" in owner.get("/owner/population").text

    def test_what_is_not_there(self, site, owner):
        site.join()
        for path in ("99", "99/status", "0", "x", "1/model.exe", "1/secret.svg"):
            assert owner.get(f"/owner/people/{path}").status_code in (404, 422), path

    def test_shares_and_segments(self, site, owner):
        site.join().send()
        assert "at least two people" in owner.get("/owner/segments").text
        site.join().send()
        page = owner.get("/owner/segments").text
        assert "<b>2 criteria</b>" in page
        assert "40 to 90 %" in page
        assert "they keep what is cheap" in page
        assert owner.get("/owner/downloads/people.cgp").content == b"people"
        site.stub.knows = False
        assert 'data-wait="/owner/segments/status"' in owner.get("/owner/segments").text
        site.stub.people = lambda: "failed"
        assert "could not be fitted" in owner.get("/owner/segments").text


class TestChanges:
    def test_pausing_closing_and_opening_again(self, site, owner):
        for state in ("paused", "closed", "open"):
            assert owner.post("/owner/state", data={"state": state}).status_code == 303
            assert site.store.state == state
            assert f"The study is {state}" in owner.get("/owner").text
        assert owner.post("/owner/state", data={"state": "gone"}).status_code == 422

    def test_a_link_for_one_person(self, site, owner):
        form = {"name": "Zoë", "form": re.search(r'name="form" value="([^"]*)"', owner.get("/owner").text)[1]}
        reply, again = (owner.post("/owner/people", data=form) for _ in range(2))
        assert reply.status_code == 303
        assert reply.headers["location"] == again.headers["location"], "a double click makes one link"
        page = owner.get(reply.headers["location"]).text
        assert page.count("belongs to Zoë") == 1
        assert "belongs to" not in owner.get("/owner?made=" + "x" * 22).text
        link = re.search(r'id="link" value="([^"]*)"', page)[1]
        assert link.startswith("http://127.0.0.1:8000/p/")
        assert link not in owner.get("/owner").text
        zoe = site.client()
        assert "Welcome" in zoe.get(link).text
        zoe.post(link + "/next")
        assert "Question 1" in zoe.get(link).text
        again = owner.post("/owner/people", data={"name": "Zoë"})
        assert "choose another name" in again.text
        assert len(site.store.participants()) == 1

    def test_deleting_a_participant(self, site, owner):
        anna, bert = site.join(), site.join()
        anna.send()
        bert.send()
        assert owner.post("/owner/people/1/delete", data={}).status_code == 422
        assert owner.post("/owner/people/1/delete", data={"sure": "yes"}).status_code == 303
        assert [one.id for one in site.store.participants()] == [2]
        assert len(site.store.answers()) == 1
        assert anna.client.get(anna.path).status_code == 404
        assert "Question 2" in bert.see()
        assert owner.get("/owner/people/1").status_code == 404


class TestDownloads:
    def test_events(self, site, owner):
        site.join().send()
        reply = owner.get("/owner/downloads/events.jsonl")
        kinds = [json.loads(line)["kind"] for line in reply.text.splitlines()]
        assert kinds == ["opened", "joined", "asked", "answered", "asked"]
        assert 'filename="events.jsonl"' in reply.headers["content-disposition"]

    def test_answers(self, site, owner, tmp_path):
        from choicegp import ChoiceData

        anna = site.join()
        anna.send(chosen=(0, 1))
        anna.send("none", ())
        (tmp_path / "answers.csv").write_bytes(owner.get("/owner/downloads/answers.csv").content)
        table = pd.read_csv(tmp_path / "answers.csv")
        assert len(table) == 8
        data = ChoiceData.from_long(tmp_path / "answers.csv", respondent="respondent", empty="none")
        assert [len(one) for one in data.chosen] == [2, 0]

    def test_participants_with_their_panel(self, site, owner, tmp_path):
        site.join(PROLIFIC_PID="p7").send()
        site.join(PROLIFIC_PID="p8", SESSION_ID="s")
        (tmp_path / "people.csv").write_bytes(owner.get("/owner/downloads/participants.csv").content)
        table = pd.read_csv(tmp_path / "people.csv")
        assert table.columns[:5].tolist() == ["id", "label", "state", "joined", "n_answers"]
        assert table["n_answers"].tolist() == [1, 0]
        assert table["PROLIFIC_PID"].tolist() == ["p7", "p8"]

    def test_report(self, site, owner):
        site.join().send()
        site.store.join("<script>alert(1)</script>")
        text = owner.get("/owner/downloads/report.html").text
        assert "&lt;script&gt;alert(1)" in text
        assert "<script" not in text
        assert text.count("<svg") == 2
        assert owner.get("/owner/downloads/model.cgp").content == b"model"
