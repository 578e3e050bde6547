// The site under test: nginx, and behind it a small application for what nginx cannot do (links that work once or expire, POST).
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import path from "node:path";

import { freePort } from "../browsers/free_port.mjs";

/** Above the extension's least size. */
export const SIZE = 80 * 1024 * 1024;
const MIB = 1024 * 1024;
/** Below the options' least size. Under the rule `always`, Chromium hands over `SMALL` and keeps `TINY`. */
export const SMALL = 5 * MIB;
export const TINY = 1024;
const TYPE = "application/octet-stream";

export class Site {
  expired = false;
  #isReleased = false;
  /** Requests that the application has seen, as "METHOD path". */
  requests = [];
  #nginx;
  #application;

  static async start(folder) {
    const site = new Site();
    const root = path.join(folder, "site");
    await mkdir(root, { recursive: true });
    await site.#writeFiles(root);
    const port = await site.#startApplication(root);
    ({ process: site.#nginx, url: site.url } = await startNginx(folder, root, port));
    return site;
  }

  async #writeFiles(root) {
    const block = randomBytes(1024 * 1024);
    const hash = createHash("sha256");
    const file = await open(path.join(root, "large.bin"), "w");
    for (let at = 0; at < SIZE; at += block.length) {
      block.writeUInt32LE(at, 0);
      hash.update(block);
      await file.write(block);
    }
    await file.close();
    this.digest = hash.digest("hex");
    await writeFile(path.join(root, "index.html"), PAGE);
  }

  async #startApplication(root) {
    const used = new Set();
    const file = path.join(root, "large.bin");
    this.#application = http.createServer((request, response) => {
      const url = new URL(request.url, "http://application");
      this.requests.push(`${request.method} ${url.pathname}`);
      if (url.pathname === "/app/once") {
        // Works once: a second request finds it gone.
        if (used.has("once")) return void response.writeHead(410).end();
        used.add("once");
        return sendWhole(response, file, "once.bin");
      }
      // The agent repeats none of the Sec-Fetch fields.
      const isBrowser = request.headers["sec-fetch-dest"] !== undefined;
      if (url.pathname === "/app/other-size") {
        return sendRange(request, response, file, { name: "other-size.bin", size: isBrowser ? SIZE : SIZE / 2, rate: 40 * MIB });
      }
      if (url.pathname === "/app/held") {
        return sendRange(request, response, file, { name: "held.bin", rate: 40 * MIB, isHeld: () => !this.#isReleased });
      }
      if (url.pathname === "/app/one-connection") {
        // A server of one connection: the browser has it.
        if (isBrowser) sendRange(request, response, file, { name: "one-connection.bin", rate: 40 * MIB });
        return;
      }
      if (url.pathname === "/app/login-page") {
        if (isBrowser) return sendWhole(response, file, "login-page.bin");
        return void response.writeHead(200, { "Content-Type": "text/html" }).end("<title>Log in</title>");
      }
      if (url.pathname === "/app/store") {
        response.writeHead(200, { "Content-Type": "text/html", "Set-Cookie": `store=${url.searchParams.get("name")}; HttpOnly; Path=/` });
        return void response.end(STORE_PAGE);
      }
      if (url.pathname === "/app/store-signed") {
        // A link that expires, for the store alone that has the cookie.
        const valid = url.searchParams.get("signature") === (this.expired ? "fresh" : "first");
        if (!valid || !/store=work/.test(request.headers.cookie ?? "")) return void response.writeHead(403).end();
        return this.#sendSigned(request, response, file, { name: "store-signed.bin", signature: url.searchParams.get("signature") });
      }
      if (url.pathname === "/app/store-signed-page") {
        response.writeHead(200, { "Content-Type": "text/html" });
        const signature = this.expired ? "fresh" : "first";
        const store = /store=(\w+)/.exec(request.headers.cookie ?? "")?.[1] ?? "none";
        return void response.end(`<!doctype html><title>${store}</title><a id="signed" href="/app/store-signed?signature=${signature}">signed</a>`);
      }
      if (url.pathname === "/app/of-store") {
        const store = /store=(\w+)/.exec(request.headers.cookie ?? "")?.[1];
        if (!store) return void response.writeHead(403).end();
        return sendRange(request, response, file, { name: `of-${store}.bin`, rate: 40 * MIB });
      }
      if (url.pathname === "/app/link") {
        response.writeHead(200, { "Content-Type": "text/html" });
        return void response.end(`<!doctype html><title>Link</title><a id="link" href="${url.searchParams.get("to")}">the file</a>`);
      }
      if (url.pathname === "/app/burst") {
        response.writeHead(200, { "Content-Type": "text/html" });
        return void response.end(burstPage(Number(url.searchParams.get("count")), url.searchParams.get("of")));
      }
      const [, of, name] = /^\/app\/(small|tiny)\/(.*)$/.exec(url.pathname) ?? [];
      if (of) {
        // So late that Chromium can pause it; the page's one link never ends in the browser, however slow it is.
        const delay = isBrowser ? (name === "small.bin" ? 120_000 : 1_000) : 0;
        return sendLate(request, response, { name, size: of === "small" ? SMALL : TINY, delay });
      }
      if (url.pathname === "/app/post") {
        if (request.method !== "POST") return void response.writeHead(405).end();
        return sendWhole(response, file, "posted.bin");
      }
      if (url.pathname === "/app/signed") {
        // A signed link: the signature expires.
        const valid = url.searchParams.get("signature") === (this.expired ? "fresh" : "first");
        if (!valid) return void response.writeHead(403).end();
        return this.#sendSigned(request, response, file, { name: "signed.bin", signature: url.searchParams.get("signature") });
      }
      if (url.pathname === "/app/signed-page") {
        response.writeHead(200, { "Content-Type": "text/html" });
        const signature = this.expired ? "fresh" : "first";
        return void response.end(`<!doctype html><title>Signed</title><a id="signed" href="/app/signed?signature=${signature}">signed</a>`);
      }
      response.writeHead(404).end();
    });
    await new Promise((resolve) => this.#application.listen(0, "127.0.0.1", resolve));
    return this.#application.address().port;
  }

  /** Answers the first signature slowly, so that it expires under way, and breaks off there. */
  #sendSigned(request, response, file, { name, signature }) {
    const isFirst = signature === "first";
    sendRange(request, response, file, { name, rate: (isFirst ? 4 : 40) * MIB, cut: () => isFirst && this.expired });
  }

