"""The rating page in a real browser, by keys and mouse. Screenshots are kept where SCREENSHOTS says, else in pytest's folder."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, Tab, browsing
from page_run import HOSTILE, Client, exported, gold_file, page_run, plan, roster, serving

from stages.annotate.config import PlanConfig
from stages.annotate.page import packet as packets
from stages.context import Context
from stages.engine.ids import content_id

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to look at the page with")

READY = "!document.querySelector('#page').hidden && document.querySelector('#edit').naturalWidth > 0"
SAVED = "document.querySelector('#saved').textContent === 'Saved'"
FOURTEEN = "43211234432112"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ["SCREENSHOTS"]) if "SCREENSHOTS" in os.environ else tmp_path_factory.mktemp("screenshots")


def stored(context: Context) -> list[tuple]:
    """Revisions and scores in the order of the page."""
    path = context.run.path / "annotate" / "page" / "submissions.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(
            "SELECT group_id, revision, group_concat(score, '') FROM (SELECT s.rowid AS n, s.group_id, s.revision, c.score "
            "FROM submissions s LEFT JOIN scores c USING (submission_id) ORDER BY n, position, dimension) GROUP BY n ORDER BY n"
        ).fetchall()


def pressed(tab: Tab) -> str:
    """Scores under the thumbnails."""
    scores = tab.run("[...document.querySelectorAll('#strip .scores')].map(e => e.textContent)")
    return " ".join(scores).replace(" · ", "")


def group_of(tab: Tab) -> str:
    """The group by its source picture."""
    return tab.run("document.querySelector('#source').getAttribute('src')")


def test_a_group_by_fifteen_keys_survives_reload_lost_connection_and_conflict(tmp_path: Path, browser: Browser, shots: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=4, instruction=HOSTILE, plan=plan(overlap=0)))
    _, token = roster(context).add("Ada")
    with serving(context) as address:
        tab = browser.tab()
        tab.size(1280, 800)
        tab.open(f"http://{address}/a/{token}")
        tab.wait(READY)
        assert tab.text("#instruction") == HOSTILE and tab.run("document.title") == "Rate edits"
        assert tab.run("document.querySelectorAll('#instruction *, #page script').length") == 0

        # half of the scores, then the page is loaded again
        tab.key(*FOURTEEN[:7])
        tab.screenshot(shots / "rating-1280.png")
        assert pressed(tab) == "43 21 12 3– –– –– ––"
        tab.key("c")
        tab.type(HOSTILE)
        tab.key("Escape")
        tab.wait(SAVED)
        first = group_of(tab)
        tab.reload()
        tab.wait(READY)
        assert (group_of(tab), pressed(tab)) == (first, "43 21 12 3– –– –– ––")

        # the rest, and the fifteenth key
        tab.key(*FOURTEEN[7:])
        tab.wait("document.querySelector('#grid').open")
        tab.wait("[...document.querySelectorAll('#tiles img')].every(e => e.naturalWidth > 0)")
        tab.screenshot(shots / "overview-1280.png")
        sums = "[...document.querySelectorAll('#tiles .scores')].map(e => e.textContent.match(/\\d/g).map(Number)).map(([a, b]) => a + b)"
        assert tab.run(sums) == [7, 7, 7, 3, 3, 3, 3]
        tab.key("Enter")
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{first}'")
        assert [row[1:] for row in stored(context)] == [(1, FOURTEEN)]

        # Backspace opens it again; a correction is a revision
        tab.key("Backspace")
        tab.wait(f"document.querySelector('#source').getAttribute('src') === '{first}'")
        assert pressed(tab) == "43 21 12 34 43 21 12" and "earlier" in tab.text("#mode")
        assert tab.run("document.querySelector('#has-comment').hidden") is False
        tab.key("g", "2")
        tab.key("4", "Enter")
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{first}'")
        assert [row[1:] for row in stored(context)] == [(1, FOURTEEN), (2, "43411234432112")]

        # the connection is lost in the middle of a group; nothing is, once it is back
        second = group_of(tab)
        tab.wait(SAVED)
        tab.offline(True)
        tab.key(*FOURTEEN)
        tab.wait("document.querySelector('#grid').open")
        tab.key("Enter")
        tab.wait("document.querySelector('#banner-text').textContent.includes('kept in this browser')")
        tab.screenshot(shots / "no-connection-1280.png")
        assert len(stored(context)) == 2
        tab.reload()  # the network is gone: this page cannot come back before it is
        tab.offline(False)
        tab.open(f"http://{address}/")
        tab.wait(f"{READY} && document.querySelector('#source').getAttribute('src') !== '{second}'")
        assert [row[1:] for row in stored(context)][2:] == [(1, FOURTEEN)]

        # two windows on one group: the second asks what should count
        other = browser.tab()
        other.size(1280, 800)
        other.open(f"http://{address}/")
        other.wait(READY)
        assert group_of(other) == group_of(tab)
        tab.key("1", "1")
        tab.wait(SAVED)
        other.key("4", "4")
        other.wait("!document.querySelector('#banner-mine').hidden")
        other.screenshot(shots / "conflict-1280.png")
        other.click("#banner-theirs")
        other.wait("document.querySelector('#banner').hidden && document.querySelector('#strip .scores').textContent === '1 · 1'")
        assert pressed(other) == "11 –– –– –– –– –– ––"
        other.key(*FOURTEEN[2:], "Enter")
        other.wait("!document.querySelector('#page').hidden && document.querySelector('#strip .scores').textContent === '– · –'")
        tab.key("3", "3")
        tab.wait("!document.querySelector('#banner-mine').hidden")
        tab.click("#banner-mine")
        tab.wait("document.querySelector('#banner').hidden")
        tab.wait(SAVED)
        third = group_of(tab)
        tab.key(*"3" * 10, "Enter")
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{third}'")
        assert [row[1:] for row in stored(context)[3:]] == [(1, "11" + FOURTEEN[2:]), (2, "11" + "3" * 12)]
        assert tab.errors == [] == [error for error in other.errors if "409" not in error]
        tab.close(), other.close()


def test_the_page_by_mouse_and_at_200_percent(tmp_path: Path, browser: Browser, shots: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, instruction="Make the left mug blue " * 6, plan=plan(overlap=0)))
    people = roster(context)
    token = people.add("Ada")[1]
    with serving(context) as address:
        tab = browser.tab()
        tab.size(1280, 800)
        tab.open(f"http://{address}/a/{token}")
        tab.wait(READY)

        # hold Space: the source in place of the edit; Z: both pictures alike
        tab.key(" ", up=False)
        assert tab.run("document.querySelector('#flicker').hidden") is False
        assert tab.run("document.querySelector('#flicker').src === document.querySelector('#source').src")
        tab.key(" ")
        assert tab.run("document.querySelector('#flicker').hidden")
        tab.key("z")
        scales = tab.run("['source', 'edit', 'flicker'].map(id => document.getElementById(id).style.transform)")
        assert len(set(scales)) == 1 and scales[0].startswith("scale(")
        tab.click("#do-zoom")
        tab.click("#do-zoom")
        assert tab.text("#zoom") == "Fit"

        # every key has a button; the focus stays with the page
        tab.click("#rating .dimension:nth-child(1) button:nth-of-type(4)")
        tab.click("#rating .dimension:nth-child(2) button:nth-of-type(2)")
        assert pressed(tab) == "42 –– –– –– –– –– ––" and tab.text("#edit-title") == "Edit 2 of 7"
        assert tab.run("document.activeElement === document.body")
        tab.key("ArrowLeft", "ArrowDown", "3")
        assert pressed(tab) == "43 –– –– –– –– –– ––"
        tab.key("Enter")
        assert "12 scores missing" in tab.text("#banner-text")
        tab.click("#do-rubric")
        tab.wait("document.querySelector('#rubric').open")
        assert tab.run("document.querySelector('#rubric').scrollTop") == 0
        assert "Signs of a low score" in tab.text("#rubric-text") and "**" not in tab.text("#rubric-text")
        tab.screenshot(shots / "rubric-1280.png")
        tab.key("r")

        for width, height, zoom in ((1280, 800, 2.0), (1366, 768, 1.0), (1280, 800, 1.0)):
            tab.size(width, height, zoom)
            tab.wait(f"innerWidth === {round(width / zoom)}")
            tab.screenshot(shots / f"rating-{width}-at-{round(100 * zoom)}-percent.png")
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), (width, zoom)
            box = tab.run("(r => [r.width, r.height])(document.querySelector('#edit-pane .box').getBoundingClientRect())")
            assert box[0] > 0.45 * width / zoom and box[1] > (170 if zoom > 1 else 330), box
            buttons = tab.run("[...document.querySelectorAll('#rating button')].every(b => { const r = b.getBoundingClientRect(); "
                              "return r.top >= 0 && r.bottom <= innerHeight + 1 && b.scrollWidth <= b.clientWidth + 1 })")  # fmt: skip
            assert buttons, f"a score is out of sight at {width} x {height}, {zoom}"

        # what cannot be rated is sent with its reason, and with what was written of it before, by keys alone
        tab.key("c")
        tab.wait("document.querySelector('#comment').open")
        tab.type("the source is cut off")
        tab.key("Escape", "f")
        tab.wait("document.querySelector('#flag').open")
        assert tab.run("document.querySelector('#flag-send').disabled")
        assert tab.run("document.querySelector('#flag-text').maxLength") == 4000 - len("the source is cut off; ")
        tab.key("ArrowDown")
        tab.screenshot(shots / "cannot-be-rated-1280.png")
        tab.key("Tab", "Tab", "Enter")
        tab.wait("document.querySelector('#progress').textContent.includes('rated 1 group.')")
        with sqlite3.connect(context.run.path / "annotate" / "page" / "submissions.sqlite") as connection:
            flag, comment = connection.execute("SELECT flag, comment FROM unrateable").fetchone()
        assert flag in ("source-broken", "instruction-impossible") and comment == "the source is cut off"

        # from who is paused nothing is taken, and nothing is lost
        boss = Client(address, people.add("Boss", "lead")[1])
        third = group_of(tab)
        boss.ask("POST", "/api/lead/decision", {"subject": "annotator-01", "action": "pause", "reason": ""})
        tab.key(*FOURTEEN)
        tab.wait("document.querySelector('#grid').open")
        tab.key("Enter")
        tab.wait("document.querySelector('#banner-text').textContent.startsWith('The lead of the project has paused your work')")
        tab.screenshot(shots / "paused-1280.png")
        assert pressed(tab) == "43 21 12 34 43 21 12" and len(stored(context)) == 1
        boss.ask("POST", "/api/lead/decision", {"subject": "annotator-01", "action": "resume", "reason": ""})
        tab.key("Enter")
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{third}'")
        assert [row[1:] for row in stored(context)] == [(1, None), (1, FOURTEEN)]

        # a link that is taken back ends the work
        people.revoke("Ada")
        tab.key("1")
        tab.wait("document.querySelector('#message-title').textContent === 'No valid link' && !document.querySelector('#message').hidden")
        assert tab.errors == []
        tab.close()


def test_what_is_left_is_on_the_server_with_its_time(tmp_path: Path, browser: Browser) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0)))
    path = context.run.path / "annotate" / "page" / "submissions.sqlite"

    def drafts() -> dict[str, tuple[list[int], float]]:
        """Scores and seconds by source picture."""
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            bodies = [(group, json.loads(body)) for group, body in connection.execute("SELECT group_id, body FROM drafts")]
        pictures = packets.load(path.parent.parent).groups
        scores = {group: [score for of in body["scores"].values() for score in of.values()] for group, body in bodies}
        return {f"/image/{pictures[group].source}": (scores[group], body["seconds"]) for group, body in bodies}

    def hours() -> float:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT coalesce(sum(seconds), 0) FROM hours").fetchone()[0]

    with serving(context) as address:
        tab = browser.tab()
        tab.open(f"http://{address}/a/{roster(context).add('Ada')[1]}")
        tab.wait(READY)
        first, shown = group_of(tab), "document.querySelector('#source').getAttribute('src') === '{}'"
        tab.run("Date.now = (was => () => was() - 3_600_000)(Date.now)")  # the clock of the computer is set back
        tab.key("1", "2", "3", "4", "Enter")
        tab.wait(f"!({shown.format(first)})")
        second, before = group_of(tab), hours()
        tab.run("Object.assign(document.querySelector('#comment-text'), { value: 'half: \\ud83d, whole: \\ud83d\\ude00' })"
                ".dispatchEvent(new Event('input'))")  # fmt: skip
        tab.wait(SAVED)
        tab.key("3", "Backspace")  # within half a second
        tab.wait(shown.format(first))
        assert drafts()[second][0] == [3] and first not in drafts()
        tab.run("new Promise(done => setTimeout(done, 2500))")
        tab.key("n")
        tab.wait(shown.format(second))
        scores, seconds = drafts()[first]
        assert sorted(scores) == [1, 2, 3, 4] and seconds >= 1 and hours() >= before + 1, "the earlier group was looked at, not changed"
        other = browser.tab()  # two windows; the first one only looks
        other.open(f"http://{address}/")
        other.wait(f"{READY} && {shown.format(second)}")
        tab.run("new Promise(done => setTimeout(done, 1500))")
        tab.key("Backspace")
        tab.wait(shown.format(first))
        looked = drafts()[second]
        other.key("2")
        other.wait(SAVED)
        assert drafts()[second][0] == [3, 2] and drafts()[second][1] >= looked[1] and other.run("document.querySelector('#banner').hidden")
        other.key("g", "2", "1")
        other.open("about:blank")
        other.wait("document.body.innerText === ''")
        for _ in range(300):
            if drafts()[second][0] == [3, 2, 1]:
                break
            time.sleep(0.1)
        assert drafts()[second][0] == [3, 2, 1]
        assert [error for error in tab.errors + other.errors if "409" not in error] == []
        tab.close(), other.close()


def test_training_and_the_lead_s_page(tmp_path: Path, browser: Browser, shots: Path) -> None:
    context = page_run(tmp_path / "run", groups=8)
    path, _ = gold_file(tmp_path / "gold.csv", context, [content_id("source", number) for number in range(4)])
    settings = PlanConfig(gold=str(path), training_groups=2, exam_groups=1, overlap=1)
    flow = context.flow.model_copy(update={"annotate": context.flow.annotate.model_copy(update={"plan": settings})})
    exported(Context(context.run, flow, context.cluster))
    people = roster(context)
    with serving(context) as address:
        tab = browser.tab()
        tab.size(1280, 800)
        tab.open(f"http://{address}/a/{people.add('Ada')[1]}")
        tab.wait(READY)
        assert tab.text("#mode") == "Training" and tab.text("#progress") == "Group: 1 of 2"
        tab.key(*FOURTEEN, "Enter")
        tab.wait("document.querySelector('#feedback').open")
        tab.screenshot(shots / "training-1280.png")
        assert "experts" in tab.text("#feedback-tiles") and "the hat is missing" in tab.text("#feedback-tiles")
        tab.key("Enter")
        tab.wait("document.querySelector('#progress').textContent === 'Group: 2 of 2'")
        tab.close()

        lead = browser.tab()
        lead.size(1280, 1600)
        lead.open(f"http://{address}/a/{people.add('Boss', 'lead')[1]}")
        lead.wait("!document.querySelector('#main').hidden && document.querySelector('#status').textContent === ''")
        assert (
            "annotator-01" in lead.text("#people")
            and "training" in lead.text("#people")
            and "Ada" not in lead.run("document.body.innerText")
        )
        assert lead.run("document.documentElement.scrollWidth <= innerWidth")
        lead.screenshot(shots / "lead-1280.png")
        assert lead.errors == []
        lead.close()
