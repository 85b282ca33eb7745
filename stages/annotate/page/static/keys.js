// Every action has a key and a button.
import { $, fill, make } from "./dom.js";
import * as keymap from "./keymap.js";
import { close, toggle } from "./messages.js";
import * as scales from "./scales.js";
import * as zoom from "./zoom.js";

const PAN = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
const CLOSES = { overview: "grid", rubric: "rubric", keys: "keys" };
let changing = null; // the action that gets another key
let group = null; // the one on the page: the list has the keys of its scale

// The source in place of the edit; the title says which of the two is seen.
function flicker(on) {
  $("flicker").hidden = $("flicker-title").hidden = !on;
  $("edit-title").hidden = on;
}

const writes = (event) => event.target.closest?.("dialog[open] :is(textarea, input)");

// The keys on the buttons of the page, and the list of all keys.
function draw(note = "") {
  const shown = (name) => !group || scales.uses(group, name);
  for (const kbd of document.querySelectorAll("kbd[data-action]")) kbd.textContent = keymap.label(kbd.dataset.action);
  $("keys-note").textContent = note;
  fill($("keys-list"), keymap.ACTIONS.filter(([name]) => shown(name)).map(([name, , words]) => [
    make("dt", {}, make("kbd", {}, keymap.label(name))),
    make("dd", {}, `${words} `, make("button", { type: "button", "data-change": name, onclick: () => begin(name, words) }, "Change")),
  ]).flat());
}

function begin(name, words) {
  changing = name;
  draw(`Press the key for “${words}”. Esc leaves it as it is.`);
}

function change(event) {
  if (["Shift", "Control", "Alt", "Meta", "AltGraph"].includes(event.key)) return;
  const problem = event.key === "Escape" ? "" : keymap.change(changing, event);
  if (!problem) changing = null;
  draw(problem);
  event.preventDefault();
}

// does: actions of the page; state: of the page.
export function listen(state, does) {
  const comment = () => (($("comment-text").value = state.comment), toggle("comment"));
  const actions = {
    before: () => does.goTo(state.index - 1),
    after: () => does.goTo(state.index + 1),
    up: () => does.turn(-1),
    down: () => does.turn(1),
    lower: () => does.move(-1),
    higher: () => does.move(1),
    zoom: zoom.next,
    overview: () => does.showGrid(),
    rubric: () => toggle("rubric"),
    comment,
    flag: does.flag,
    skip: does.askSkip,
    forward: does.forward,
    keys: () => ((group = state.group), draw(), toggle("keys")),
    submit: () => does.submit(),
    previous: does.previous,
    ...Object.fromEntries(keymap.SCORES.map((name, i) => [name, () => does.scoreByKey(i)])),
  };

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (changing && $("keys").open) return change(event);
    const dialog = document.querySelector("dialog[open]");
    const typing = writes(event);
    const { key } = event;
    if (event.repeat && !typing) {
      // A held key moves the visible part and does nothing else twice; browsers would press a focused button again.
      if (!dialog && event.shiftKey && key in PAN && zoom.zoomed()) zoom.move(...PAN[key]);
      else if (dialog && key in PAN) return; // scrolls
      return event.preventDefault();
    }
    const action = keymap.actionOf(event);
    if ($("page").hidden) return action === "previous" && !$("message-previous").hidden && does.previous();
    if ((action === "flicker" || key === " ") && !typing) {
      // Space never presses a button, so it cannot submit.
      if (!dialog) flicker(action === "flicker");
      else if (!event.target.closest?.("button")) return;
      return event.preventDefault();
    }
    if (dialog) {
      const number = Number(keymap.keyOf(event));
      if (dialog.id === "grid" && number >= 1 && number <= state.group.candidates.length) does.goTo(number - 1);
      else if (!typing && CLOSES[action] === dialog.id) dialog.close();
      else return;
      return event.preventDefault();
    }
    if (typing || (key === "Enter" && event.target.closest?.("button"))) return;
    if (event.shiftKey && key in PAN && zoom.zoomed()) zoom.move(...PAN[key]);
    else if (action) actions[action]();
    else return;
    event.preventDefault();
  }

  addEventListener("keydown", pressed);
  addEventListener("keyup", (event) => {
    if (keymap.actionOf(event) === "flicker") flicker(false);
    if (event.key === " " && event.target.closest?.("button")) event.preventDefault(); // some browsers press a button here
  });
  addEventListener("blur", () => flicker(false));
  // After a click a button or slider loses the focus; otherwise it would receive Space, Enter and the arrows.
  addEventListener("click", (event) => event.detail > 0 && !document.querySelector("dialog[open]") && event.target.closest("button, input")?.blur());
  const buttons = {
    "do-grid": actions.overview, "do-zoom": actions.zoom, "do-rubric": actions.rubric, "do-comment": comment, "do-flag": actions.flag,
    "do-skip": actions.skip, "do-back": does.previous, "do-forward": does.forward, "message-previous": does.previous, "do-keys": actions.keys,
    "do-submit": actions.submit, "grid-submit": actions.submit, "feedback-next": does.next, "skip-send": () => does.skip($("skip-text").value),
    "banner-mine": () => does.resolve(true), "banner-theirs": () => does.resolve(false), "keys-reset": () => (keymap.reset(), draw()),
  };
  for (const [id, action] of Object.entries(buttons)) $(id).addEventListener("click", () => action());
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", close);
  for (const [kind, on] of [["pointerdown", true], ["pointerup", false], ["pointerleave", false]]) $("do-flicker").addEventListener(kind, () => flicker(on));
  $("feedback").addEventListener("cancel", (event) => (event.preventDefault(), does.next()));
  $("keys").addEventListener("cancel", (event) => changing && event.preventDefault());
  $("keys").addEventListener("close", () => (changing = null));
  $("comment-text").addEventListener("input", () => does.comment($("comment-text").value));
  $("reasons").addEventListener("change", () => ($("flag-send").disabled = false));
  $("flag-send").addEventListener("click", () => does.submit(document.querySelector("[name=reason]:checked").value, $("flag-text").value));
  $("flag").addEventListener("close", () => {
    $("flag-send").disabled = true;
    $("flag-text").value = "";
    for (const input of $("reasons").querySelectorAll("input")) input.checked = false;
  });
  $("skip").addEventListener("close", () => ($("skip-text").value = ""));
  draw();
}
