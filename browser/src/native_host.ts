// The connection to the native host. An open port keeps the background page alive, so an idle one is closed.

import { api } from "./browser_api";
import { HostError, type HostMessage, type HostRequest, type Transfer } from "./messages";

const HOST_NAME = "longhaul";

/** How long a port without transfers under way stays open, milliseconds. */
const IDLE_TIMEOUT = 30_000;

/** How long the host may take for an answer, milliseconds: the agent's start and a slow server's answer lie within. */
const REPLY_TIMEOUT = 30_000;

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

  /** `onEvent` is called with each event that is no reply. */
  constructor(private readonly onEvent: (event: Exclude<HostMessage, { id: number; ok: boolean }>) => void) {}

  /** Sends a request and returns its result; rejects with a `HostError`, code `no-host` where the program is not installed. */
  request<T>(request: HostRequest): Promise<T> {
    const port = this.connect();
    const id = this.nextId++;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        reject(new HostError("timeout", `no answer to "${request.type}" within ${REPLY_TIMEOUT / 1000} s`));
      }, REPLY_TIMEOUT);
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
    return port;
  }

  private receive(message: HostMessage): void {
    if ("event" in message) {
      if (message.event === "transfer") this.track(message.transfer);
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
    this.port = null;
    this.running.clear();
    for (const waiting of this.waiting.values()) {
      clearTimeout(waiting.timer);
      waiting.reject(new HostError(missing ? "no-host" : "disconnected", reason));
    }
    this.waiting.clear();
    this.onEvent({ event: "lost", message: reason });
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
