// Drawing of a state. Nothing here changes the state.
import { $, fill, make } from "./dom.js";
import * as zoom from "./zoom.js";

const LINES = [
  ["1 2 3 4", "score, then go to the next"],
  ["← →", "previous or next edit"],
  ["↑ ↓", "the other dimension"],
  ["Space, held", "show the source instead of the edit"],
  ["Z", "zoom both images; the mouse or Shift and arrows move the visible part"],
  ["G", "overview of all edits; there, a number opens that edit"],
  ["R", "rubric"],
  ["C", "comment"],
  ["F", "this group cannot be rated"],
  ["Enter", "submit, when no score is missing"],
  ["Backspace", "open the previous group again"],
  ["N", "from an earlier group forward to the one to rate now, without submitting"],
  ["Esc", "close a window"],
];

export const scored = (state, candidate) => state.session.dimensions.filter((d) => state.scores[candidate]?.[d.name] !== undefined).length;
export const missing = (state) => state.group.candidates.reduce((n, c) => n + state.session.dimensions.length - scored(state, c.id), 0);
export const total = (state, candidate) => state.session.dimensions.reduce((sum, d) => sum + (state.scores[candidate]?.[d.name] ?? 0), 0);

export function prepare(session, score) {
  fill($("rating"), session.dimensions.map((dimension, d) => make("div", { class: "dimension", role: "group", "aria-label": dimension.words },
    make("h2", {}, dimension.words),
    session.levels.map((level) => make("button", { type: "button", "data-dimension": d, "data-score": level.score, "aria-pressed": "false",
      title: session.criteria[dimension.name][level.score] ?? "", onclick: () => score(level.score, d) },
      make("kbd", {}, level.score), ` ${level.words}`, make("small", { class: "criterion" }, session.criteria[dimension.name][level.score] ?? ""))))));
  for (const image of shown()) image.addEventListener("load", () => image.classList.remove("loading"));
  fill($("keys-list"), LINES.map(([key, words]) => [make("dt", {}, key), make("dd", {}, words)]).flat());
  fill($("rubric-text"), rubric(session.rubric));
  const reasons = session.flags.map((flag) => make("label", {}, make("input", { type: "radio", name: "reason", value: flag.name }), ` ${flag.words}`));
  fill($("reasons"), make("legend", {}, "Why?"), reasons);
}

function rubric(blocks) {
  const spans = (cell) => cell.map(([text, bold]) => (bold ? make("strong", {}, text) : text));
  const made = [];
  for (const block of blocks) {
    const last = made[made.length - 1];
    if (block.kind === "row") {
      const row = make("tr", {}, block.cells.map((cell) => make("td", {}, spans(cell))));
      if (last?.tagName === "TABLE") last.append(row);
      else made.push(make("table", {}, row));
    } else if (block.kind === "li") {
      const item = make("li", {}, spans(block.cells[0]));
      if (last?.tagName === "UL") last.append(item);
      else made.push(make("ul", {}, item));
    } else made.push(make(block.kind, {}, spans(block.cells[0])));
  }
  return made;
}

export function prepareGroup(state, open) {
  const { group } = state;
  $("mode").textContent = { training: "Training", exam: "Exam" }[group.mode] || (state.revision ? "Your earlier rating" : "");
  $("progress").textContent = progress(state);
  $("instruction").textContent = group.instruction;
  for (const id of ["source", "flicker"]) show($(id), group.source);
  $("do-forward").hidden = !state.revision;
  fill($("strip"), group.candidates.map((candidate, i) => make("li", {}, make("button", { type: "button", onclick: () => open(i) },
    make("img", { src: candidate.image, alt: "" }), make("span", { class: "number" }, i + 1), make("span", { class: "scores" })))));
}

const shown = () => [$("source"), $("edit"), $("flicker")];

// Show an image; the one before it disappears at once, so that no title stands over another image.
function show(image, address) {
  if (image.getAttribute("src") === address) return;
  image.src = address;
  image.classList.toggle("loading", !image.complete);
}

// Whether an image of the group has not loaded in this window.
export function unseen() {
  return [$("source"), ...$("strip").querySelectorAll("img")].some((image) => !image.complete || !image.naturalWidth);
}

