// The rating page: one group at a time, by keyboard or mouse. State is in one object; every change of it is kept before anything else happens.
import { $, ask } from "./dom.js";
import * as clock from "./clock.js";
import { Keeping, randomId } from "./keeping.js";
import * as view from "./view.js";
import * as zoom from "./zoom.js";

const SAVE_AFTER = 500;
const state = { session: null, group: null, scores: {}, comment: "", index: 0, dimension: 0, seconds: 0, changes: 0, opened: 0, revision: 0, version: 0 };
let keeping = null;
let busy = false; // a submission is on its way
let saveTimer = 0;
let conflict = null;
let ahead = [];

// ---- a group

async function next() {
  close();
  let work;
  try {
    work = await ask("GET", "/api/work", state.session.annotator);
  } catch (error) {
    return troubled(error, next);
  }
  Object.assign(state, { done: work.done, total: work.total, project: work.project });
  if (!work.groups.length) return nothingLeft(work.stage);
  open(work.groups[0]);
  ahead = work.groups.slice(1).flatMap((group) => [group.source, ...group.candidates.map((c) => c.image)]).map(prefetch);
}

function prefetch(address) {
  const image = new Image();
  image.src = address;
  return image;
}

function open(group) {
  banner("");
  const revision = group.said?.revision ?? 0;
  const kept = keeping.draft(group.group_id);
  const local = kept && kept.revision === revision && kept.dirty ? kept : null;
  Object.assign(state, { group, revision, version: group.draft?.version ?? 0, seconds: 0, changes: 0, opened: Date.now() });
  take(local?.body ?? group.draft?.body ?? { scores: group.said?.scores ?? {}, comment: group.said?.comment ?? "" });
  $("message").hidden = true;
  $("page").hidden = false;
  view.prepareGroup(state, goTo);
  zoom.reset();
  draw();
  saved(local ? "" : "Saved");
  if (local && local.version !== state.version) {
    conflictBanner("Another window has a newer draft of this group.", { version: state.version, revision, draft: group.draft?.body ?? null });
  } else if (local) save();
}

function take(body) {
  Object.assign(state, { scores: structuredClone(body.scores), comment: body.comment ?? "" });
  const first = firstMissing();
  state.index = body.index ?? first?.index ?? 0;
  state.dimension = body.dimension ?? first?.dimension ?? 0;
  state.seconds = body.seconds ?? 0;
  state.changes = body.changes ?? 0;
}

const body = () => ({ scores: state.scores, comment: state.comment, index: state.index, dimension: state.dimension, seconds: state.seconds, changes: state.changes });
const draw = () => view.draw(state);

function firstMissing(from = 0) {
  const count = state.group.candidates.length;
  for (let step = 0; step < count; step++) {
    const index = (from + step) % count;
    const dimension = state.session.dimensions.findIndex((d) => state.scores[state.group.candidates[index].id]?.[d.name] === undefined);
    if (dimension >= 0) return { index, dimension };
  }
  return null;
}

// ---- rating

function score(value, dimension = state.dimension) {
  if (busy) return;
  const candidate = state.group.candidates[state.index].id;
  const name = state.session.dimensions[dimension].name;
  const complete = view.missing(state) === 0; // so this score is a correction
  const given = (state.scores[candidate] ??= {});
  if (given[name] !== undefined && given[name] !== value) state.changes++;
  given[name] = value;
  state.dimension = dimension;
  const there = state.session.dimensions.findIndex((d, i) => i > dimension && (given[d.name] === undefined || complete));
  if (there >= 0) state.dimension = there;
  else {
    const place = firstMissing(state.index);
    if (place) Object.assign(state, place);
    else {
      changed();
      return showGrid(true);
    }
  }
  changed();
}

function goTo(index) {
  state.index = (index + state.group.candidates.length) % state.group.candidates.length;
  const candidate = state.group.candidates[state.index].id;
  state.dimension = Math.max(0, state.session.dimensions.findIndex((d) => state.scores[candidate]?.[d.name] === undefined));
  close();
  changed();
}

function showGrid(review = false) {
  view.grid(state, review, goTo);
  if (!$("grid").open) $("grid").showModal();
  if (!$("grid-submit").disabled) $("grid-submit").focus();
}

// ---- drafts

function changed() {
  draw();
  keeping.keepDraft(state.group.group_id, { body: body(), version: state.version, revision: state.revision, dirty: true });
  saved("Saving …");
  clearTimeout(saveTimer);
  saveTimer = setTimeout(save, SAVE_AFTER);
}

