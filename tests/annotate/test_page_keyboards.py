"""Keyboards of any layout, keys of one's own, and what the page looks like for sliders, rankings, adjudications and previews."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, Tab, browsing
from page_run import exported, page_run, plan, roster, running, serving
from rated_run import rating_task_of, ratings_of, write_csv
from test_page_protocol import EDITHF, ENGLISH, GERMAN, write_rubric

from stages.annotate import step as annotate
from stages.annotate.page import server
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.context import Context

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to look at the page with")

READY = "!document.querySelector('#page').hidden && document.querySelector('#edit').naturalWidth > 0"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ["SCREENSHOTS"]) if "SCREENSHOTS" in os.environ else tmp_path_factory.mktemp("screenshots")


def scores(context: Context) -> list[Any]:
    """Scores of all submissions in the order of the page."""
    with sqlite3.connect(f"file:{context.run.path / 'annotate' / 'page' / 'submissions.sqlite'}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT score FROM scores JOIN submissions s USING (submission_id) ORDER BY s.rowid, position, dimension")
        return [score for (score,) in rows]


def physical(tab: Tab, *keys: tuple[str, str]) -> None:
    """Press keys given as (what the layout writes, the place on the keyboard)."""
    for key, code in keys:
        text = key if len(key) == 1 else ""
        tab.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, key=key, code=code)
        tab.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)


def strip(tab: Tab) -> list[str]:
    return tab.run("[...document.querySelectorAll('#strip .scores')].map(e => e.textContent)")


def opened(browser: Browser, address: str, token: str) -> Tab:
    tab = browser.tab()
    tab.size(1366, 768)
    tab.open(f"http://{address}/a/{token}")
    tab.wait(READY)
    return tab


def test_other_layouts_own_keys_and_skip(tmp_path: Path, browser: Browser, shots: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0)))
    with serving(context) as address:
        link = roster(context).add("Ada")[1]
        tab = opened(browser, address, link)
        # Cyrillic letters, the unshifted digits of AZERTY, a dead key, Arabic digits
        physical(tab, ("&", "Digit1"), ("-", "Digit6"), ("'", "Digit4"), ("Dead", "Digit3"))
        assert strip(tab) == ["1 · 4", "3 · –"]
        physical(tab, ("п", "KeyG"))
        tab.wait("document.querySelector('#grid').open")
        physical(tab, ("١", "Digit1"))
        tab.wait("!document.querySelector('#grid').open && document.querySelector('#edit-title').textContent === 'Edit 1 of 2'")
        # where a layout writes Latin letters, the label counts and not the place: Y and Z of QWERTZ
        physical(tab, ("z", "KeyY"))
        assert tab.text("#zoom") != "Fit"
        tab.key("z", "z", "z")

        # scores on other keys; a key that is used for something else is refused
        physical(tab, ("?", "Slash"))
        tab.click("[data-change='score-2']")
        physical(tab, ("g", "KeyG"))
        assert (
            tab.text("#keys-note") == "G is used for “overview of all edits; there, a number opens that edit”; give that another key first."
        )
        physical(tab, ("Shift", "ShiftLeft"), ("o", "KeyJ"))
        assert tab.text("#keys-note") == "" and tab.run("document.querySelector('[data-action=score-2]').textContent") == "O"
        tab.screenshot(shots / "keys-1366.png")
        tab.key("Escape", "ArrowRight")
        physical(tab, ("o", "KeyJ"))
        tab.wait("document.querySelector('#grid').open")
        assert strip(tab) == ["1 · 4", "3 · 2"]
        tab.reload()
        tab.wait(READY)
        assert strip(tab) == ["1 · 4", "3 · 2"] and tab.run("document.querySelector('[data-action=score-2]').textContent") == "O"
        other = opened(browser, address, roster(context).add("Bob")[1])
        assert other.run("document.querySelector('[data-action=score-2]').textContent") == "2", "everybody has keys of their own"
        other.close()
        tab.open(f"http://{address}/a/{link}")
        tab.wait(READY)
        tab.key("?")
        tab.click("#keys-reset")
        tab.key("Escape", "g", "1", "2")
        tab.wait("document.querySelector('#strip .scores').textContent === '2 · 4'")

        # skip: the next group, and this one does not come back
        first = tab.run("document.querySelector('#source').getAttribute('src')")
        tab.key("s")
        tab.wait("document.querySelector('#skip').open")
        tab.type("blurred")
        tab.click("#skip-send")
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{first}' && !document.querySelector('#skip').open")
        tab.reload()
        tab.wait(f"{READY} && document.querySelector('#source').getAttribute('src') !== '{first}'")
        assert tab.errors == []

        lead = browser.tab()
        lead.size(1366, 1400)
        lead.open(f"http://{address}/a/{roster(context).add('Lead', 'lead')[1]}")
        lead.wait("!document.querySelector('#main').hidden && document.querySelector('#skipped select')")
        assert "blurred" in lead.text("#skipped") and "pilot" in lead.text("#phases") and lead.errors == []
        assert "annotator-01" in lead.text("#hours") and " h" in lead.text("#hours td.number")
        lead.screenshot(shots / "lead-1366.png")
        lead.close()
        tab.close()


def test_slider_ranking_and_adjudication(tmp_path: Path, browser: Browser, shots: Path) -> None:
    folder = write_rubric(tmp_path / "rubrics", ours=ENGLISH, ours__de=GERMAN)
    context = page_run(
        tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0, ranking_raters=1), dimensions=EDITHF, scale_max=5, scale_step=0.1,
        rubrics=str(folder), rubric_version="ours",
    )  # fmt: skip
    work = rating_task_of(context)
    _, second, third = work.sampled
    candidate = sorted(work.sampled[third])[0]
    (row,) = (row for row in ratings_of(work, "", [third], 1) if (row["candidate_id"], row["dimension"]) == (candidate, EDITHF[1]))
    (tmp_path / "second.txt").write_text(second)
    annotate.export(context, limit=1)
    annotate.export(context, groups=tmp_path / "second.txt", round="ranking")
    annotate.export(context, groups=write_csv(tmp_path / "third.csv", [row | {SCORES_GIVEN: "1.5 4"}]), round="adjudication")
    with serving(context) as address:
        tab = opened(browser, address, roster(context).add("Ada")[1])
        # adjudication: one cell, the scores that were given
        tab.wait("document.querySelector('#mode').textContent === 'Adjudication'")
        assert strip(tab).count("–") == 1 and strip(tab).count("") == 1
        tab.key("g", "1" if strip(tab)[0] else "2")
        tab.wait("document.querySelectorAll('#rating .dimension:not([hidden])').length === 1")
        assert tab.text("#rating .dimension:not([hidden]) .given") == "given: 1.5, 4"
        tab.screenshot(shots / "adjudication-1366.png")
        # keys of a slider: a number, one step up or down; the mouse
        tab.key("3")
        physical(tab, ("-", "Minus"), ("-", "NumpadSubtract"), ("+", "Equal"))
        assert tab.text("#rating .dimension:not([hidden]) output").strip() == "2.9"
        tab.key("Enter")
        tab.wait("document.querySelector('#grid').open")
        tab.key("Enter")

        # ranking: rank after rank, dimension by dimension
        tab.wait("document.querySelector('#mode').textContent.startsWith('Ranking')")
        tab.screenshot(shots / "ranking-1366.png")
        assert tab.text("#submit-words") == "6 ranks missing"
        tab.key("1", "2", "2", "1", "1", "1")
        tab.wait("document.querySelector('#grid').open")
        assert strip(tab) == ["1 · 2 · 1", "2 · 1 · 1"]
        tab.key("Enter")

        # a slider shows its ends with their criteria, and no handle before it has a score
        tab.wait("document.querySelector('#mode').textContent === '' && !document.querySelector('#grid').open")
        marks = "[...document.querySelectorAll('.dimension.now .marks li')].map(e => e.innerText.replace(/\\s+/g, ' '))"
        assert tab.run(marks) == ["1 Bad bad.", "5 Good good."]
        assert tab.text("#rating .dimension:first-child output") == "not set"
        handle = "getComputedStyle(document.querySelector('.dimension.now .slider input')).appearance"
        assert tab.run(handle) == "none"

        # scores of a slider, in German
        tab.key("r")
        tab.run("(e => (e.value = 'de', e.dispatchEvent(new Event('change'))))(document.querySelector('#language'))")
        assert "Fehler überall" in tab.text("#rubric-text") and tab.text("#rating h2") == "Bildqualität"
        tab.key("Escape", "1", "ArrowDown", "2", "ArrowDown", "3", "Enter", "4", "ArrowDown", "5", "ArrowDown")
        tab.click("#rating .dimension:last-child input")
        tab.wait("document.querySelectorAll('#strip .scores')[1].textContent === '4 · 5 · 3'")
        assert tab.run(handle) == "auto"
        tab.screenshot(shots / "slider-1366.png")
        tab.size(390, 844)
        assert tab.run("document.querySelector('.slider input').clientWidth") > 150, "a slider can be moved on a telephone"
        tab.size(1366, 768)
        tab.key("Enter")
        tab.wait("document.querySelector('#grid').open")
        tab.key("Enter")
        tab.wait("document.querySelector('#message-title').textContent === 'No group to rate'")
        assert tab.errors == []
        tab.close()
    order = {name: place for place, name in enumerate(EDITHF)}
    by_name = sorted(EDITHF)
    shown = [[1, 2, 1], [2, 1, 1], [1, 2, 3], [4, 5, 3]]
    assert scores(context) == [2.9, *(edit[order[name]] for edit in shown for name in by_name)]


def test_a_preview_says_so_and_keeps_nothing_in_the_browser(tmp_path: Path, browser: Browser) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=0)))
    shown = server.preview(context.run, context.flow.annotate)
    with shown as (app, token), server.listening("127.0.0.1", 0) as listener, running(app, listener) as address:
        tab = opened(browser, address, token)
        assert tab.run("!document.querySelector('#preview').hidden")
        tab.key("1")
        tab.wait("document.querySelector('#saved').textContent === 'Saved'")
        tab.key("?")
        tab.click("[data-change='score-2']")
        tab.key("o")
        assert tab.run("document.querySelector('[data-action=score-2]').textContent") == "O" and tab.run("localStorage.length") == 0
        tab.close()
