// Elements are made from text only, so no text is interpreted as markup.

export const $ = (id) => document.getElementById(id);

// An element with attributes and children; a child that is a string becomes text.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children.flat()) element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
}

// A response other than 2xx, or no response (status 0).
export class Failed extends Error {
  constructor(status, body) {
    super(body.message || "The server did not answer.");
    this.status = status;
    this.body = body;
  }
}

// A JSON request. `who` is the person for whom this window was opened. A draft (PUT, small enough for it) is sent also while the page closes.
export async function ask(method, path, who, body) {
  let response;
  const headers = { "X-Annotator": who || "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(path, { method, headers, body: sent, cache: "no-store", keepalive: method === "PUT" });
  } catch {
    throw new Failed(0, {});
  }
  let value = {};
  try {
    value = await response.json();
  } catch {
    value = {};
  }
  if (!response.ok) throw new Failed(response.status, value);
  return value;
}
