// The agent under test: started, killed and started again in directories of its own.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export class Agent {
  #binary;
  #process = null;
  #environment;
  #tokenFile;
  directory = mkdtempSync(join(tmpdir(), "longhaul-dashboard-"));
  downloads = join(this.directory, "downloads");
  /** The URL that opens the dashboard. */
  login = null;

  constructor(binary) {
    this.#binary = binary;
    for (const name of ["downloads", "run", "state", "config", "cache"]) mkdirSync(join(this.directory, name), { mode: 0o700 });
    const at = (name) => join(this.directory, name);
    this.#tokenFile = join(this.directory, "state", "longhaul", "agent", "agent.token");
    this.#environment = {
      ...process.env, HOME: this.directory, XDG_RUNTIME_DIR: at("run"), XDG_STATE_HOME: at("state"), XDG_CONFIG_HOME: at("config"),
      XDG_CACHE_HOME: at("cache"), XDG_DOWNLOAD_DIR: at("downloads"), NO_PROXY: "*",
    };
  }

  /** Starts it, at the first time on a free port, then on the same. */
  async start(extra = []) {
    const listen = this.login ? new URL(this.login).host : "127.0.0.1:0";
    const child = spawn(this.#binary, ["agent", "--foreground", "--listen", listen, ...extra],
      { env: this.#environment, stdio: ["ignore", "pipe", "pipe"] });
    this.#process = child;
    const log = [];
    const seen = new Promise((found, failed) => {
      const look = (line) => {
        log.push(line);
        const address = /http:\/\/127\.0\.0\.1:\d+/.exec(line);
        if (address) found(address[0]);
      };
      createInterface(child.stdout).on("line", look);
      createInterface(child.stderr).on("line", look);
      child.on("exit", (code) => failed(new Error(`the agent ended with ${code}:\n${log.join("\n")}`)));
      setTimeout(() => failed(new Error(`the agent names no address:\n${log.join("\n")}`)), 20_000).unref();
    });
    seen.catch(() => {});
    const address = await seen;
    // What `longhaul queue open` opens.
    this.login = `${address}/login?token=${readFileSync(this.#tokenFile, "utf8").trim()}`;
    return this;
  }

  get address() {
    return new URL(this.login).origin;
  }

  get token() {
    return new URL(this.login).searchParams.get("token");
  }

  /** Calls its API as a program does. */
  async api(method, path, body) {
    const headers = { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" };
    const answer = await fetch(this.address + path, { method, headers, body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    const isJson = (answer.headers.get("content-type") ?? "").includes("json");
    return isJson ? answer.json() : answer.text();
  }

  /** Sends a signal that does not end it. */
  signal(signal) {
    this.#process.kill(signal);
  }

  /** Ends it as a power failure does, or in order. */
  async end(signal) {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill(signal);
    await ended;
  }
}

/** Starts `longhaul serve` for a directory; returns its URL and how to end it. */
export async function serve(binary, directory) {
  const child = spawn(binary, ["serve", directory, "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "pipe"] });
  const url = await new Promise((found, failed) => {
    const look = (line) => {
      const address = /127\.0\.0\.1:(\d+)/.exec(line);
      if (address) found(`http://${address[0]}`);
    };
    createInterface(child.stdout).on("line", look);
    createInterface(child.stderr).on("line", look);
    child.on("exit", (code) => failed(new Error(`longhaul serve ended with ${code}`)));
  });
  return { url, stop: () => child.kill("SIGTERM") };
}
