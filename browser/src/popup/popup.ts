// The popup: the agent's latest transfers, live.

import type { PageRequest } from "../background";
import { api, limitOf, text } from "../browser_api";
import { duration, rate, size } from "../format";
import type { HostMessage, Progress, Transfer } from "../messages";

const SHOWN = 20;

type Reply<T> = { ok: true; result: T } | { ok: false; error: { code: string; message: string } };
type Action = "pause" | "resume" | "cancel" | "retry" | "remove" | "delete" | "open-folder" | "open-dead-link";
/** A transfer that was running is lost while the agent does not report it. */
type ShownTransfer = Omit<Transfer, "state"> & { state: Transfer["state"] | "lost" };

const ACTIONS: Record<ShownTransfer["state"], Action[]> = {
  queued: ["pause", "cancel"],
  scheduled: ["cancel"],
  running: ["pause", "cancel"],
  paused: ["resume", "cancel"],
  "waiting-link": ["open-dead-link", "cancel"],
  done: ["open-folder", "remove"],
  failed: ["retry", "remove", "delete"],
  cancelled: ["retry", "remove", "delete"],
  lost: [],
};

const rows = new Map<number, Row>();
const list = element("transfers");

/** The elements of one transfer; only their contents change, so that focus stays where it is. */
class Row {
  readonly root = document.createElement("li");
  private readonly name = child(this.root, "div", "head", "span", "name");
  private readonly state = this.name.parentElement!.appendChild(document.createElement("span"));
  private readonly bar = this.root.appendChild(document.createElement("progress"));
  private readonly facts = child(this.root, "div", "facts faint");
  private readonly explanation = child(this.root, "p", "explanation");
  private readonly actions = child(this.root, "div", "actions");
  private offered = "";
  private shown: ShownTransfer | null = null;

  constructor(private readonly id: number) {
    this.root.dataset["transfer"] = String(id);
    this.state.className = "faint";
  }

  /** Bits per second; 0 unless it runs. */
  get rate(): number {
    return this.shown?.state === "running" ? this.shown.goodput_bps : 0;
  }

  /** Shows that nothing is known of a transfer that was running. */
  lose(): void {
    if (this.shown?.state === "running") this.show({ ...this.shown, state: "lost" });
  }

  progress(progress: Progress): void {
    if (this.shown?.state !== "running") return;
    const left = (this.shown.size ?? 0) - progress.bytes;
    const eta = this.shown.size === null || progress.goodput_bps <= 0 ? null : (left * 8) / progress.goodput_bps;
    this.shown = { ...this.shown, bytes: progress.bytes, goodput_bps: progress.goodput_bps, eta };
    this.showProgress(this.shown);
  }

  show(transfer: ShownTransfer): void {
    this.shown = transfer;
    this.name.textContent = transfer.name || transfer.urls[0] || "";
    this.name.title = transfer.path;
    this.root.dataset["state"] = transfer.state;
    this.state.textContent = text(`state_${transfer.state.replace("-", "_")}`);
    this.showProgress(transfer);
    const limit = ["running", "done"].includes(transfer.state) ? limitOf(transfer) : "";
    const note = transfer.error?.message ?? limit;
    this.explanation.textContent = note;
    this.explanation.classList.toggle("bad", transfer.error !== null);
    this.explanation.hidden = note === "";
    this.showActions(transfer);
  }

  private showProgress(transfer: ShownTransfer): void {
    const running = transfer.state === "running";
    this.bar.hidden = ["done", "cancelled"].includes(transfer.state);
    this.bar.setAttribute("aria-label", transfer.name);
    // A bar without a value moves.
    if (transfer.size === null && running) this.bar.removeAttribute("value");
    else {
      this.bar.max = Math.max(transfer.size ?? 1, 1);
      this.bar.value = transfer.size === null ? 0 : transfer.bytes;
    }
    const of = transfer.size === null || transfer.state === "done" ? "" : ` / ${size(transfer.size)}`;
    const moves = running || transfer.state === "done";
    const speed = moves && transfer.goodput_bps > 0 ? rate(transfer.goodput_bps) : "";
    const rest = running && transfer.eta !== null ? duration(transfer.eta) : "";
    this.facts.replaceChildren(...[`${size(transfer.bytes)}${of}`, speed, rest].filter(Boolean).map((fact) => {
      const span = document.createElement("span");
      span.textContent = fact;
      return span;
    }));
  }

