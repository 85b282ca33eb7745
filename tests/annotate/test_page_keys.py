"""Keys of the rating page that do no harm, in a real browser: one window, one person, three groups."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser, Tab, browsing
from page_run import exported, page_run, plan, roster, serving

from stages.context import Context
from stages.engine import images

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to look at the page with")

READY = "!document.querySelector('#page').hidden && document.querySelector('#edit').naturalWidth > 0"
RECTANGLE = """(() => {
  const image = document.querySelector('#%s'), style = getComputedStyle(image), box = image.parentElement;
  const [y, x] = [parseFloat(style.paddingTop), parseFloat(style.paddingLeft)];
  if (style.objectFit === 'fill') return [x, y, box.clientWidth - 2 * x, box.clientHeight - 2 * y].map(Math.round);
  const fit = Math.min(box.clientWidth / image.naturalWidth, box.clientHeight / image.naturalHeight);
  const [w, h] = [image.naturalWidth * fit, image.naturalHeight * fit];
  return [(box.clientWidth - w) / 2, (box.clientHeight - h) / 2, w, h].map(Math.round);
})()"""


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def sent(context: Context) -> list[tuple[str, int, str | None]]:
    with sqlite3.connect(f"file:{context.run.path / 'annotate' / 'page' / 'submissions.sqlite'}?mode=ro", uri=True) as connection:
        return connection.execute("SELECT group_id, revision, flag FROM submissions ORDER BY rowid").fetchall()


def source(tab: Tab) -> str:
    return tab.run("document.querySelector('#source').getAttribute('src')")


def held(tab: Tab, key: str, times: int = 3) -> None:
    """Press a key and hold it, as a keyboard repeats it."""
    tab.key(key, up=False)
    code, number, text = {"Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}.get(key, (f"Key{key.upper()}", ord(key[0].upper()), key))
    for _ in range(times):
        tab.call("Input.dispatchKeyEvent", type="keyDown", text=text, key=key, code=code, windowsVirtualKeyCode=number, autoRepeat=True)
    tab.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code, windowsVirtualKeyCode=number)


def test_keys_do_what_they_say_and_no_more(tmp_path: Path, browser: Browser) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0)))
    pictures = context.run.path / "annotate" / "export" / "images"
    row = json.loads((pictures.parent / "groups.jsonl").read_text().splitlines()[2])
    for candidate, height in zip(row["candidates"], (94, 48), strict=True):
        (pictures.parent / candidate["image"]).write_bytes(images.png(np.full((height, 96, 3), 90, np.uint8)))
    with serving(context) as address:
        tab = browser.tab()
        tab.size(1366, 768)
        tab.open(f"http://{address}/a/{roster(context).add('Ada')[1]}")
        tab.wait(READY)
        first = source(tab)
        criteria = tab.run("[...document.querySelectorAll('#rating .dimension.now .criterion')].map(e => e.textContent)")
        assert len(criteria) == 4 and any(text.startswith("the main point is done") for text in criteria)
        criterion = "document.querySelector('#rating .dimension.now .criterion').getBoundingClientRect()"
        assert tab.run(f"{criterion}.height") > 20
        tab.size(390, 844)
        assert tab.run(f"{criterion}.height") > 20 and tab.run(f"{criterion}.width") > 300, "at the scores on a telephone too"
        tab.size(1366, 768)

        # Space shows the source, says so, and never submits, whatever has the focus
        tab.key(" ", up=False)
        visible = "[...document.querySelectorAll('#edit-pane figcaption span')].filter(e => !e.hidden).map(e => e.textContent)"
        assert tab.run(visible) == ["Source"]
        tab.key(" ")
        assert tab.run(visible) == ["Edit 1 of 2"]
        tab.run("document.querySelector('#do-submit').focus()")
        tab.key("4", "4", "3", "3")
        tab.wait("document.querySelector('#grid').open && document.activeElement.id === 'grid-submit'")
        held(tab, " ")
        assert tab.run("document.querySelector('#grid').open") and sent(context) == []

        # a held Enter submits one group, and a held letter opens one window
        held(tab, "Enter", 8)
        tab.wait(f"document.querySelector('#source').getAttribute('src') !== '{first}'")
        assert len(sent(context)) == 1
        second = source(tab)
        held(tab, "g", 4)
        assert tab.run("document.querySelector('#grid').open")
        tab.key("g")

        # from an earlier group there is a way forward without submitting, and its changes are kept apart
        assert tab.run("document.querySelector('#do-forward').hidden")
        tab.key("Backspace")
        tab.wait(f"document.querySelector('#source').getAttribute('src') === '{first}'")
        tab.key("1", "n")
        tab.wait(f"document.querySelector('#source').getAttribute('src') === '{second}'")
        assert "kept as a draft" in tab.text("#banner-text") and len(sent(context)) == 1
        tab.key("Backspace")
        tab.wait(f"document.querySelector('#source').getAttribute('src') === '{first}'")
        assert tab.text("#strip .scores") == "1 · 4"
        tab.click("#do-forward")
        tab.wait(f"document.querySelector('#source').getAttribute('src') === '{second}'")

        # an image that does not load makes no sound group impossible to rate
        name = tab.run("document.querySelectorAll('#strip img')[1].getAttribute('src')").rpartition("/")[2]
        content = (pictures / name).read_bytes()
        (pictures / name).unlink()
        tab.call("Network.setCacheDisabled", cacheDisabled=True)
        tab.reload()
        tab.wait("document.querySelector('#banner-text').textContent.startsWith('An image did not load')")
        tab.key("2", "2", "2", "2", "Enter")
        tab.wait("!document.querySelector('#grid').open")
        assert len(sent(context)) == 1, "what was not seen is not submitted"
        tab.key("f")
        enabled = "[...document.querySelectorAll('#reasons input')].filter(e => !e.disabled).map(e => e.value)"
        assert tab.run(enabled) == ["image-missing"] and len(sent(context)) == 1
        tab.key("Escape")
        (pictures / name).write_bytes(content)
        tab.wait("[...document.querySelectorAll('#strip img')].every(e => e.naturalWidth > 0)")
        tab.key("f")
        assert "image-missing" not in tab.run(enabled) and len(tab.run(enabled)) == 3
        tab.key("Escape", "g")
        tab.wait("document.querySelector('#grid').open && document.activeElement.id === 'grid-submit'")
        tab.key("Enter")
        tab.wait(f"![null, '{first}', '{second}'].includes(document.querySelector('#source').getAttribute('src'))")

        # an edit of another size: the source covers it; of another shape: the title says so
        titles = {}
        for key in ("1", "2"):
            tab.key("g", key)
            tab.wait("!document.querySelector('#grid').open && document.querySelector('#edit').naturalWidth === 96 && "
                     f"document.querySelector('#edit-title').textContent === 'Edit {key} of 2'")  # fmt: skip
            titles[tab.text("#flicker-title")] = tab.run(RECTANGLE % "flicker") == tab.run(RECTANGLE % "edit")
        assert titles == {"Source": True, "Source (its shape differs from the edit's)": False}

        # after the last group it can still be revised
        third = source(tab)
        tab.key("1", "1", "1", "1", "Enter")
        tab.wait(
            "document.querySelector('#message-title').textContent === 'No group to rate' && !document.querySelector('#message').hidden"
        )
        tab.key("Backspace")
        tab.wait(f"!document.querySelector('#page').hidden && document.querySelector('#source').getAttribute('src') === '{third}'")
        tab.key("g", "Enter")
        tab.wait("document.querySelector('#page').hidden")
        assert [row[1] for row in sent(context)] == [1, 1, 1, 2] and {row[2] for row in sent(context)} == {None}
        assert tab.errors == []
        tab.close()
