// Drawing of a state. Nothing here changes the state.
import { $, fill, make } from "./dom.js";
import * as keymap from "./keymap.js";
import * as scales from "./scales.js";
import * as zoom from "./zoom.js";

export const scored = (state, candidate) => asked(state, candidate).filter((d) => state.scores[candidate]?.[d.name] !== undefined).length;
export const missing = (state) => state.group.candidates.reduce((n, c) => n + asked(state, c.id).length - scored(state, c.id), 0);
export const missingWords = (state) => `${missing(state)} ${scales.isRanking(state.group) ? "rank" : "score"}${missing(state) === 1 ? "" : "s"} missing`;
export const total = (state, candidate) => asked(state, candidate).reduce((sum, d) => sum + (state.scores[candidate]?.[d.name] ?? 0), 0);
export const middle = (group) => group.levels[Math.floor(group.levels.length / 2)];

const asked = (state, candidate) => state.session.dimensions.filter((d) => scales.asks(state.group, candidate, d.name));

// What a session in one language shows: the rubric and the reasons.
export function prepare(session) {
  $("preview").hidden = !session.preview;
  $("rubric-text").lang = session.language;
  fill($("rubric-text"), rubric(session.rubric.blocks));
  const reasons = session.flags.map((flag) => make("label", {}, make("input", { type: "radio", name: "reason", value: flag.name }), ` ${flag.words}`));
  fill($("reasons"), make("legend", {}, "Why?"), reasons);
}

// The rows of buttons or sliders, one per dimension.
function prepareScores({ session, group }, score) {
  const button = (dimension, d, level) => {
    const criterion = scales.criterion(session, group, dimension.name, level);
    return make("button", { type: "button", "data-dimension": d, "data-score": level, "aria-pressed": "false", title: criterion, onclick: () => score(level, d) },
      make("kbd", { "data-action": `score-${level}` }, keymap.label(`score-${level}`)), ` ${keymap.label(`score-${level}`) === String(level) ? "" : level} ${scales.words(session, group, level)}`, make("small", { class: "criterion" }, criterion));
  };
  const slider = (dimension, d) => {
    const { levels } = group;
    const send = (event) => score(scales.nearest(group, Number(event.target.value)), d);
    const marks = scales.marked(session, group, dimension.name);
    const made = make("div", { class: "slider" },
      make("input", { type: "range", min: levels[0], max: levels.at(-1), step: levels[1] - levels[0], value: middle(group), "aria-label": dimension.words, oninput: send, onpointerup: send }),
      make("output", {}),
      make("ol", { class: "marks" }, marks.map((level) => make("li", {}, make("b", {}, level), ` ${scales.words(session, group, level)}`, make("small", { class: "criterion" }, scales.criterion(session, group, dimension.name, level))))));
    made.style.setProperty("--inset", marks.length > 2 ? `${50 / marks.length}%` : "0%"); // half a column, so that the levels stand at their marks
    return made;
  };
  fill($("rating"), session.dimensions.map((dimension, d) => {
    const row = make("div", { class: "dimension", role: "group", "aria-label": dimension.words },
      make("h2", {}, dimension.words, make("small", { class: "given" })), scales.isSlider(group) ? slider(dimension, d) : group.levels.map((level) => button(dimension, d, level)));
    row.style.setProperty("--levels", scales.isSlider(group) ? 4 : group.levels.length);
    return row;
  }));
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

const MODES = { training: "Training", exam: "Exam", adjudication: "Adjudication", ranking: "Ranking: 1 is the best, equal ranks are allowed" };

export function prepareGroup(state, open, score) {
  const { group } = state;
  const mode = MODES[group.mode] ?? "";
  $("mode").textContent = state.revision ? ["Your earlier rating", mode].filter(Boolean).join(": ") : mode;
  $("do-skip").hidden = !group.skippable;
  prepareScores(state, score);
  $("progress").textContent = progress(state);
  $("instruction").textContent = group.instruction;
  for (const id of ["source", "flicker"]) show($(id), group.source);
  $("do-forward").hidden = !state.revision;
  fill($("strip"), group.candidates.map((candidate, i) => make("li", {}, make("button", { type: "button", onclick: () => open(i) },
    make("img", { src: candidate.image, alt: "" }), make("span", { class: "number" }, i + 1), make("span", { class: "scores" })))));
}

// Show an image; the one before it disappears at once, so that no title stands over another image.
function show(image, address) {
  if (image.getAttribute("src") === address) return;
  image.onload = () => image.classList.remove("loading");
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
    const { name } = session.dimensions[d];
    const score = state.scores[now.id]?.[name];
    row.hidden = !scales.asks(group, now.id, name);
    row.querySelector(".given").textContent = group.given?.[now.id]?.[name] ? `given: ${group.given[now.id][name].join(", ")}` : "";
    const slider = row.querySelector(".slider");
    if (slider) {
      slider.classList.toggle("unset", score === undefined);
      const said = score === undefined ? "not set" : `${score} ${scales.words(session, group, score)}`;
      slider.querySelector("input").value = score ?? middle(group);
      slider.querySelector("input").setAttribute("aria-valuetext", said);
      slider.querySelector("output").textContent = said;
    }
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
  $("submit-words").textContent = left ? missingWords(state) : state.revision ? "Submit again" : "Submit";
  $("has-comment").hidden = !state.comment;
  zoom.refresh();
}

function progress(state) {
  const { done, total: of, project, group } = state;
  if (["training", "exam"].includes(group.mode) || of) return `${group.mode === "rating" ? "First groups" : "Group"}: ${Math.min(done + 1, of)} of ${of}`;
  const share = project.total ? Math.round((100 * project.done) / project.total) : 100;
  return `You have rated ${done} ${done === 1 ? "group" : "groups"}. The project is ${share} % done.`;
}

function short(state, candidate) {
  return asked(state, candidate).map((d) => state.scores[candidate]?.[d.name] ?? "–").join(" · ");
}

function scores(state, candidate) {
  return asked(state, candidate).map((d) => {
    const score = state.scores[candidate]?.[d.name];
    return `${d.words}: ${score === undefined ? "–" : `${score} ${scales.words(state.session, state.group, score)}`}`;
  }).join("\n");
}

export function grid(state, review, open) {
  const left = missing(state);
  const places = state.group.candidates.map((candidate, i) => ({ candidate, i }));
  const best = scales.isRanking(state.group) ? -1 : 1;
  if (!left) places.sort((a, b) => best * (total(state, b.candidate.id) - total(state, a.candidate.id)) || a.i - b.i);
  $("grid-title").textContent = review ? `Please check your ${scales.isRanking(state.group) ? "ranks" : "scores"}` : "Overview";
  $("grid-hint").textContent = left
    ? `${missingWords(state)}. A number opens that edit.`
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