  private showActions(transfer: ShownTransfer): void {
    const actions = ACTIONS[transfer.state];
    if (this.offered === actions.join()) return;
    this.offered = actions.join();
    this.actions.replaceChildren(...actions.map((action) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset["action"] = action;
      button.textContent = text(`action_${action.replaceAll("-", "_")}`);
      button.addEventListener("click", () => void act(action, this.id));
      return button;
    }));
  }
}

async function act(type: Action, transfer: number): Promise<void> {
  element("problem").hidden = true;
  const removes = type === "remove" || type === "delete";
  await ask(removes ? { type: "remove", transfer, files: type === "delete" } : { type, transfer });
  await refresh();
}

async function ask<T>(request: PageRequest): Promise<T | null> {
  const reply = (await api.runtime.sendMessage(request)) as Reply<T>;
  if (reply.ok) return reply.result;
  if (reply.error.code === "no-host") showProblem(text("noticeNoHostBody"), "code", "longhaul browser install");
  else showProblem(reply.error.message);
  return null;
}

/** Shows what is wrong, and below it a command (`code`) or the reason (`small`). */
function showProblem(message: string, tag: "code" | "small" = "small", below = ""): void {
  const problem = element("problem");
  problem.hidden = false;
  problem.replaceChildren(message);
  child(problem, tag, "faint").textContent = below;
}

function show(transfer: Transfer): void {
  let row = rows.get(transfer.id);
  if (!row) {
    row = new Row(transfer.id);
    rows.set(transfer.id, row);
    list.prepend(row.root);
  }
  row.show(transfer);
  element("empty").hidden = true;
}

function drop(id: number): void {
  rows.get(id)?.root.remove();
  rows.delete(id);
  element("empty").hidden = rows.size > 0;
}

async function refresh(): Promise<void> {
  const transfers = await ask<Transfer[]>({ type: "list", limit: SHOWN });
  if (!transfers) return;
  [...rows.keys()].filter((id) => !transfers.some((transfer) => transfer.id === id)).forEach(drop);
  transfers.sort((a, b) => a.id - b.id).forEach(show);
  showTotal();
  element("empty").hidden = rows.size > 0;
}

function showTotal(): void {
  const total = [...rows.values()].reduce((sum, row) => sum + row.rate, 0);
  element("total").textContent = total > 0 ? rate(total) : "";
}

function element(id: string): HTMLElement {
  return document.getElementById(id)!;
}

function child(parent: HTMLElement, ...path: string[]): HTMLElement {
  let at = parent;
  for (let i = 0; i < path.length; i += 2) {
    const next = document.createElement(path[i]!);
    next.className = path[i + 1] ?? "";
    at = at.appendChild(next);
  }
  return at;
}

document.documentElement.lang = api.i18n.getUILanguage();
element("options").textContent = text("options");
element("options").addEventListener("click", () => void api.runtime.openOptionsPage());
element("empty").textContent = text("empty");

api.runtime.onMessage.addListener((message: HostMessage) => {
  if (!("event" in message)) return;
  if (message.event === "transfer") show(message.transfer);
  if (message.event === "progress") rows.get(message.progress.id)?.progress(message.progress);
  if (message.event === "removed") drop(message.id);
  if (message.event === "lost") {
    rows.forEach((row) => row.lose());
    showProblem(text("lost"), "small", message.message);
  }
  if (message.event === "connected") {
    element("problem").hidden = true;
    void refresh();
  }
  showTotal();
});
void refresh();
