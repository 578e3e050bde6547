// The connection to the native host. An open port keeps the background page alive, so an idle one is closed.

import { api } from "./browser_api";
import { HostError, type HostMessage, type HostRequest, type Transfer } from "./messages";

const HOST_NAME = "longhaul";

/** How long a port without transfers under way stays open, milliseconds. */
const IDLE_TIMEOUT = 30_000;

/** How long the host may take for an answer, milliseconds: the agent's start and a slow server's answer lie within. */
const REPLY_TIMEOUT = 30_000;
/** How long after the time of an offer its reply may arrive, milliseconds. */
const OFFER_MARGIN = 1_000;

/** How often the host is started again after it has ended by itself, and the first wait, milliseconds; each is twice the one before. */
const RECONNECTS = 5;
const RECONNECT_FIRST = 1_000;

interface Waiting {
  resolve(result: unknown): void;
  reject(error: HostError): void;
  timer: ReturnType<typeof setTimeout>;
}

export class NativeHost {
  private port: chrome.runtime.Port | null = null;
  private nextId = 1;
  private readonly waiting = new Map<number, Waiting>();
  private readonly running = new Set<number>();
  private idleTimer: ReturnType<typeof setTimeout> | undefined;
  private reconnects = 0;

  /** `onEvent` is called with each event that is no reply. */
  constructor(private readonly onEvent: (event: Exclude<HostMessage, { id: number; ok: boolean }>) => void) {}

  /** Sends a request and returns its result; rejects with a `HostError`, code `no-host` where the program is not installed. */
  request<T>(request: HostRequest): Promise<T> {
    const port = this.connect();
    const id = this.nextId++;
    return new Promise<T>((resolve, reject) => {
      const limit = request.type === "offer" ? request.seconds * 1000 + OFFER_MARGIN : REPLY_TIMEOUT;
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        reject(new HostError("timeout", `no answer to "${request.type}" within ${limit / 1000} s`));
        // The browser goes on: with the host, its offer ends.
        if (request.type === "offer") this.lost(port, "disconnected", "the native host does not answer");
      }, limit);
      this.waiting.set(id, { resolve: resolve as (result: unknown) => void, reject, timer });
      port.postMessage({ id, ...request });
      this.closeWhenIdle();
    });
  }

  private connect(): chrome.runtime.Port {
    if (this.port) return this.port;
    const port = api.runtime.connectNative(HOST_NAME);
    port.onMessage.addListener((message) => this.receive(message as HostMessage));
    port.onDisconnect.addListener((closed) => this.disconnected(port, closed));
    this.port = port;
    const id = this.nextId++;
    port.postMessage({ id, type: "watch" });
    this.closeWhenIdle();
    return port;
  }

  private receive(message: HostMessage): void {
    if ("event" in message) {
      if (message.event === "transfer") this.track(message.transfer);
      if (message.event === "connected") {
        this.reconnects = 0;
        this.running.clear();
      }
      this.onEvent(message);
    } else {
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      clearTimeout(waiting?.timer);
      if (message.ok) waiting?.resolve(message.result);
      else waiting?.reject(new HostError(message.error.code, message.error.message));
    }
    this.closeWhenIdle();
  }

  private track(transfer: Transfer): void {
    if (["running", "queued", "scheduled"].includes(transfer.state)) this.running.add(transfer.id);
    else this.running.delete(transfer.id);
  }

  private disconnected(port: chrome.runtime.Port, closed: chrome.runtime.Port): void {
    if (this.port !== port) return;
    // Chromium reports why in `lastError`, Firefox in the port.
    const error = api.runtime.lastError ?? (closed as unknown as { error?: { message: string } }).error;
    const reason = error?.message ?? "the native host has closed the connection";
    const missing = /not found|no such native|forbidden|not registered/i.test(reason);
    this.lost(port, missing ? "no-host" : "disconnected", reason);
  }

  /** Ends what waits for a host that is lost, and starts another unless the program is missing. */
  private lost(port: chrome.runtime.Port, code: string, reason: string): void {
    if (this.port !== port) return;
    this.port = null;
    port.disconnect();
    this.running.clear();
    for (const waiting of this.waiting.values()) {
      clearTimeout(waiting.timer);
      waiting.reject(new HostError(code, reason));
    }
    this.waiting.clear();
    this.onEvent({ event: "lost", message: reason });
    if (code === "no-host" || this.reconnects >= RECONNECTS) return;
    setTimeout(() => this.connect(), RECONNECT_FIRST * 2 ** this.reconnects);
    this.reconnects += 1;
  }

  private closeWhenIdle(): void {
    clearTimeout(this.idleTimer);
    this.idleTimer = setTimeout(() => {
      if (this.waiting.size > 0 || this.running.size > 0) return;
      const port = this.port;
      this.port = null;
      port?.disconnect();
    }, IDLE_TIMEOUT);
  }
}
