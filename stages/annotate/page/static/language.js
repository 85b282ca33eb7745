// The rubric's language: the one that this person chose in this browser, else the browser's, else the first.
import { $, fill, make } from "./dom.js";

const base = (language) => language?.split("-")[0];

// keeping: what the browser keeps for this person.
export function choose(rubrics, keeping) {
  const have = Object.keys(rubrics);
  for (const language of [keeping.read("language"), ...navigator.languages]) {
    const found = have.find((one) => one === language) ?? have.find((one) => one && base(one) === base(language));
    if (found !== undefined) return found;
  }
  return have[0];
}

function name(language) {
  if (!language) return "Original";
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(language);
  } catch {
    return language; // no language that the browser knows, e.g. en-old
  }
}

// The list of languages, hidden where there is one; `changed` is called with another choice.
export function listen(session, keeping, changed) {
  const languages = Object.keys(session.rubrics);
  $("language").parentElement.hidden = languages.length < 2;
  fill($("language"), languages.map((language) => make("option", { value: language, selected: language === session.language }, name(language))));
  $("language").onchange = () => {
    keeping.write("language", $("language").value);
    changed($("language").value);
  };
}
