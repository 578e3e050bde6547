// What the extension and the native host (`longhaul browser host`) say to each other: JSON objects of at most 1 MiB.

/** A transfer as the agent describes it. */
export interface Transfer {
  id: number;
  kind: string;
  state: "queued" | "running" | "paused" | "waiting-link" | "done" | "failed" | "cancelled" | "scheduled";
  urls: string[];
  path: string;
  name: string;
  /** Bytes; null where the server does not report the size. */
  size: number | null;
  bytes: number;
  goodput_bps: number;
  /** Seconds to the end. */
  eta: number | null;
  limited_by?: string | null;
  explanation?: string | null;
  error: { message: string; exit_code: number } | null;
  page_url: string | null;
}

/** A file that the agent is asked to fetch. */
export interface TransferRequest {
  urls: string[];
  name?: string;
  size?: number;
  headers?: string[];
  cookies?: string;
  user_agent?: string;
  referrer?: string;
  page_url?: string;
}

/** A request to the host, without its number. */
export type HostRequest =
  | { type: "hello" }
  /** Connects to the server of a link that may be offered. */
  | { type: "connect"; url: string }
  /** Starts a transfer if its server answers within `seconds` as the browser was answered; refused otherwise, and nothing is kept. */
  | { type: "offer"; request: TransferRequest; seconds: number }
  | { type: "add"; request: TransferRequest }
  | { type: "list"; limit: number }
  | { type: "pause" | "resume" | "cancel" | "retry" | "open-folder"; transfer: number }
  /** Removes an ended transfer from the list, and what has arrived of it with `files`. */
  | { type: "remove"; transfer: number; files?: boolean }
  | { type: "refresh"; transfer: number; request: TransferRequest }
  /** Asks for a `transfer` event whenever one changes, until the port closes. */
  | { type: "watch" };

/** A reply carries the number of its request, an event none. */
export type HostMessage =
  | { id: number; ok: true; result: unknown }
  | { id: number; ok: false; error: { code: string; message: string } }
  | { event: "transfer"; transfer: Transfer }
  | { event: "progress"; progress: Progress }
  | { event: "removed"; id: number }
  /** The agent has ended; the host starts it again, or waits for the next where it was stopped. */
  | { event: "lost"; message: string }
  /** The agent's events follow, beginning with its latest transfers. */
  | { event: "connected" };

/** How a running transfer stands. */
export interface Progress {
  id: number;
  bytes: number;
  goodput_bps: number;
}

/** A request that the host or the agent refused. */
export class HostError extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
    this.name = "HostError";
  }
}
