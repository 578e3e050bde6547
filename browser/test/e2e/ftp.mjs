// A vsftpd for anonymous users, which serves the site's file.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";

import { freePort } from "../browsers/free_port.mjs";

// As a package it excludes proftpd, so scripts/setup.sh unpacks it.
const PROGRAMS = ["/opt/longhaul-test/vsftpd", "/usr/sbin/vsftpd"];

export class Ftp {
  #root;
  #server;

  /** Serves `files/of-ftp.bin`; null where vsftpd is not installed, or without root. */
  static async start(folder) {
    const program = PROGRAMS.find((one) => existsSync(one));
    if (!program || process.getuid() !== 0) {
      if (process.env.CI === "true") throw new Error("vsftpd or root is missing: scripts/setup.sh test");
      return null;
    }
    // Its users are other than this one, and must not be able to write to the root.
    const root = await mkdtemp(path.join(os.tmpdir(), "longhaul-ftp-"));
    await chmod(root, 0o755);
    for (const name of ["files", "empty"]) await mkdir(path.join(root, name), { mode: 0o755 });
    await copyFile(path.join(folder, "site/large.bin"), path.join(root, "files/of-ftp.bin"));
    const port = await freePort();
    const config = path.join(root, "vsftpd.conf");
    await writeFile(config, [
      "listen=YES", "listen_address=127.0.0.1", `listen_port=${port}`, "background=NO", "seccomp_sandbox=NO", "anonymous_enable=YES",
      "local_enable=NO", "ftp_username=daemon", `anon_root=${root}`, `secure_chroot_dir=${root}/empty`, "allow_writeable_chroot=YES",
      "connect_from_port_20=NO", "",
    ].join("\n"));
    const ftp = new Ftp();
    ftp.url = `ftp://127.0.0.1:${port}`;
    ftp.#root = root;
    ftp.#server = spawn(program, [config], { stdio: "ignore" });
    for (let tries = 0; !(await listens(port)); tries += 1) {
      if (tries > 50) throw new Error(`vsftpd does not listen on port ${port}: ${config}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return ftp;
  }

  async stop() {
    const ended = new Promise((resolve) => this.#server.once("exit", resolve));
    this.#server.kill("SIGKILL");
    await ended;
    await rm(this.#root, { recursive: true });
  }
}

function listens(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false)).once("connect", () => socket.destroy());
  });
}
