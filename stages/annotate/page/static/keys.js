// Every action has a key and a button.
import { $ } from "./dom.js";
import { close, toggle } from "./messages.js";
import * as zoom from "./zoom.js";

const PAN = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };

// The source in place of the edit; the title says which of the two is seen.
function flicker(on) {
  $("flicker").hidden = $("flicker-title").hidden = !on;
  $("edit-title").hidden = on;
}

const writes = (event) => event.target.closest?.("dialog[open] :is(textarea, input)");

// does: actions of the page; state: of the page.
export function listen(state, does) {
  const comment = () => (($("comment-text").value = state.comment), toggle("comment"));
  const actions = {
    ArrowLeft: () => does.goTo(state.index - 1),
    ArrowRight: () => does.goTo(state.index + 1),
    ArrowUp: () => does.turn(-1),
    ArrowDown: () => does.turn(1),
    z: zoom.next,
    g: () => does.showGrid(),
    r: () => toggle("rubric"),
    c: comment,
    f: does.flag,
    n: does.forward,
    "?": () => toggle("keys"),
    Enter: () => does.submit(),
    Backspace: does.previous,
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const dialog = document.querySelector("dialog[open]");
    const typing = writes(event);
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.repeat && !typing) {
      // A held key moves the visible part and does nothing else twice; browsers would press a focused button again.
      if (!dialog && event.shiftKey && key in PAN && zoom.zoomed()) zoom.move(...PAN[key]);
      else if (dialog && key in PAN) return; // scrolls
      return event.preventDefault();
    }
    if ($("page").hidden) return key === "Backspace" && !$("message-previous").hidden && does.previous();
    if (key === " " && !typing) {
      // Space shows the source and never presses a button, so it cannot submit.
      if (!dialog) flicker(true);
      else if (!event.target.closest?.("button")) return;
      return event.preventDefault();
    }
    if (dialog) {
      if (dialog.id === "grid" && /^[1-9]$/.test(key) && Number(key) <= state.group.candidates.length) does.goTo(Number(key) - 1);
      else if (!typing && { grid: "g", rubric: "r", keys: "?" }[dialog.id] === key) dialog.close();
      else return;
      return event.preventDefault();
    }
    if (typing || (key === "Enter" && event.target.closest?.("button"))) return;
    const level = state.session.levels.find((l) => String(l.score) === key);
    if (event.shiftKey && key in PAN && zoom.zoomed()) zoom.move(...PAN[key]);
    else if (level) does.score(level.score);
    else if (actions[key]) actions[key]();
    else return;
    event.preventDefault();
  }

  addEventListener("keydown", pressed);
  addEventListener("keyup", (event) => {
    if (event.key !== " ") return;
    flicker(false);
    if (event.target.closest?.("button")) event.preventDefault(); // some browsers press a button here
  });
  addEventListener("blur", () => flicker(false));
  // After a click the button loses the focus; otherwise it would receive Space and Enter.
  addEventListener("click", (event) => event.detail > 0 && !document.querySelector("dialog[open]") && event.target.closest("button")?.blur());
  const buttons = {
    "do-grid": actions.g, "do-zoom": actions.z, "do-rubric": actions.r, "do-comment": comment, "do-flag": actions.f, "do-back": does.previous,
    "do-forward": does.forward, "message-previous": does.previous,
    "do-keys": actions["?"], "do-submit": actions.Enter, "grid-submit": actions.Enter, "feedback-next": does.next,
    "banner-mine": () => does.resolve(true), "banner-theirs": () => does.resolve(false),
  };
  for (const [id, action] of Object.entries(buttons)) $(id).addEventListener("click", () => action());
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", close);
  for (const [kind, on] of [["pointerdown", true], ["pointerup", false], ["pointerleave", false]]) $("do-flicker").addEventListener(kind, () => flicker(on));
  $("feedback").addEventListener("cancel", (event) => (event.preventDefault(), does.next()));
  $("comment-text").addEventListener("input", () => does.comment($("comment-text").value));
  $("reasons").addEventListener("change", () => ($("flag-send").disabled = false));
  $("flag-send").addEventListener("click", () => does.submit(document.querySelector("[name=reason]:checked").value, $("flag-text").value));
  $("flag").addEventListener("close", () => {
    $("flag-send").disabled = true;
    $("flag-text").value = "";
    for (const input of $("reasons").querySelectorAll("input")) input.checked = false;
  });
}
