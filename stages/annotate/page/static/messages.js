// What the page says: the save state, a line above the pictures, or instead of everything.
import { $ } from "./dom.js";
import * as zoom from "./zoom.js";

// No answer, or one that may be another the next time.
export const again = (error) => error.status === 0 || error.status === 429 || error.status >= 500;

// The server's messages as sentences.
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export function saved(text) {
  $("saved").textContent = text;
}

export function banner(text, choice = false) {
  $("banner").hidden = !text;
  $("banner-text").textContent = text;
  $("banner-mine").hidden = $("banner-theirs").hidden = !choice;
  zoom.refresh();
}

export function message(title, text, retry) {
  $("page").hidden = true;
  $("message").hidden = false;
  $("message-title").textContent = title;
  $("message-text").textContent = text;
  $("message-again").hidden = !retry;
  $("message-again").onclick = retry;
}

export function stop(error) {
  close();
  message(error.status === 401 ? "No valid link" : "This cannot go on", sentence(error.message), null);
}

export function troubled(error, retry) {
  if (!again(error)) return stop(error);
  if ($("page").hidden) message("No connection", "The server does not answer. This page tries again by itself.", retry);
  else banner("The server does not answer. This page tries again by itself.");
  setTimeout(retry, 1000 * (error.body.wait || 3));
}

export function nothingLeft(stage, retry) {
  const words = {
    paused: ["Paused", "The lead of the project has paused your work. Please ask."],
    failed: ["Exam not passed", "Please talk to the lead of the project."],
  }[stage] ?? ["No group is waiting", "Everything that was yours is done. Thank you."];
  message(...words, retry);
}

export function close() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

export function toggle(name) {
  const dialog = $(name);
  if (dialog.open) return dialog.close();
  dialog.showModal();
  if (dialog.classList.contains("reading")) {
    dialog.focus(); // from the beginning, not at the button at the end
    dialog.scrollTop = 0;
  }
}
