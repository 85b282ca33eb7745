// The rubric's language: the one that was chosen in this browser, else the browser's, else the first.
import { $, fill, make } from "./dom.js";

const STORED = "annotate-language";

function wanted() {
  try {
    return [localStorage.getItem(STORED), ...navigator.languages];
  } catch {
    return navigator.languages;
  }
}

const base = (language) => language?.split("-")[0];

export function choose(rubrics) {
  const have = Object.keys(rubrics);
  for (const language of wanted()) {
    const found = have.find((one) => one === language) ?? have.find((one) => one && base(one) === base(language));
    if (found !== undefined) return found;
  }
  return have[0];
}

function name(language) {
  if (!language) return "Original";
  return new Intl.DisplayNames([language], { type: "language" }).of(language);
}

// The list of languages, hidden where there is one; `changed` is called with another choice.
export function listen(session, changed) {
  const languages = Object.keys(session.rubrics);
  $("language").parentElement.hidden = languages.length < 2;
  fill($("language"), languages.map((language) => make("option", { value: language, selected: language === session.language }, name(language))));
  $("language").onchange = () => {
    try {
      localStorage.setItem(STORED, $("language").value);
    } catch {
      /* until the page is closed */
    }
    changed($("language").value);
  };
}
