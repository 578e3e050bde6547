// A server of test files, with a link that expires in the middle of the transfer.

import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";

const MIB = 2 ** 20;
/** The file behind `/expiring.bin`; requests with another `key` than the present one are answered 403. */
export const EXPIRING = randomBytes(24 * MIB);
export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

export class Origin {
  #server = createServer((request, answer) => this.#answer(request, answer));
  #key = "first";
  /** How much of the file the first key may still fetch. */
  #allowance = 8 * MIB;

  async start() {
    await new Promise((done) => this.#server.listen(0, "127.0.0.1", done));
    return this;
  }

  url(path) {
    return `http://127.0.0.1:${this.#server.address().port}${path}`;
  }

  /** Returns a link that works until it has moved a third of the file. */
  dyingLink() {
    this.#key = "first";
    this.#allowance = 8 * MIB;
    return this.url("/expiring.bin?key=first");
  }

  freshLink() {
    this.#key = "fresh";
    this.#allowance = Infinity;
    return this.url("/expiring.bin?key=fresh");
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #answer(request, answer) {
    const { pathname, searchParams } = new URL(request.url, "http://origin");
    if (pathname !== "/expiring.bin") return answer.writeHead(404).end();
    if (searchParams.get("key") !== this.#key || this.#allowance <= 0) return answer.writeHead(403).end("expired\n");
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    const first = range ? Number(range[1]) : 0;
    const last = range && range[2] ? Math.min(Number(range[2]), EXPIRING.length - 1) : EXPIRING.length - 1;
    const headers = { "Content-Length": last - first + 1, "Accept-Ranges": "bytes", ETag: '"expiring-1"' };
    if (range) headers["Content-Range"] = `bytes ${first}-${last}/${EXPIRING.length}`;
    answer.writeHead(range ? 206 : 200, headers);
    if (request.method === "HEAD") return answer.end();
    const body = EXPIRING.subarray(first, last + 1);
    if (body.length <= this.#allowance) {
      this.#allowance -= body.length;
      return answer.end(body);
    }
    // The link expires here: what was promised does not come.
    const sent = body.subarray(0, this.#allowance);
    this.#allowance = 0;
    return answer.write(sent, () => setTimeout(() => answer.destroy(), 200));
  }
}
