// The lead's page: tables of statistics; each row of a queue opens the images with everybody's scores.
import { $, ask, fill, make } from "./dom.js";

const REFRESH_AFTER = 60_000;
const NOTE = "95 % intervals over groups: they hold for these raters. For other raters of the same kind see 'alpha ordinal new raters' in all statistics, whose interval is over raters and groups. All: every rating on this page but exams. Accepted: without the people whom quality control removes. `pipeline annotate qc` gives the same figures after an ingest.";
let session = null;
const rubric = () => Object.values(session.rubrics)[0];
const words = (dimension) => rubric().titles[dimension] ?? dimension;
const number = (value, digits = 2) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));
const estimate = (e) => (!e || e.value === null ? e?.note ?? "–" : `${number(e.value)} [${number(e.low)}, ${number(e.high)}]`);
const when = (text) => text.slice(0, 16).replace("T", " ");

// A table; a cell is a text, a node, or {text, class}.
function table(head, rows, caption) {
  if (!rows.length) return make("p", {}, "None.");
  const cell = (value) => {
    if (value instanceof Node) return make("td", {}, value);
    if (value !== null && typeof value === "object") return make("td", { class: value.class }, value.text);
    return make("td", { class: /^[−\-\d.,% ]+$/.test(String(value)) ? "number" : "" }, value);
  };
  return make("table", {}, caption ? make("caption", {}, caption) : [], make("thead", {}, make("tr", {}, head.map((h) => make("th", { scope: "col" }, h)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

const opens = (group) => make("button", { type: "button", title: group, onclick: () => show(group) }, group.slice(0, 8));

function progress(p) {
  const facts = [
    [`${p.filled} of ${p.places}`, "ratings of groups done (one per group and wanted person)"],
    [p.groups, "groups"],
    [p.ratings, "ratings"],
    [p.groups_per_day, "groups per day, last 7 days"],
    [p.days_left === null ? "–" : `${p.days_left}`, "days left at this rate"],
    [p.shared_groups, "groups rated by several people"],
    [p.connected ? "yes" : "no", "shared groups connect all raters"],
    [p.expired, "groups opened but not submitted"],
  ];
  fill($("progress"), facts.map(([value, label]) => make("div", {}, make("strong", {}, value), make("span", {}, label))));
  $("sets").textContent = p.sets;
}

function people(rows) {
  const { dimensions } = session;
  const per = (person, name) => ({ text: dimensions.map((d) => number(person[name][d])).join(" / "), class: person.enough_shared ? "number" : "number grey" });
  const sorted = [...rows].sort((a, b) => b.remarks.length - a.remarks.length || a.annotator.localeCompare(b.annotator));
  const gold = (person) => dimensions.map((d) => number(person.hidden_gold[d]?.within_one)).join(" / ");
  const exams = (person) => Object.entries(person.exams).map(([name, by]) => `${name}: ${dimensions.map((d) => `kappa ${number(by[d]?.kappa)}, exact ${number(by[d]?.exact)}, severity ${number(by[d]?.severity)}`).join("; ")}`).join("\n");
  $("order").textContent = dimensions.map(words).join(" / ");
  fill($("people"), table(
    ["person", "stage", "", "quality control", "groups", "seconds per group", "shared", "kappa with others", "severity", "drift", "slope by position", "gold within 1", "all equal", "remarks", "exams"],
    sorted.map((p) => [{ text: p.annotator + (p.revoked ? " (revoked)" : ""), class: "name" }, p.stage, actions(p), p.status || "–", p.groups, number(p.seconds, 0), p.shared, per(p, "kappa"), per(p, "severity"), per(p, "drift"),
      number(p.position_slope, 3), { text: gold(p), class: "number" }, number(p.all_equal), { text: p.remarks.join("\n") || "–", class: "remarks" }, { text: exams(p) || "–", class: "remarks" }])));
}

function actions(person) {
  const act = (action, label) => make("button", { type: "button", onclick: () => decide(person.annotator, action, `${label} ${person.annotator}. Reason:`) }, label);
  const shown = [person.stage === "paused" ? act("resume", "Resume") : act("pause", "Pause")];
  if (["training", "exam-1", "exam-2", "failed"].includes(person.stage)) shown.push(act("certify", "Admit"));
  return make("span", {}, shown);
}

async function decide(subject, action, question, to = "") {
  const reason = prompt(question, "");
  if (reason === null) return;
  try {
    await ask("POST", "/api/lead/decision", session.annotator, { subject, action, reason, to });
    await load();
  } catch (error) {
    $("status").textContent = error.message;
  }
}

// A list of people; choosing one hands the group to them.
function handOver(skip, annotators) {
  const others = annotators.filter((name) => name !== skip.annotator);
  const list = make("select", { "aria-label": "Hand over to" }, make("option", { value: "" }, "Hand over to …"), [...others, skip.annotator].map((name) => make("option", { value: name }, name)));
  list.addEventListener("change", () => list.value && decide(skip.group_id, "hand-over", `Hand this group over to ${list.value}. Reason:`, list.value));
  return list;
}

function phases(rows) {
  const met = (phase) => ({ true: "met", false: "not met" })[phase.met] ?? "–";
  fill($("phases"), table(["phase", "groups", "ratings wanted", "done", "people", "targets", "begins with"], rows.map((p) => [p.round, p.groups, p.wanted ?? "everybody", p.done, p.people, met(p), make("code", {}, p.command)])));
}

// Hours by person and day, the latest day first.
function hours(rows) {
  const days = [...new Set(rows.map((r) => r.day))].slice(0, 14);
  const names = [...new Set(rows.map((r) => r.annotator))].sort();
  const of = (name, day) => rows.find((r) => r.annotator === name && r.day === day);
  const sum = (name) => rows.filter((r) => r.annotator === name).reduce((seconds, r) => seconds + r.seconds, 0);
  const cell = (seconds) => ({ text: seconds === undefined ? "" : `${number(seconds / 3600)} h`, class: "number" });
  fill($("hours"), table(["person", "all days", ...days], names.map((name) => [name, cell(sum(name)), ...days.map((day) => cell(of(name, day)?.seconds))])));
}

function queues(s) {
  $("queued-groups").textContent = `${s.queued_groups} ${s.queued_groups === 1 ? "group" : "groups"}${s.queued.length < s.queued_groups ? `, the first ${s.queued.length} of them here` : ""}`;
  fill($("queued"), table(["group", "raters", "why", ""], s.queued.map((q) => [opens(q.group_id), q.raters.length, { text: q.message, class: "said" },
    make("button", { type: "button", onclick: () => decide(q.group_id, "one-more", "Ask one more person to rate this group. Reason:") }, "Ask one more person")])));
  fill($("disputed"), table(["group", "disputed cells"], Object.entries(s.disputed).map(([group, cells]) => [opens(group), cells])));
  fill($("flagged"), table(["group", "by", "reason", "comment", "when"], s.flagged.map((f) => [opens(f.group_id), f.annotator, f.flag, { text: f.comment, class: "said" }, when(f.submitted_at)])));
  fill($("skipped"), table(["group", "by", "reason", "when", ""], s.skipped.map((k) => [opens(k.group_id), k.annotator, { text: k.reason, class: "said" }, when(k.skipped_at), handOver(k, s.annotators)])));
  fill($("comments"), table(["group", "by", "comment", "when"], s.comments.map((c) => [opens(c.group_id), c.annotator, { text: c.comment, class: "said" }, when(c.submitted_at)])));
  fill($("decisions"), table(["when", "by", "decision", "about", "reason"], s.decisions.map((d) => [when(d.made_at), d.author, d.action, d.subject, { text: d.reason, class: "said" }])));
}

function data(s) {
  $("shares-note").textContent = s.shares_note;
  const levels = Object.keys(Object.values(s.shares)[0]);
  fill($("shares"), table(["dimension", ...levels.map((l) => `${l} ${rubric().words[l] ?? ""}`)], Object.entries(s.shares).map(([d, by]) => [words(d), ...levels.map((l) => `${number(100 * by[l], 1)} %`)])));
  fill($("confusion"), Object.entries(s.confusion).map(([d, rows]) => table(["", ...levels], rows.map((row, i) => [{ text: levels[i], class: "" }, ...row]), words(d))));
}

function targets(rows) {
  const met = (target) => ({ true: "met", false: "not met" })[target.met] ?? "no ratings";
  fill($("targets"), table(["round", "dimension", "statistic", "wanted", "all ratings", "accepted ratings", ""], rows.map((t) => [t.round, words(t.dimension), t.statistic.replaceAll("_", " "),
    `${t.bound === "low" ? "lower limit ≥" : "≥"} ${number(t.at_least)}`, estimate(t.estimate_of_all), estimate(t.estimate), met(t)])));
}

// Agreement by round; in every dimension all ratings and the accepted ones.
function agreement(quality) {
  const rounds = Object.keys(quality.all);
  $("agreement-note").textContent = quality.problem || (rounds.length ? NOTE : "No group has been rated yet.");
  const { dimensions } = session;
  const head = ["round", "statistic", ...dimensions.flatMap((d) => [`${words(d)}: all`, "accepted"])];
  const rows = (names) => rounds.flatMap((round) => names.map((name) => [round, name.replaceAll("_", " "),
    ...dimensions.flatMap((d) => [quality.all, quality.accepted].map((of) => estimate(of[round]?.[d]?.[name])))]));
  const every = [...new Set(rounds.flatMap((round) => dimensions.flatMap((d) => Object.entries(quality.all[round][d] ?? {}).filter(([, value]) => value && typeof value === "object" && "value" in value).map(([name]) => name))))];
  fill($("agreement"), rounds.length ? table(head, rows(quality.shown)) : []);
  fill($("statistics"), rounds.length ? table(head, rows(every)) : []);
}

async function show(name) {
  const group = await ask("GET", `/api/lead/group/${name}`, session.annotator);
  $("group-title").textContent = group.instruction;
  $("group-order").textContent = `Scores: ${session.dimensions.map(words).join(" · ")}.`;
  const tile = (image, title, lines) => make("div", { class: "tile" }, make("img", { src: image, alt: title, onload: (event) => event.target.classList.toggle("pixels", event.target.clientWidth >= 2 * event.target.naturalWidth) }), make("strong", {}, title), make("p", {}, lines.join("\n")));
  const scores = (by) => session.dimensions.map((d) => by?.[d] ?? "–").join(" · ");
  fill($("group-tiles"), tile(group.source, "Source", []), group.candidates.map((c, i) => tile(c.image, `Edit ${i + 1}`, [
    ...group.said.map((s) => `${s.annotator}: ${scores(s.scores[c.id])}`),
    ...(group.gold[c.id] ? [`gold: ${session.dimensions.map((d) => group.gold[c.id][d]?.join(" or ") ?? "–").join(" · ")}`] : []),
  ])));
  fill($("group-said"), group.said.filter((s) => s.comment || s.flag).map((s) => make("p", {}, `${s.annotator}: ${[s.flag, s.comment].filter(Boolean).join(": ")}`)));
  $("group").showModal();
}

async function load() {
  $("status").textContent = "Loading …";
  try {
    session ??= await ask("GET", "/api/session");
    if (session.role !== "lead") return location.replace("/");
    const summary = await ask("GET", "/api/lead/summary", session.annotator);
    progress(summary.progress);
    people(summary.people);
    phases(summary.phases);
    fill($("waiting"), summary.waiting.map((text) => make("li", {}, text)));
    hours(summary.hours);
    queues(summary);
    data(summary);
    targets(summary.quality.targets);
    agreement(summary.quality);
    $("main").hidden = false;
    $("status").textContent = summary.problem;
  } catch (error) {
    $("status").textContent = error.message;
  }
}

$("again").addEventListener("click", load);
setInterval(() => document.visibilityState === "visible" && !$("group").open && load(), REFRESH_AFTER);
$("group-close").addEventListener("click", () => $("group").close());
load();
