// The rating page: one group at a time, by keyboard or mouse. The state is one object; every change is saved first.
import { $, ask } from "./dom.js";
import * as clock from "./clock.js";
import { Keeping, randomId } from "./keeping.js";
import * as keymap from "./keymap.js";
import * as keys from "./keys.js";
import * as language from "./language.js";
import { again, banner, close, message, nothingLeft, saved, sentence, showGroup, stop, toggle, troubled } from "./messages.js";
import * as scales from "./scales.js";
import * as view from "./view.js";
import * as zoom from "./zoom.js";

const SAVE_AFTER = 500;
const LONGEST_COMMENT = 4000;
const SEPARATOR = "; ";
const state = { session: null, group: null, scores: {}, comment: "", index: 0, dimension: 0, seconds: 0, changes: 0, opened: 0, revision: 0, version: 0, stored: null };
let keeping = null;
let busy = false; // a submission is being sent
let saveTimer = 0;
let saving = null; // the draft being sent; state.stored is the latest one that the server has
let mine = new Set(); // contents of this group that this window has had
let conflict = null;
let reviewed = false; // the overview of this group was shown before it is submitted
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
  if (!work.groups.length) {
    state.group = null;
    return nothingLeft(work.stage, next);
  }
  const newRubric = work.rubric_version !== state.session.rubric_version;
  if (newRubric && !(await load())) return;
  open(work.groups[0]);
  if (newRubric) {
    toggle("rubric");
    banner(`The rubric has changed (${state.session.rubric_version}). Please read it before you go on.`);
  }
  ahead = work.groups.slice(1).flatMap((group) => [group.source, ...group.candidates.map((c) => c.image)]).map(prefetch);
}

function prefetch(address) {
  const image = new Image();
  image.src = address;
  return image;
}

