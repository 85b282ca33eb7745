// Which key does what. A key is named by what it writes where that is a Latin letter, a digit or one of our signs, and else by its place on
// the keyboard (event.code), so that Cyrillic, Greek, Arabic or AZERTY keyboards work. Everybody may change keys; this browser keeps each person's.
const SIGNS = "?+- ";
const PLACES = { Minus: "-", Equal: "+", NumpadSubtract: "-", NumpadAdd: "+", Slash: "?", Space: " " };
const LABELS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Backspace: "⌫", " ": "Space" };
const RESERVED = ["Tab", "Escape", "Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified"];

export const SCORES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => `score-${number}`);

// Every action: its name, its key, and what it does.
export const ACTIONS = [
  ...SCORES.map((name, i) => [name, String(i), `score or rank ${i}`]),
  ["lower", "-", "on a slider: one step lower"],
  ["higher", "+", "on a slider: one step higher"],
  ["before", "ArrowLeft", "previous edit"],
  ["after", "ArrowRight", "next edit"],
  ["up", "ArrowUp", "dimension before"],
  ["down", "ArrowDown", "next dimension"],
  ["flicker", " ", "held: show the source instead of the edit"],
  ["zoom", "z", "zoom both images; the mouse or Shift and arrows move the visible part"],
  ["overview", "g", "overview of all edits; there, a number opens that edit"],
  ["rubric", "r", "rubric"],
  ["comment", "c", "comment"],
  ["flag", "f", "this group cannot be rated"],
  ["skip", "s", "skip: somebody else rates this group"],
  ["submit", "Enter", "submit, when no score is missing; else go to the first missing one"],
  ["previous", "Backspace", "open the previous group again"],
  ["forward", "n", "from an earlier group forward to the one to rate now, without submitting"],
  ["keys", "?", "this list"],
];
const WORDS = Object.fromEntries(ACTIONS.map(([name, , words]) => [name, words]));

let chosen = {};
let keeping = null;

// The keys of this person. kept: what the browser keeps for the person.
export function use(kept) {
  keeping = kept;
  chosen = Object.fromEntries(Object.entries(kept.read("keys") ?? {}).filter(([name, key]) => name in WORDS && typeof key === "string"));
}

const placed = (code) => PLACES[code] ?? /^Key([A-Z])$/.exec(code)?.[1].toLowerCase();

export function keyOf({ key, code, shiftKey }) {
  const written = key.length === 1;
  if (!written && !["Dead", "Process", "Unidentified"].includes(key)) return key;
  const digit = /^(?:Digit|Numpad)([0-9])$/.exec(code);
  if (digit && !shiftKey) return digit[1]; // the row of digits, also where it writes signs
  const sign = key.toLowerCase();
  return written && (/^[a-z0-9]$/.test(sign) || SIGNS.includes(sign)) ? sign : placed(code) ?? sign;
}

const keyFor = (name) => chosen[name] ?? ACTIONS.find(([action]) => action === name)[1];

export const actionOf = (event) => ACTIONS.find(([name]) => keyFor(name) === keyOf(event))?.[0];

export function label(name) {
  const key = name in WORDS ? keyFor(name) : "";
  return LABELS[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}

// Give an action another key; returns why that is not possible, or an empty text.
export function change(name, event) {
  const key = keyOf(event);
  if (RESERVED.includes(key)) return `${key} cannot be used.`;
  const other = ACTIONS.find(([action]) => action !== name && keyFor(action) === key)?.[0];
  if (other) return `${label(other)} is used for “${WORDS[other]}”; give that another key first.`;
  chosen = { ...chosen, [name]: key };
  keeping.write("keys", chosen);
  return "";
}

export function reset() {
  chosen = {};
  keeping.write("keys", chosen);
}
