// What has not reached the server stays in this browser: drafts, and a submission on its way.
import { ask } from "./dom.js";

const RETRY = [1, 2, 4, 8, 15];

export class Keeping {
  constructor(session) {
    this.who = session.annotator;
    this.prefix = `${session.project}:${session.annotator}:`;
  }

  read(name) {
    try {
      return JSON.parse(localStorage.getItem(this.prefix + name));
    } catch {
      return null;
    }
  }

  write(name, value) {
    try {
      if (value === null) localStorage.removeItem(this.prefix + name);
      else localStorage.setItem(this.prefix + name, JSON.stringify(value));
    } catch {
      /* a browser without storage still has the server's draft */
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

  // Send the kept submission until the server has answered; `waiting` is told when it has not. Only an answer ends it, so a submission is
  // never lost; its id is the same each time, so it is never stored twice.
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

// 128 random bits. crypto.randomUUID is not there on plain http under another name than localhost.
export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