function open(group) {
  conflict = null;
  reviewed = false;
  banner("");
  const revision = group.said?.revision ?? 0;
  const kept = keeping.draft(group.group_id);
  const local = kept && kept.revision === revision && kept.dirty ? kept : null;
  Object.assign(state, { group, revision, version: group.draft?.version ?? 0, seconds: 0, changes: 0, opened: performance.now() });
  const there = group.draft?.body ?? { scores: group.said?.scores ?? {}, comment: group.said?.comment ?? "" };
  take(local?.body ?? there);
  state.stored = local ? there : body();
  mine = new Set([content(there), content(state)]);
  showGroup();
  view.prepareGroup(state, goTo, score);
  zoom.reset();
  draw();
  saved(local ? "" : "Saved");
  if (local && local.version !== state.version && content(group.draft?.body) !== content(local.body)) {
    conflictBanner("another window has a newer draft of this group", { version: state.version, revision, draft: group.draft?.body ?? null });
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

// What was rated in a draft or a submission, as text.
const content = (of) => JSON.stringify([of?.scores ?? {}, of?.comment ?? ""]);

const body = () => ({ scores: structuredClone(state.scores), comment: state.comment, index: state.index, dimension: state.dimension, seconds: state.seconds, changes: state.changes });
const draw = () => view.draw(state);

function firstMissing(from = 0) {
  const count = state.group.candidates.length;
  for (let step = 0; step < count; step++) {
    const index = (from + step) % count;
    const dimension = state.session.dimensions.findIndex((d) => lacks(index, d));
    if (dimension >= 0) return { index, dimension };
  }
  return null;
}

// Whether a score is asked for and missing.
function lacks(index, dimension) {
  const { id } = state.group.candidates[index];
  return scales.asks(state.group, id, dimension.name) && state.scores[id]?.[dimension.name] === undefined;
}

// The next edit without a rank in this dimension: a ranking goes through all edits, dimension by dimension.
function nextToRank() {
  const count = state.group.candidates.length;
  for (let step = 1; step <= count; step++) {
    const index = (state.index + step) % count;
    if (lacks(index, state.session.dimensions[state.dimension])) return { index };
  }
  return firstMissing(0);
}

// ---- rating

function score(value, dimension = state.dimension) {
  if (busy || value === undefined) return;
  const candidate = state.group.candidates[state.index].id;
  const name = state.session.dimensions[dimension].name;
  if (!scales.asks(state.group, candidate, name)) return;
  const complete = view.missing(state) === 0; // then this score is a correction
  const given = (state.scores[candidate] ??= {});
  if (given[name] !== undefined && given[name] !== value) state.changes++;
  given[name] = value;
  state.dimension = dimension;
  if (scales.isSlider(state.group)) return changed();
  const asked = (d, i) => i > dimension && scales.asks(state.group, candidate, d.name) && (given[d.name] === undefined || complete);
  const there = scales.isRanking(state.group) ? -1 : state.session.dimensions.findIndex(asked);
  if (there >= 0) state.dimension = there;
  else {
    const place = scales.isRanking(state.group) ? nextToRank() : firstMissing(state.index);
    if (place) Object.assign(state, place);
    else {
      changed();
      return showGrid(true);
    }
  }
  changed();
}

const scoreByKey = (number) => score(scales.ofKey(state.group, number));

// One step of a slider.
function move(steps) {
  if (!scales.isSlider(state.group)) return;
  const now = state.scores[state.group.candidates[state.index].id]?.[state.session.dimensions[state.dimension].name];
  score(now === undefined ? view.middle(state.group) : scales.moved(state.group, now, steps));
}

function goTo(index) {
  state.index = (index + state.group.candidates.length) % state.group.candidates.length;
  const { id } = state.group.candidates[state.index];
  const { dimensions } = state.session;
  const missing = dimensions.findIndex((d) => lacks(state.index, d));
  if (!scales.isRanking(state.group)) state.dimension = Math.max(0, missing >= 0 ? missing : dimensions.findIndex((d) => scales.asks(state.group, id, d.name)));
  close();
  changed();
}

function turn(step) {
  const { dimensions } = state.session;
  const { id } = state.group.candidates[state.index];
  for (let tried = 0; tried < dimensions.length; tried++) {
    state.dimension = (state.dimension + step + dimensions.length) % dimensions.length;
    if (scales.asks(state.group, id, dimensions[state.dimension].name)) break;
  }
  draw();
}

function comment(text) {
  state.comment = clean(text);
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
  if (!conflict) banner("");
  keeping.keepDraft(state.group.group_id, { body: body(), version: state.version, revision: state.revision, dirty: true });
  saved("Saving …");
  clearTimeout(saveTimer);
  saveTimer = setTimeout(save, SAVE_AFTER);
}

// Whether the server lacks something of the group: scores, or the time that it was looked at.
const unsaved = () => state.group && JSON.stringify(body()) !== JSON.stringify(state.stored);

// Store the group before it is left.
async function leave() {
  await saving;
  await save();
}

// One draft at a time: two with the same version would look like two windows.
async function save() {
  clearTimeout(saveTimer);
  if (busy || conflict || saving || !unsaved()) return;
  saving = push();
  const wait = await saving;
  saving = null;
  if (wait !== null) saveTimer = setTimeout(save, wait);
}

// Send the draft; returns the milliseconds to wait before the next save, or null for none.
async function push() {
  const { group_id: group } = state.group;
  const sent = { version: state.version, revision: state.revision, body: body() };
  mine.add(content(sent.body));
  const elsewhere = () => state.group.group_id !== group || state.revision !== sent.revision || busy;
  try {
    const answer = await ask("PUT", `/api/draft/${group}`, state.session.annotator, sent);
    if (elsewhere()) return 0;
    Object.assign(state, { version: answer.version, stored: sent.body });
    const same = unchanged(sent.body);
    keeping.keepDraft(group, { body: body(), version: state.version, revision: state.revision, dirty: !same });
    saved(same ? "Saved" : "Saving …");
    return same ? null : SAVE_AFTER;
  } catch (error) {
    if (elsewhere()) return 0;
    const { version, draft } = error.body;
    if (error.status === 409 && draft && mine.has(content(draft))) {
      // The other window changed nothing, or it is this one before it was loaded again.
      Object.assign(state, { version, seconds: Math.max(state.seconds, draft.seconds ?? 0), stored: draft });
      return push();
    }
    if (error.status === 409 && "revision" in error.body) conflictBanner(error.message, error.body);
    else if (again(error)) {
      saved("No connection: kept in this browser");
      return 1000 * (error.body.wait || 3);
    } else stop(error);
    return null;
  }
}

// Whether a body equals the current state, apart from the seconds.
function unchanged(other) {
  const plain = (value) => JSON.stringify({ ...value, seconds: 0 });
  return plain(other) === plain(body());
}

// Two windows changed one group: the person decides which version is kept.
function conflictBanner(text, current) {
  conflict = current;
  saved("Not saved");
  banner(`${sentence(text)} Which version should be kept?`, true);
}

async function resolve(mine) {
  const wanted = body();
  try {
    const group = await ask("GET", `/api/group/${state.group.group_id}`, state.session.annotator);
    keeping.keepDraft(group.group_id, null);
    open(group); // ends the conflict
  } catch (error) {
    return troubled(error, () => resolve(mine));
  }
  if (mine) {
    take(wanted);
    changed();
  }
}

// ---- images that do not load

const RELOAD_AFTER = 2000;

function reload(image) {
  const address = image.getAttribute("src");
  if (!address || !state.group) return;
  banner("An image did not load; the page tries again. If it stays missing, press F: the server then checks it.");
  setTimeout(() => image.isConnected && image.getAttribute("src") === address && image.setAttribute("src", address), RELOAD_AFTER);
}

// Whether every image of the group has been seen here; waits a moment for those that are on their way.
async function seen() {
  for (let attempt = 0; attempt < 20 && view.unseen(); attempt++) await new Promise((done) => setTimeout(done, 100));
  return !view.unseen();
}

// What is wrong with a group can be said of images that were seen; that an image is missing, of others.
function flag() {
  const missing = view.unseen();
  for (const input of $("reasons").querySelectorAll("input")) input.disabled = (input.value === "image-missing") !== missing;
  $("flag-text").maxLength = Math.max(0, LONGEST_COMMENT - state.comment.length - SEPARATOR.length); // both are sent as one comment
  toggle("flag");
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
      return scales.isSlider(state.group) ? undefined : banner(`${view.missingWords(state)}; this is the first one.`);
    }
    if (scales.isSlider(state.group) && !$("grid").open && !reviewed) return (reviewed = true), showGrid(true);
  }
  busy = true;
  const whole = flag !== null || (await seen());
  busy = false;
  if (!whole) return close(), banner("Not all images have loaded; the page tries again. Submit when you have seen them.");
  const asked = state.group.candidates.flatMap((c) => state.session.dimensions.filter((d) => scales.asks(state.group, c.id, d.name)).map((d) => [c.id, d.name]));
  const scores = asked.map(([id, name]) => ({ candidate_id: id, dimension: name, score: state.scores[id]?.[name] }));
  const sent = {
    submission_id: randomId(),
    group_id: state.group.group_id,
    based_on: state.revision,
    scores: flag === null ? scores : [],
    flag,
    comment: clean([words, state.comment].filter(Boolean).join(SEPARATOR)),
    seconds: Math.min(state.seconds, 86400),
    wall_seconds: (performance.now() - state.opened) / 1000,
    changes: state.changes,
    rubric_version: state.session.rubric_version,
  };
  keeping.sending = sent;
  await deliver(sent);
}

