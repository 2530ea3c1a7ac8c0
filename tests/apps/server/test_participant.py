"""The participant's pages, in process and without JavaScript."""

import re
from html import unescape

import pytest

from choicegp.apps.server.cards import Cards

from .conftest import INVITE, URL, Client


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


class TestLoop:
    def test_a_whole_session(self, site):
        anna = site.join()
        assert "Question 1 of 4" in anna.see()
        assert anna.send(chosen=(0, 2)).headers["location"] == anna.path
        assert "Question 2 of 4" in anna.see()
        anna.send("none", ())
        anna.send("skip", ())
        assert "Question 4 of 4" in anna.see()
        anna.send(chosen=(1,))
        page = text_of(anna.see())
        assert "Thank you!" in page
        assert "Price: the less, the better" in page
        assert "Colour: best is red" in page
        assert "Your short list" in page
        assert "from your 3 answers" in page
        given = site.store.answers()
        assert [len(one.chosen) for one in given] == [2, 0, 1]
        assert [event.kind for event in site.store.events() if event.kind == "skipped"] == ["skipped"]
        assert site.store.participants()[0].state == "finished"

    def test_the_same_answer_sent_twice_counts_once(self, site):
        anna = site.join()
        key = anna.field("key")
        first, second = anna.send(key=key), anna.send(key=key)
        assert first.headers["location"] == second.headers["location"] == anna.path
        assert len(site.store.answers()) == 1

    def test_another_answer_to_an_old_question_is_refused_kindly(self, site):
        anna = site.join()
        key = anna.field("key")
        anna.send(key=key, chosen=(0,))
        reply = anna.send(key=key, chosen=(1,))
        assert reply.headers["location"] == f"{anna.path}?note=answered_before"
        assert "the first answer counts" in anna.client.get(reply.headers["location"]).text
        assert len(site.store.answers()) == 1

    def test_nothing_ticked_is_asked_about(self, site):
        anna = site.join()
        reply = anna.send(chosen=())
        assert "Nothing was ticked" in anna.client.get(reply.headers["location"]).text
        assert site.store.answers() == []

    def test_none_with_ticks_is_asked_about(self, site):
        anna = site.join()
        reply = anna.send("none", (0, 1))
        page = anna.client.get(reply.headers["location"]).text
        assert "You had ticked some" in page
        assert re.search(r'role="alert" tabindex="-1" autofocus', page)
        assert site.store.answers() == []

    def test_an_answer_to_a_question_that_was_withdrawn(self, site):
        anna = site.join()
        anna.send()
        key = anna.field("key")
        anna.undo()
        reply = anna.send(key=key)
        assert "was replaced" in anna.client.get(reply.headers["location"]).text

    def test_what_the_buttons_mean_is_printed(self, sites):
        page = text_of(sites().join().see())
        assert "None of these: I would reject them all." in page
        assert "Can't say: This will not count as an answer." in page
        assert "None of these" not in text_of(sites(threshold=False).join().see())

    def test_undo_shows_the_same_set_with_its_ticks(self, site):
        anna = site.join()
        names = re.findall(r'<label for="c\d">(\w+)', anna.see())
        anna.send(chosen=(1, 3))
        reply = anna.undo()
        page = anna.client.get(reply.headers["location"]).text
        assert re.findall(r'<label for="c\d">(\w+)', page) == names
        assert re.findall(r'value="(\d)"[^>]* checked', page) == ["1", "3"]
        assert site.store.answers() == []
        assert "Question 1 of 4" in page

    def test_undo_is_possible_at_the_end(self, site):
        anna = site.join()
        for _ in range(4):
            anna.send()
        assert "Thank you!" in anna.see()
        anna.undo()
        assert "Question 4 of 4" in anna.see()
        anna.send(chosen=(1,))
        assert "Thank you!" in anna.see()

    def test_undo_sent_twice_counts_once(self, site):
        anna = site.join()
        anna.send()
        key = re.search(r'/undo"><input type="hidden" name="key" value="([^"]*)"', anna.see())[1]
        for _ in range(2):
            assert anna.client.post(f"{anna.path}/undo", data={"key": key}).headers["location"].endswith("undone")
        assert len([event for event in site.store.events() if event.kind == "undone"]) == 1

    def test_looking_changes_nothing(self, site):
        anna = site.join()
        anna.send()
        before = len(site.store.events())
        for path in ("", "/status", "/matters.svg", "?note=undone"):
            assert anna.client.get(anna.path + path).status_code == 200
        assert len(site.store.events()) == before

    def test_stopping_early_ends_with_what_was_learned(self, site):
        anna = site.join()
        anna.send()
        anna.client.post(f"{anna.path}/stop")
        assert "Thank you!" in anna.see()
        assert "from one answer" in anna.see()

    def test_who_stopped_may_continue(self, site):
        anna = site.join()
        shown = re.findall(r'<label for="c\d">(\w+)', anna.see())
        for _ in range(2):
            anna.client.post(f"{anna.path}/stop")
        assert "Continue answering" in anna.see()
        for _ in range(2):
            assert anna.client.post(f"{anna.path}/next").status_code == 303
        assert re.findall(r'<label for="c\d">(\w+)', anna.see()) == shown
        kinds = [event.kind for event in site.store.events()]
        assert kinds == ["opened", "joined", "asked", "finished", "resumed"]
        for _ in range(4):
            anna.send()
        assert "Continue answering" not in anna.see()
        anna.client.post(f"{anna.path}/next")
        assert "Thank you!" in anna.see()

    @pytest.mark.parametrize(("needed", "n"), [(None, 3), (2, 2), (9, 3)])
    def test_the_way_back_to_a_panel_is_earned(self, sites, needed, n):
        site = sites(completion_url="https://panel.example/done", sets=3, completion_sets=needed)
        anna = site.join()
        anna.client.post(f"{anna.path}/stop")
        for left in range(n, 0, -1):
            page = anna.see()
            assert "panel.example" not in page
            assert ("after one more question" if left == 1 else f"after {left} more questions") in page
            anna.client.post(f"{anna.path}/next")
            anna.send()
            anna.client.post(f"{anna.path}/stop")
        assert "panel.example/done" in anna.see()

    def test_without_answers_there_is_nothing_to_learn(self, site):
        anna = site.join()
        anna.client.post(f"{anna.path}/stop")
        assert "not enough answers" in anna.see()
        assert anna.client.get(f"{anna.path}/status").json() == {"ready": True}
        assert anna.client.get(f"{anna.path}/matters.svg").status_code == 404

    def test_a_result_that_is_not_ready_is_waited_for(self, site):
        site.stub.knows = False
        anna = site.join()
        for _ in range(4):
            anna.send()
        assert "takes a moment" in anna.see()
        assert anna.client.get(f"{anna.path}/status").json() == {"ready": False}
        site.stub.knows = True
        assert anna.client.get(f"{anna.path}/status").json() == {"ready": True}
        assert "Your short list" in anna.see()

    def test_two_people_do_not_meet(self, site):
        anna, bert = site.join(), site.join()
        assert anna.path != bert.path
        anna.send()
        assert "Question 2" in anna.see()
        assert "Question 1" in bert.see()
        assert bert.send(key=anna.field("key")).status_code == 422
        assert len(site.store.answers()) == 1