async function save() {
  clearTimeout(saveTimer);
  if (busy || conflict) return;
  const { group_id: group } = state.group;
  const sent = { version: state.version, revision: state.revision, body: body() };
  const text = JSON.stringify(sent.body);
  try {
    const answer = await ask("PUT", `/api/draft/${group}`, state.session.annotator, sent);
    if (state.group.group_id !== group || busy) return;
    state.version = answer.version;
    const same = JSON.stringify(body()) === text;
    keeping.keepDraft(group, { body: body(), version: state.version, revision: state.revision, dirty: !same });
    saved(same ? "Saved" : "Saving …");
  } catch (error) {
    if (state.group.group_id !== group || busy) return;
    if (error.status === 409 && "revision" in error.body) conflictBanner(error.message, error.body);
    else if (again(error)) {
      saved("No connection: kept in this browser");
      saveTimer = setTimeout(save, 1000 * (error.body.wait || 3));
    } else stop(error);
  }
}

// Two windows changed one group: the person decides, nothing is overwritten unasked.
function conflictBanner(text, current) {
  conflict = current;
  saved("Not saved");
  banner(`${text} What should count?`, true);
}

async function resolve(mine) {
  const current = conflict;
  conflict = null;
  banner("");
  const wanted = body();
  try {
    const group = await ask("GET", `/api/group/${state.group.group_id}`, state.session.annotator);
    keeping.keepDraft(group.group_id, null);
    open(group);
  } catch (error) {
    conflict = current;
    return troubled(error, () => resolve(mine));
  }
  if (mine) {
    take(wanted);
    changed();
  }
}

// ---- submitting

async function submit(flag = null, words = null) {
  if (busy || conflict || !state.group) return;
  if (flag === null) {
    const place = firstMissing(state.index);
    if (place) {
      close();
      Object.assign(state, place);
      draw();
      return banner(`${view.missing(state)} scores are missing; this is the first.`);
    }
  }
  const scores = state.group.candidates.flatMap((c) => state.session.dimensions.map((d) => ({ candidate_id: c.id, dimension: d.name, score: state.scores[c.id]?.[d.name] })));
  const sent = {
    submission_id: randomId(),
    group_id: state.group.group_id,
    based_on: state.revision,
    scores: flag === null ? scores : [],
    flag,
    comment: clean(words ?? state.comment),
    seconds: Math.min(state.seconds, 86400),
    wall_seconds: (Date.now() - state.opened) / 1000,
    changes: state.changes,
  };
  keeping.sending = sent;
  await deliver(sent);
}

async function deliver(sent) {
  busy = true;
  clearTimeout(saveTimer);
  close();
  saved("Sending …");
  try {
    const answer = await keeping.send(sent, (seconds) => {
      const text = `The server does not answer. Your scores are kept in this browser and are sent again in ${seconds} s.`;
      saved("No connection: kept in this browser");
      if (state.group) banner(text);
      else message("No connection", text, null);
    });
    keeping.sending = null;
    keeping.keepDraft(sent.group_id, null);
    busy = false;
    if (answer.feedback && state.group) return afterwards(() => view.feedback(state, answer.feedback));
    if (answer.exam && state.group) return afterwards(() => view.verdict(answer.exam));
    await next();
  } catch (error) {
    busy = false;
    if (error.status === 401 || error.body?.other) return stop(error); // kept: sent again once the right link is open
    keeping.sending = null;
    if (!state.group) {
      await next();
      return banner(`A group that was sent before this page was loaded was not stored: ${error.message}`);
    }
    if (error.status === 409 && "revision" in error.body) conflictBanner(error.message, error.body);
    else banner(error.message);
  }
}

function afterwards(show) {
  show();
  $("feedback").showModal();
  $("feedback-next").focus();
}

// Control characters cannot be stored; they come from pasting, never from typing.
const clean = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, " ");

async function previous() {
  if (busy) return;
  try {
    const before = state.revision ? `?before=${encodeURIComponent(state.group.group_id)}` : "";
    open(await ask("GET", `/api/previous${before}`, state.session.annotator));
  } catch (error) {
    if (error.status === 404) banner(error.message);
    else troubled(error, previous);
  }
}

// ---- messages

const again = (error) => error.status === 0 || error.status === 429 || error.status >= 500;

function saved(text) {
  $("saved").textContent = text;
}

function banner(text, choice = false) {
  $("banner").hidden = !text;
  $("banner-text").textContent = text;
  $("banner-mine").hidden = $("banner-theirs").hidden = !choice;
  zoom.refresh();
}

function message(title, text, retry) {
  $("page").hidden = true;
  $("message").hidden = false;
  $("message-title").textContent = title;
  $("message-text").textContent = text;
  $("message-again").hidden = !retry;
  $("message-again").onclick = retry;
}

function stop(error) {
  message(error.status === 401 ? "No valid link" : "This cannot go on", error.message, null);
}