async function deliver(sent) {
  busy = true;
  clearTimeout(saveTimer);
  close();
  saved("Sending …");
  await saving; // a draft must not arrive after its submission
  try {
    const answer = await keeping.send(sent, (seconds) => {
      const text = `The server does not respond. Your scores are kept in this browser and will be sent again in ${seconds} s.`;
      saved("No connection: kept in this browser");
      if (state.group) banner(text);
      else message("No connection", text, null);
    });
    keeping.sending = null;
    keeping.keepDraft(sent.group_id, null);
    busy = false;
    Object.assign(state, { revision: answer.revision, version: 0, seconds: 0, changes: 0 }); // what follows is the time of the feedback
    state.stored = state.group && body();
    if (answer.feedback && state.group) return afterwards(() => view.feedback(state, answer.feedback));
    if (answer.exam && state.group) return afterwards(() => view.examResult(answer.exam));
    await next();
  } catch (error) {
    busy = false;
    if (error.status === 401 || error.body?.other) return stop(error); // kept, and sent again when the right link is open
    keeping.sending = null;
    if (!state.group) {
      await next();
      return banner(`A group sent before this page was loaded was not stored: ${error.message}.`);
    }
    if (error.status === 409 && "revision" in error.body) conflictBanner(error.message, error.body);
    else {
      await save(); // keep the refused scores as a draft
      banner(sentence(error.message));
      document.activeElement.blur(); // so that Enter submits again instead of pressing the focused button
    }
  }
}