  /** Lets `/app/held` go on to its end. */
  release() {
    this.#isReleased = true;
  }

  async stop() {
    this.#application.closeAllConnections();
    this.#application.close();
    const ended = new Promise((resolve) => this.#nginx.once("exit", resolve));
    this.#nginx.kill("SIGTERM");
    await ended;
  }
}

function sendWhole(response, file, name) {
  response.writeHead(200, {
    "Content-Type": TYPE, "Content-Length": SIZE, "Content-Disposition": `attachment; filename="${name}"`,
  });
  createReadStream(file).pipe(response);
}

/**
 * Answers a range of the file's first `size` bytes at `rate` bytes a second, a thousandth of that while `isHeld` says so, and breaks off
 * once `cut` says so.
 */
function sendRange(request, response, file, { name, rate, size = SIZE, cut = () => false, isHeld = () => false }) {
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const start = match ? Number(match[1]) : 0;
  const end = match?.[2] ? Math.min(Number(match[2]), size - 1) : size - 1;
  response.writeHead(match ? 206 : 200, {
    "Content-Type": TYPE, "Content-Length": end - start + 1, ETag: `"${name}-${size}"`, "Accept-Ranges": "bytes",
    "Content-Disposition": `attachment; filename="${name}"`,
    ...(match ? { "Content-Range": `bytes ${start}-${end}/${size}` } : {}),
  });
  const stream = createReadStream(file, { start, end, highWaterMark: Math.round(rate / 20) });
  const timer = setInterval(() => {
    if (cut()) return response.destroy();
    const data = stream.read(Math.min(Math.round(rate / 20 / (isHeld() ? 1_000 : 1)), stream.readableLength));
    if (data) response.write(data);
  }, 50);
  stream.on("end", () => response.end());
  response.on("close", () => {
    clearInterval(timer);
    stream.destroy();
  });
}

/** Answers with a file of `size` bytes, or a range of it; all but its beginning comes `delay` milliseconds later. */
function sendLate(request, response, { name, size, delay }) {
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const start = match ? Number(match[1]) : 0;
  const end = match?.[2] ? Math.min(Number(match[2]), size - 1) : size - 1;
  const body = Buffer.alloc(end - start + 1);
  response.writeHead(match ? 206 : 200, {
    "Content-Type": TYPE, "Content-Length": body.length, ETag: `"${size}"`, "Accept-Ranges": "bytes",
    "Content-Disposition": `attachment; filename="${name}"`,
    ...(match ? { "Content-Range": `bytes ${start}-${end}/${size}` } : {}),
  });
  // Enough that the browser need not await more to guess the file's type.
  const begun = Math.min(2_048, body.length / 2);
  response.write(body.subarray(0, begun));
  const timer = setTimeout(() => response.end(body.subarray(begun)), delay);
  response.on("close", () => clearTimeout(timer));
}

/** A page that downloads `count` files below `/app/OF/`. */
function burstPage(count, of) {
  return `<!doctype html><title>Many</title><script>
for (let i = 0; i < ${count}; i += 1) {
  const frame = document.createElement("iframe");
  frame.hidden = true;
  frame.src = "/app/${of}/${of}-" + i + ".bin";
  document.documentElement.append(frame);
}
</script>`;
}

async function startNginx(folder, root, application) {
  const dir = path.join(folder, "nginx");
  await mkdir(dir, { recursive: true });
  // {SHA} of "secret".
  await writeFile(path.join(dir, "users"), `anna:{SHA}${createHash("sha1").update("secret").digest("base64")}\n`);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${dir}/${name};`).join(" ");
  const config = (port) => `
daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/error.log;
${process.getuid() === 0 ? "user root;" : ""}
events { }
http {
  ${temporary}
  access_log ${dir}/access.log; sendfile on; default_type ${TYPE};
  types { text/html html; }
  # The agent repeats none of the Sec-Fetch fields.
  map $http_sec_fetch_dest $rate_of_plain { "" 40m; default 1m; }
  server {
    listen 127.0.0.1:${port}; root ${root};
    # Slow enough that a download lasts longer than the extension needs to see it.
    limit_rate 40m;
    location = /index.html { add_header Set-Cookie "session=abc; HttpOnly; Path=/"; }
    # Slow in the browser, which cannot complete it before the extension has seen it.
    location = /plain.bin { limit_rate $rate_of_plain; try_files /large.bin =404; }
    location = /guarded.bin { if ($http_cookie !~ "session=abc") { return 403; } try_files /large.bin =404; }
    location = /no-ranges.bin { max_ranges 0; try_files /large.bin =404; }
    location = /slow.bin { limit_rate 8m; try_files /large.bin =404; }
    location = /basic.bin { auth_basic "test"; auth_basic_user_file ${dir}/users; try_files /large.bin =404; }
    location = /evil { add_header Content-Disposition "attachment; filename=\\"../../.bashrc\\""; try_files /large.bin =404; }
    location /app/ { proxy_pass http://127.0.0.1:${application}; proxy_buffering off; }
    location / { try_files $uri /large.bin; }
  }
}
`;
  for (let tries = 0; tries < 5; tries += 1) {
    const port = await freePort();
    await writeFile(path.join(dir, "nginx.conf"), config(port));
    await rm(path.join(dir, "pid"), { force: true });
    const nginx = spawn("nginx", ["-p", dir, "-c", path.join(dir, "nginx.conf")], {
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` }, stdio: "ignore",
    });
    // Written once it listens; what answers on the port before may be another server.
    while (nginx.exitCode === null && !existsSync(path.join(dir, "pid"))) await new Promise((resolve) => setTimeout(resolve, 20));
    if (nginx.exitCode === null) return { process: nginx, url: `http://127.0.0.1:${port}` };
  }
  throw new Error(`nginx does not start: ${dir}/error.log`);
}

