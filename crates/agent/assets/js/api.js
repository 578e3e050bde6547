// The agent's HTTP API. The session is a cookie of the page's path, so no secret is in the page.

import { t } from "./i18n.js";

const BASE = new URL("api/v1", location.href).pathname;
// As long as the agent's other clients wait.
const ANSWER_MS = 30_000;

/** An answer that is not a success, with the agent's message and advice. */
export class ApiError extends Error {
  constructor(status, error) {
    super([error?.message, error?.advice].filter(Boolean).join("; ") || t("error.answer", { status }));
    this.status = status;
  }
}

async function call(method, path, body, type = "application/json") {
  const headers = body === undefined ? {} : { "Content-Type": type };
  const text = type === "application/json" && body !== undefined ? JSON.stringify(body) : body;
  const answer = await fetch(BASE + path, { method, headers, body: text, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => {
    throw new Error(t("offline"));
  });
  const isJson = (answer.headers.get("Content-Type") ?? "").includes("json");
  const content = isJson ? await answer.json() : null;
  if (!answer.ok) throw new ApiError(answer.status, content?.error);
  return content;
}

export const list = (state, limit, after) => {
  const query = new URLSearchParams({ limit });
  if (state) query.set("state", state);
  if (after !== null) query.set("after", after);
  return call("GET", `/transfers?${query}`);
};
export const get = (id) => call("GET", `/transfers/${id}`);
export const add = (request) => call("POST", "/transfers", request);
export const addMetalink = (text) => call("POST", "/transfers", text, "application/metalink4+xml");
export const act = (id, action, body = {}) => call("POST", `/transfers/${id}/${action}`, body);
/** Removes a transfer from the list; with `files` also what has arrived of it. */
export const remove = (id, files) => call("DELETE", `/transfers/${id}?files=${files}`);
export const change = (id, values) => call("PATCH", `/transfers/${id}`, values);
export const samples = (id, since) => call("GET", `/transfers/${id}/samples?since=${since}`);
export const settings = () => call("GET", "/settings");
export const changeSettings = (values) => call("PATCH", "/settings", values);
export const stats = () => call("GET", "/stats");
export const farm = () => call("GET", "/farm");
export const reportUrl = (id) => `${BASE}/transfers/${id}/report`;
export const eventsUrl = (id) => `${BASE}/events${id === null ? "" : `?samples=${id}`}`;
