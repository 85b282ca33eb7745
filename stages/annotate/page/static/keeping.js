// What this browser keeps for a person: drafts and submissions that have not reached the server, keys, the language. A preview keeps nothing.
import { ask } from "./dom.js";

const RETRY = [1, 2, 4, 8, 15];

export class Keeping {
  constructor(session) {
    this.who = session.annotator;
    this.prefix = `${session.project}:${session.annotator}:`;
    this.stores = !session.preview;
  }

  read(name) {
    if (!this.stores) return null;
    try {
      return JSON.parse(localStorage.getItem(this.prefix + name));
    } catch {
      return null;
    }
  }

  write(name, value) {
    if (!this.stores) return;
    try {
      if (value === null) localStorage.removeItem(this.prefix + name);
      else localStorage.setItem(this.prefix + name, JSON.stringify(value));
    } catch {
      /* without local storage, the server's draft remains */
    }
  }

  draft(group) {
    return this.read(`draft:${group}`);
  }

  keepDraft(group, value) {
    this.write(`draft:${group}`, value);
  }

  get sending() {
    return this.read("sending");
  }

  set sending(value) {
    this.write("sending", value);
  }

  // Repeat the submission until the server responds; `waiting` is called before each retry. The id stays the same, so the submission is
  // neither lost nor stored twice.
  async send(submission, waiting) {
    for (let attempt = 0; ; attempt++) {
      try {
        return await ask("POST", "/api/submit", this.who, submission);
      } catch (error) {
        if (error.status !== 0 && error.status !== 429 && error.status < 500) throw error;
        const seconds = error.body.wait || RETRY[Math.min(attempt, RETRY.length - 1)];
        waiting(seconds);
        await new Promise((done) => {
          const timer = setTimeout(done, 1000 * seconds);
          addEventListener("online", () => (clearTimeout(timer), done()), { once: true });
        });
      }
    }
  }
}

// 128 random bits. crypto.randomUUID does not exist on plain http except for localhost.
export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