class TestWelcome:
    def test_the_first_page_says_what_comes(self, site):
        page = site.client().get(f"/join/{INVITE}")
        assert page.status_code == 200
        assert "4 short questions" in page.text
        assert site.store.participants() == []

    def test_german_by_the_browser_and_by_the_link(self, site):
        assert "Willkommen" in site.client(**{"Accept-Language": "de-AT,de;q=0.9"}).get(f"/join/{INVITE}").text
        assert "Willkommen" in site.client().get(f"/join/{INVITE}?lang=de").text
        anna = site.join(language="de")
        assert "Frage 1 von 4" in anna.see()
        assert "1,25\N{NO-BREAK SPACE}kg" in anna.see()

    def test_panel_identifiers_are_kept(self, site):
        client = site.client()
        page = client.get(f"/join/{INVITE}?PROLIFIC_PID=a%22b&other=no").text
        assert unescape(re.search(r'name="PROLIFIC_PID" value="([^"]*)"', page)[1]) == 'a"b'
        assert "other" not in re.sub(r"<a [^>]*>", "", page)
        site.join(client, PROLIFIC_PID='a"b', other="no")
        assert site.store.participants()[0].panel == {"PROLIFIC_PID": 'a"b', "language": "en"}

    def test_another_person_of_a_panel_is_not_offered_to_continue(self, site):
        anna = site.join(PROLIFIC_PID="AAA")
        assert f'href="{anna.path}"' in anna.client.get(f"/join/{INVITE}?PROLIFIC_PID=AAA").text
        assert f'href="{anna.path}"' in anna.client.get(f"/join/{INVITE}").text
        page = anna.client.get(f"/join/{INVITE}?PROLIFIC_PID=BBB").text
        assert anna.path not in page
        assert 'name="PROLIFIC_PID" value="BBB"' in page

    def test_a_form_sent_twice_joins_once(self, site):
        client = site.client()
        form = re.search(r'name="form" value="([^"]*)"', client.get(f"/join/{INVITE}").text)[1]
        assert site.join(client, form=form).path == site.join(client, form=form).path
        assert len(site.store.participants()) == 1

    def test_a_form_sent_to_two_processes_joins_once(self, sites, objects):
        from choicegp.apps.server.app import create_app

        site = sites(participants=1)
        other = create_app(site.study, site.store, Cards(objects, site.study), site.stub)
        client = site.client()
        form = re.search(r'name="form" value="([^"]*)"', client.get(f"/join/{INVITE}").text)[1]
        anna = site.join(client, form=form)
        again = Client(other, {"Origin": URL}).post(f"/join/{INVITE}", data={"form": form})
        assert again.headers["location"] == anna.path, "although the study is full now"
        assert len(site.store.participants()) == 1

    def test_a_form_that_could_be_guessed_is_nobodys(self, site):
        assert site.join(form="a").path != site.join(form="a").path

    def test_who_comes_again_may_continue(self, site):
        anna = site.join()
        page = anna.client.get(f"/join/{INVITE}").text
        assert f'href="{anna.path}"' in page
        assert "<form" not in page
        assert "<form" in anna.client.get(f"/join/{INVITE}?new=true").text

    def test_consent_is_needed_where_there_is_a_text(self, sites, tmp_path):
        (tmp_path / "consent.txt").write_text("We keep\nyour answers.\n\n<b>Nothing</b> else.")
        (tmp_path / "study.toml").write_text('consent = "consent.txt"\n')
        from choicegp.apps.server.study_file import read_study

        site = sites(made=read_study(tmp_path / "study.toml"))
        client = site.client()
        page = client.get(f"/join/{INVITE}").text
        assert "<p>We keep your answers.</p>" in page
        assert "&lt;b&gt;Nothing" in page
        reply = client.post(f"/join/{INVITE}", data={"language": "en", "PROLIFIC_PID": "a&b"})
        page = client.get(reply.headers["location"]).text
        assert "Please tick the box" in page
        assert 'name="PROLIFIC_PID" value="a&amp;b"' in page
        assert site.store.participants() == []
        assert "Question 1" in site.join(client, agree="yes").see()
        _, token = site.store.join("Zoe")
        assert "We keep your answers" in client.get(f"/p/{token}").text
        client.post(f"/p/{token}/next")
        assert "We keep your answers" in client.get(f"/p/{token}").text
        client.post(f"/p/{token}/next", data={"agree": "yes"})
        assert "Question 1" in client.get(f"/p/{token}").text

    def test_a_full_study_takes_nobody_more(self, sites):
        site = sites(participants=1)
        site.join()
        reply = site.client().post(f"/join/{INVITE}", data={"language": "en"})
        assert "has all the participants" in reply.text
        assert len(site.store.participants()) == 1

    @pytest.mark.parametrize("state", ["paused", "closed"])
    def test_a_study_that_is_not_open(self, site, state):
        anna = site.join()
        site.store.set_state(state)
        assert f"study is {state}" in anna.see()
        assert f"study is {state}" in site.client().get(f"/join/{INVITE}").text
        assert f"study is {state}" in site.client().post(f"/join/{INVITE}", data={}).text
        site.store.set_state("open")
        assert "Question 1" in anna.see()

    def test_answers_after_the_end_of_a_study(self, site):
        anna = site.join()
        key = anna.field("key")
        site.store.set_state("closed")
        reply = anna.send(key=key)
        assert "study is closed" in anna.client.get(reply.headers["location"]).text
        assert site.store.answers() == []

    def test_after_a_pause_she_continues(self, site):
        anna = site.join()
        key = anna.field("key")
        site.store.set_state("paused")
        anna.send(key=key)
        site.store.set_state("open")
        assert "Ready when you are" in anna.see()
        anna.client.post(f"{anna.path}/next")
        assert "Question 2" in anna.see()