const STORE_PAGE = `<!doctype html><title>Store</title><a id="to-signed" href="/app/store-signed-page">signed</a> <a id="of-store" href="/app/of-store">the file of this store</a>`;

const PAGE = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Data sets</title>
<h1>Data sets</h1>
<ul>
<li><a id="plain" href="/plain.bin">plain</a>
<li><a id="private-link" href="/private-link.bin">for private windows</a>
<li><a id="guarded" href="/guarded.bin">guarded by a cookie</a>
<li><a id="once" href="/app/once">works once</a>
<li><form method="post" action="/app/post"><button id="post">result of a POST</button></form>
<li><a id="no-ranges" href="/no-ranges.bin">without ranges</a>
<li><a id="other-size" href="/app/other-size">another size for the agent</a>
<li><a id="one-connection" href="/app/one-connection">one connection</a>
<li><a id="login-page" href="/app/login-page">a page for the agent</a>
<li><a id="small" href="/app/small/small.bin">small</a>
<li><a id="slow" href="/slow.bin">slow</a>
<li><a id="held" href="/app/held">held back</a>
<li><a id="basic" href="/basic.bin">behind a password</a>
<li><a id="blank" href="/blank.bin" target="_blank">in a new tab</a>
<li><a id="named" href="/named.bin" download="given name.bin">with a name</a>
<li><a id="evil" href="/evil">a name with folders</a>
<li><a id="blob" download="blob.bin">a blob</a>
<li><a id="data" download="data.bin" href="data:application/octet-stream,abc">data</a>
</ul>
<script>
document.getElementById("blob").href = URL.createObjectURL(new Blob([new Uint8Array(70 << 20)]));
</script>
`;