function troubled(error, retry) {
  if (!again(error)) return stop(error);
  if ($("page").hidden) message("No connection", "The server does not answer. This page tries again by itself.", retry);
  else banner("The server does not answer. This page tries again by itself.");
  setTimeout(retry, 1000 * (error.body.wait || 3));
}

function nothingLeft(stage) {
  const words = {
    paused: ["Paused", "The lead of the project has paused your work. Please ask."],
    failed: ["Exam not passed", "Please talk to the lead of the project."],
  }[stage] ?? ["No group is waiting", "Everything that was yours is done. Thank you."];
  message(...words, next);
}

function close() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

// ---- keys and buttons

function toggle(name) {
  if ($(name).open) $(name).close();
  else $(name).showModal();
}

function comment() {
  $("comment-text").value = state.comment;
  toggle("comment");
}

const ACTIONS = {
  ArrowLeft: () => goTo(state.index - 1),
  ArrowRight: () => goTo(state.index + 1),
  ArrowUp: () => turn(-1),
  ArrowDown: () => turn(1),
  z: zoom.next,
  g: () => showGrid(),
  r: () => toggle("rubric"),
  c: comment,
  f: () => toggle("flag"),
  "?": () => toggle("keys"),
  Enter: () => submit(),
  Backspace: previous,
};
const PAN = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };

function turn(step) {
  const count = state.session.dimensions.length;
  state.dimension = (state.dimension + step + count) % count;
  draw();
}

function flicker(on) {
  $("flicker").hidden = !on;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("page").hidden) return;
  const dialog = document.querySelector("dialog[open]");
  const typing = event.target.closest?.("textarea, input");
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (dialog) {
    if (dialog.id === "grid" && /^[1-9]$/.test(key) && Number(key) <= state.group.candidates.length) goTo(Number(key) - 1);
    else if (!typing && { grid: "g", rubric: "r", keys: "?" }[dialog.id] === key) dialog.close();
    else return;
    return event.preventDefault();
  }
  if (typing || ((key === "Enter" || key === " ") && event.target.closest?.("button"))) return;
  const level = state.session.levels.find((l) => String(l.score) === key);
  if (key === " ") flicker(true);
  else if (event.shiftKey && key in PAN && zoom.zoomed()) zoom.move(...PAN[key]);
  else if (event.repeat) return;
  else if (level) score(level.score);
  else if (ACTIONS[key]) ACTIONS[key]();
  else return;
  event.preventDefault();
}

function listen() {
  addEventListener("keydown", pressed);
  addEventListener("keyup", (event) => event.key === " " && flicker(false));
  addEventListener("blur", () => flicker(false));
  // A click leaves the keys to the page: a button that kept the focus would take Space and Enter.
  addEventListener("click", (event) => event.detail > 0 && !document.querySelector("dialog[open]") && event.target.closest("button")?.blur());
  const buttons = { "do-grid": () => showGrid(), "do-zoom": zoom.next, "do-rubric": () => toggle("rubric"), "do-comment": comment, "do-flag": () => toggle("flag"), "do-back": previous, "do-keys": () => toggle("keys"), "do-submit": () => submit(), "grid-submit": () => submit(), "feedback-next": next, "banner-mine": () => resolve(true), "banner-theirs": () => resolve(false) };
  for (const [id, action] of Object.entries(buttons)) $(id).addEventListener("click", action);
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", close);
  for (const [kind, on] of [["pointerdown", true], ["pointerup", false], ["pointerleave", false]]) $("do-flicker").addEventListener(kind, () => flicker(on));
  $("feedback").addEventListener("cancel", (event) => (event.preventDefault(), next()));
  $("comment-text").addEventListener("input", () => ((state.comment = $("comment-text").value), changed()));
  view.reasons(state.session, () => ($("flag-send").disabled = false));
  $("flag-send").addEventListener("click", () => submit(document.querySelector("[name=reason]:checked").value, $("flag-text").value));
  $("flag").addEventListener("close", () => (($("flag-send").disabled = true), ($("flag-text").value = ""), view.reasons(state.session, () => ($("flag-send").disabled = false))));
  for (const id of ["source", "edit"]) $(id).addEventListener("error", () => banner("A picture did not load. Load the page again; if it stays away, press F."));
  zoom.listen();
  clock.listen(() => state.group && !busy && state.seconds++);
}

async function start() {
  try {
    state.session = await ask("GET", "/api/session");
  } catch (error) {
    return troubled(error, start);
  }
  if (state.session.role === "lead") return location.replace("/lead");
  keeping = new Keeping(state.session);
  view.prepare(state.session, score);
  listen();
  const unsent = keeping.sending;
  if (unsent) await deliver(unsent);
  else await next();
}

start();
