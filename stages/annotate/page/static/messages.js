// Messages: the save state, a line above the images, or a full page.
import { $ } from "./dom.js";
import * as zoom from "./zoom.js";

// Whether a request that failed should be repeated.
export const again = (error) => error.status === 0 || error.status === 429 || error.status >= 500;

// A message of the server as a sentence.
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

const LOOK_AGAIN = 60_000;
let looking = 0;

// Show the group instead of a message.
export function showGroup() {
  clearTimeout(looking);
  $("message").hidden = true;
  $("page").hidden = false;
}

export function message(title, text, retry) {
  clearTimeout(looking);
  $("message-previous").hidden = true;
  $("page").hidden = true;
  $("message").hidden = false;
  $("message-title").textContent = title;
  $("message-text").textContent = text;
  $("message-again").hidden = !retry;
  $("message-again").onclick = retry;
}

export function stop(error) {
  close();
  message(error.status === 401 ? "No valid link" : "An error occurred", sentence(error.message), null);
}

export function troubled(error, retry) {
  if (!again(error)) return stop(error);
  if ($("page").hidden) message("No connection", "The server does not respond. This page will try again automatically.", retry);
  else banner("The server does not respond. This page will try again automatically.");
  setTimeout(retry, 1000 * (error.body.wait || 3));
}

const STOPPED = {
  paused: ["Paused", "The lead of the project has paused your work. Please contact the lead."],
  failed: ["Exam not passed", "Please contact the lead of the project."],
};

export function nothingLeft(stage, retry) {
  const words = STOPPED[stage] ?? ["No group to rate", "You have rated all your groups. Thank you."];
  message(...words, retry);
  $("message-previous").hidden = stage in STOPPED;
  looking = setTimeout(retry, LOOK_AGAIN); // an export may add groups
}

export function close() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

export function toggle(name) {
  const dialog = $(name);
  if (dialog.open) return dialog.close();
  dialog.showModal();
  if (dialog.classList.contains("reading")) {
    dialog.focus(); // start at the top, not at the button at the end
    dialog.scrollTop = 0;
  }
}