export function draw(state) {
  const { session, group } = state;
  const now = group.candidates[state.index];
  show($("edit"), now.image);
  $("edit").alt = `Edit ${state.index + 1}`;
  $("edit-title").textContent = `Edit ${state.index + 1} of ${group.candidates.length}`;
  for (const [d, row] of [...$("rating").children].entries()) {
    row.classList.toggle("now", d === state.dimension);
    const score = state.scores[now.id]?.[session.dimensions[d].name];
    for (const button of row.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.score) === score));
  }
  for (const [i, button] of [...$("strip").querySelectorAll("button")].entries()) {
    const { id } = group.candidates[i];
    button.setAttribute("aria-current", String(i === state.index));
    button.setAttribute("aria-label", `Edit ${i + 1}, ${scores(state, id)}`);
    button.querySelector(".scores").textContent = short(state, id);
    if (i === state.index) button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const left = missing(state);
  $("submit-words").textContent = left ? `${left} scores missing` : state.revision ? "Submit again" : "Submit";
  $("has-comment").hidden = !state.comment;
  zoom.refresh();
}

function progress(state) {
  const { done, total: of, project, group } = state;
  if (group.mode !== "rating" || of) return `${group.mode === "rating" ? "First groups" : "Group"}: ${Math.min(done + 1, of)} of ${of}`;
  const share = project.total ? Math.round((100 * project.done) / project.total) : 100;
  return `You have rated ${done} ${done === 1 ? "group" : "groups"}. The project is ${share} % done.`;
}

function short(state, candidate) {
  return state.session.dimensions.map((d) => state.scores[candidate]?.[d.name] ?? "–").join(" · ");
}

function scores(state, candidate) {
  return state.session.dimensions.map((d) => {
    const score = state.scores[candidate]?.[d.name];
    const words = state.session.levels.find((level) => level.score === score)?.words;
    return `${d.words}: ${score === undefined ? "–" : `${score} ${words}`}`;
  }).join("\n");
}

export function grid(state, review, open) {
  const left = missing(state);
  const places = state.group.candidates.map((candidate, i) => ({ candidate, i }));
  if (!left) places.sort((a, b) => total(state, b.candidate.id) - total(state, a.candidate.id) || a.i - b.i);
  $("grid-title").textContent = review ? "Please check your scores" : "Overview";
  $("grid-hint").textContent = left
    ? `${left} scores are missing. A number opens that edit.`
    : "Best first. A number opens that edit; Enter submits the group.";
  const source = make("div", { class: "tile" }, make("img", { src: state.group.source, alt: "Source image" }), make("span", { class: "name" }, "Source"));
  fill($("tiles"), source, places.map(({ candidate, i }) => make("button", { type: "button", class: "tile", onclick: () => open(i) },
    make("img", { src: candidate.image, alt: `Edit ${i + 1}` }),
    make("span", { class: "name" }, make("kbd", {}, i + 1), ` Edit ${i + 1}`), make("span", { class: "scores" }, scores(state, candidate.id)))));
  sharpen($("tiles"));
  $("grid-submit").disabled = left > 0;
}

export function feedback(state, cells) {
  const right = cells.filter((cell) => cell.agrees).length;
  $("feedback-title").textContent = "What the experts gave";
  $("feedback-text").textContent = `${right} of your ${cells.length} scores agree with an expert. Scores on which the experts differed are not shown.`;
  fill($("feedback-tiles"), state.group.candidates.map((candidate, i) => {
    const mine = cells.filter((cell) => cell.candidate_id === candidate.id);
    const lines = mine.map((cell) => {
      const words = state.session.dimensions.find((d) => d.name === cell.dimension).words;
      return `${cell.agrees ? "✓" : "✗"} ${words}: you ${cell.given ?? "–"}, experts ${cell.accepted.join(" or ")}`;
    });
    const reasons = [...new Set(mine.flatMap((cell) => cell.reasons))];
    return make("div", { class: "tile" }, make("img", { src: candidate.image, alt: `Edit ${i + 1}` }), make("span", { class: "name" }, `Edit ${i + 1}`),
      make("span", { class: "scores" }, [...lines, ...reasons].join("\n")));
  }));
  sharpen($("feedback-tiles"));
}

export function examResult(outcome) {
  const words = {
    passed: ["Exam passed", "Your scores agree with the experts'. Your ratings count from now on."],
    "next-form": ["Not passed", "Your scores differ too much from the experts'. Please read the rubric again (R); a second exam with other groups follows."],
    failed: ["Not passed", "Your scores differ too much from the experts' in the second exam too. Please contact the lead of the project."],
  }[outcome];
  [$("feedback-title").textContent, $("feedback-text").textContent] = words;
  fill($("feedback-tiles"));
}

// Small images are enlarged without smoothing, so that their pixels are visible.
function sharpen(tiles) {
  for (const image of tiles.querySelectorAll("img")) {
    const decide = () => image.classList.toggle("pixels", image.naturalWidth > 0 && image.clientWidth >= 2 * image.naturalWidth);
    if (image.complete) decide();
    else image.addEventListener("load", decide);
  }
}