function afterwards(show) {
  show();
  $("feedback").showModal();
  $("feedback-next").focus();
}

// Control characters and halves of characters, which come from pasting, cannot be stored.
const clean = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]|\p{Surrogate}/gu, " ");

// From an earlier group to the one to rate now, without submitting.
async function forward() {
  if (busy || conflict || !state.group || !state.revision) return;
  const changedSince = content(state) !== content(state.group.said);
  await leave();
  await next();
  if (changedSince && state.group) banner("Your changes to the earlier group are kept as a draft. They count when you submit that group again.");
}

function askSkip() {
  if (busy || conflict || !state.group) return;
  if (!state.group.skippable) return banner(state.revision ? "You have submitted this group, so it cannot be skipped." : "Everybody rates this group, so it cannot be skipped.");
  toggle("skip");
}

// Give the group back: somebody else rates it.
async function skip(reason) {
  if (busy || !state.group?.skippable) return;
  busy = true;
  clearTimeout(saveTimer);
  await saving;
  const { group_id: group } = state.group;
  try {
    await ask("POST", "/api/skip", state.session.annotator, { group_id: group, reason: clean(reason), seconds: Math.min(state.seconds, 86400) });
    keeping.keepDraft(group, null);
    busy = false;
    await next();
  } catch (error) {
    busy = false;
    close();
    banner(again(error) ? "The server does not respond. The group was not skipped; try again." : sentence(error.message));
  }
}

async function previous() {
  if (busy) return;
  await leave();
  try {
    const before = state.group && state.revision ? `?before=${encodeURIComponent(state.group.group_id)}` : "";
    open(await ask("GET", `/api/previous${before}`, state.session.annotator));
  } catch (error) {
    if (error.status === 404 && state.group) banner(sentence(error.message));
    else if (error.status === 404) $("message-text").textContent = sentence(error.message);
    else troubled(error, previous);
  }
}

// The session of the link, in this browser's language; false after an error.
async function load() {
  let session;
  try {
    session = await ask("GET", "/api/session");
  } catch (error) {
    troubled(error, state.session ? next : start);
    return false;
  }
  session.names = session.dimensions;
  keeping = new Keeping(session);
  keymap.use(keeping);
  use(session, language.choose(session.rubrics, keeping));
  language.listen(session, keeping, (other) => {
    use(session, other);
    if (state.group) view.prepareGroup(state, goTo, score), draw();
  });
  return true;
}

function use(session, of) {
  const rubric = session.rubrics[of];
  state.session = Object.assign(session, { language: of, rubric, dimensions: session.names.map((name) => ({ name, words: rubric.titles[name] })) });
  view.prepare(session);
}

async function start() {
  if (!(await load())) return;
  if (state.session.role === "lead") return location.replace("/lead");
  keys.listen(state, { goTo, turn, move, showGrid, scoreByKey, submit, askSkip, skip, previous, forward, next: () => leave().then(next), resolve, comment, flag });
  addEventListener("error", (event) => event.target.tagName === "IMG" && reload(event.target), true);
  zoom.listen();
  clock.listen(() => state.group && !busy && state.seconds++);
  addEventListener("visibilitychange", () => document.visibilityState === "hidden" && save());
  const unsent = keeping.sending;
  if (unsent) await deliver(unsent);
  else await next();
}

start();
