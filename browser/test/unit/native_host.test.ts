import assert from "node:assert/strict";
import test from "node:test";

import type { HostError, HostMessage } from "../../src/messages";
import { NativeHost } from "../../src/native_host";

/** A port whose other end is the test. */
class Port {
  sent: { id: number; type: string }[] = [];
  isClosed = false;
  #receive: (message: unknown) => void = () => undefined;
  #end: (port: Port) => void = () => undefined;
  onMessage = { addListener: (listener: (message: unknown) => void) => void (this.#receive = listener) };
  onDisconnect = { addListener: (listener: (port: Port) => void) => void (this.#end = listener) };
  constructor(readonly error?: { message: string }) {}

  postMessage(message: { id: number; type: string }): void {
    this.sent.push(message);
  }

  disconnect(): void {
    this.isClosed = true;
  }

  receive(message: HostMessage): void {
    this.#receive(message);
  }

  end(): void {
    this.#end(this);
  }
}

/** Makes a host; returns the ports that it opens, each with `error` when it ends, and its events. */
function connect(error?: { message: string }) {
  const ports: Port[] = [];
  const events: string[] = [];
  const connectNative = () => ports[ports.push(new Port(error)) - 1];
  Object.assign((globalThis as unknown as { chrome: { runtime: object } }).chrome.runtime, { connectNative });
  return { host: new NativeHost((event) => events.push(event.event)), ports, events };
}

const offer = { type: "offer", request: { urls: ["https://h/f"] }, seconds: 3 } as const;
const failure = (request: Promise<unknown>) => request.then(() => "none", (error: HostError) => error.code);

test("host that ends is started again after 1 s, 2 s, 4 s, 8 s and 16 s, until it is connected", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { host, ports, events } = connect();
  void failure(host.request({ type: "hello" }));
  for (const [index, wait] of [1, 2, 4, 8, 16].entries()) {
    ports[index]?.end();
    context.mock.timers.tick(wait * 1000 - 1);
    assert.equal(ports.length, index + 1);
    context.mock.timers.tick(1);
    assert.deepEqual(ports[index + 1]?.sent.map((message) => message.type), ["watch"]);
  }
  ports[5]?.receive({ event: "connected" });
  ports[5]?.end();
  context.mock.timers.tick(1000);
  assert.equal(ports.length, 7, "as at first");
  assert.deepEqual(events, ["lost", "lost", "lost", "lost", "lost", "connected", "lost"]);
});

test("program that is not installed is not tried again", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { host, ports } = connect({ message: "No such native application longhaul" });
  const hello = failure(host.request({ type: "hello" }));
  ports[0]?.end();
  assert.equal(await hello, "no-host");
  context.mock.timers.tick(60_000);
  assert.equal(ports.length, 1);
});

test("offer without a reply ends a second after its time, with its host", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { host, ports } = connect();
  const [hello, offered] = [failure(host.request({ type: "hello" })), failure(host.request(offer))];
  context.mock.timers.tick(3_999);
  assert.equal(ports[0]?.isClosed, false);
  context.mock.timers.tick(1);
  assert.equal(ports[0]?.isClosed, true);
  assert.deepEqual([await hello, await offered], ["disconnected", "timeout"]);
});