class TestCards:
    def test_what_differs_stands_out(self, site):
        page = site.join().see()
        assert re.search(r'class="differs"><dt>Price</dt><dd>€5\d0<', page)
        assert re.search(r'class="same"><dt>Weight</dt><dd>1.25\N{NO-BREAK SPACE}kg<', page)

    def test_native_checkboxes_in_a_fieldset_with_a_legend(self, site):
        page = site.join().see()
        assert re.search(r"<fieldset.*<legend>.*Tick every one you would not reject.*</legend>", page, re.DOTALL)
        assert len(re.findall(r'<input type="checkbox" name="chosen" id="c\d"', page)) == 4

    def test_no_none_without_a_threshold(self, sites):
        site = sites(threshold=False)
        anna = site.join()
        assert "None of these" not in anna.see()
        assert anna.send("none", ()).status_code == 422
        reply = anna.send(chosen=())
        assert "Can&#39;t say" in anna.client.get(reply.headers["location"]).text

    def test_a_prepared_set_is_shown(self, site):
        from choicegp.apps.server.results import Proposal

        site.stub.ready = [Proposal(("o3", "o1"), "information", 1.5, "it says much", "7 answers")]
        anna = site.join()
        assert re.findall(r'<label for="c\d">(\w+)', anna.see()) == ["o3", "o1"]
        asked = next(event for event in site.store.events() if event.kind == "asked")
        assert (asked.design, asked.value, asked.reason) == ("information", 1.5, "it says much")

    def test_a_small_catalogue_ends_when_all_sets_were_shown(self, sites, objects):
        site = sites(objects=objects.iloc[:3], sets=5, set_size=3)
        anna = site.join()
        anna.send()
        assert "Thank you!" in anna.see()

    def test_the_end_may_lead_back_to_a_panel(self, sites):
        site = sites(completion_url="https://panel.example/done?a=1&b=2", sets=1)
        anna = site.join()
        anna.send()
        assert 'href="https://panel.example/done?a=1&amp;b=2"' in anna.see()
