// The program under test, with a home of its own.
import { execFile, spawn } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

export class Longhaul {
  constructor(program, home) {
    this.program = program;
    const own = { HOME: home, XDG_RUNTIME_DIR: `${home}/run`, XDG_CONFIG_HOME: `${home}/.config` };
    this.environment = { ...process.env, ...own };
    for (const name of ["XDG_STATE_HOME", "XDG_DATA_HOME"]) delete this.environment[name];
  }

  async run(...args) {
    const { stdout } = await run(this.program, args, { env: this.environment });
    return stdout;
  }

  /** Returns the agent's transfers, the oldest first. */
  async transfers() {
    const lines = (await this.run("queue", "list", "--json")).split("\n").filter(Boolean);
    return lines.map((line) => JSON.parse(line)).sort((a, b) => a.id - b.id);
  }

  /** Waits until a transfer of this name, added since `after`, holds. */
  async until(name, holds, what, timeout = 60_000) {
    const end = Date.now() + timeout;
    for (;;) {
      const transfer = (await this.transfers()).findLast((one) => one.name === name);
      if (transfer && holds(transfer)) return transfer;
      if (Date.now() > end) throw new Error(`${name}: in vain: ${what}; it is ${JSON.stringify(transfer)}`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  startAgent() {
    const agent = spawn(this.program, ["agent", "--foreground"], { env: this.environment, stdio: "ignore", detached: true });
    agent.unref();
    return agent;
  }
}
