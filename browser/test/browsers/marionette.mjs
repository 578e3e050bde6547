// Marionette, Firefox's own remote control: JSON messages over TCP, each preceded by its length and a colon.
import net from "node:net";

export class Marionette {
  #socket;
  #received = Buffer.alloc(0);
  #waiting = new Map();
  #nextId = 1;

  static async connect(port, timeout = 60_000) {
    const end = Date.now() + timeout;
    for (;;) {
      try {
        return await Marionette.#connectOnce(port);
      } catch (error) {
        if (Date.now() > end) throw new Error(`Firefox does not listen on port ${port}: ${error.message}`);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  static #connectOnce(port) {
    return new Promise((resolve, reject) => {
      const socket = net.connect(port, "127.0.0.1");
      const marionette = new Marionette(socket);
      socket.once("error", reject);
      // The server greets first, with a message that belongs to no request.
      marionette.greeted = () => resolve(marionette);
    });
  }

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (data) => this.#receive(data));
    socket.on("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("Firefox has closed the connection"));
      this.#waiting.clear();
    });
    socket.on("error", () => undefined);
  }

  send(name, parameters = {}) {
    const id = this.#nextId++;
    const text = JSON.stringify([0, id, name, parameters]);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, name });
      this.#socket.write(`${Buffer.byteLength(text)}:${text}`);
    });
  }

  close() {
    this.#socket.destroy();
  }

  #receive(data) {
    this.#received = Buffer.concat([this.#received, data]);
    for (;;) {
      const colon = this.#received.indexOf(":");
      if (colon < 0) return;
      const length = Number(this.#received.subarray(0, colon).toString());
      if (this.#received.length < colon + 1 + length) return;
      const message = JSON.parse(this.#received.subarray(colon + 1, colon + 1 + length).toString());
      this.#received = this.#received.subarray(colon + 1 + length);
      if (!Array.isArray(message)) {
        this.greeted?.();
        continue;
      }
      const [, id, error, result] = message;
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(new Error(`${waiting.name}: ${error.message}`));
      else waiting?.resolve(result);
    }
  }
}
