// The badge and the notifications.

import { api, limitOf, text } from "./browser_api";
import { HostError, type Transfer } from "./messages";
import { loadSettings } from "./settings";

const ICON = "icons/128.png";
const INSTALL_HINT = "no-host";

export class Notices {
  private readonly states = new Map<number, Transfer["state"]>();
  /** Whether the agent reports its transfers: the badge shows none that may have ended meanwhile. */
  private isConnected = true;

  /** Updates the badge, and notifies of an end or of a dead link. */
  async changed(transfer: Transfer): Promise<void> {
    const before = this.states.get(transfer.id);
    this.states.set(transfer.id, transfer.state);
    this.badge();
    if (before === transfer.state || !(await loadSettings()).notify) return;
    // A transfer that had ended before this session is no news.
    if (before === undefined && transfer.state !== "waiting-link") return;
    if (transfer.state === "done") {
      await this.show(`done:${transfer.id}`, text("noticeDone", transfer.name), limitOf(transfer));
    } else if (transfer.state === "failed") {
      await this.show(`failed:${transfer.id}`, text("noticeFailed", transfer.name), transfer.error?.message ?? "");
    } else if (transfer.state === "waiting-link") {
      await this.show(`link:${transfer.id}`, text("noticeLink", transfer.name), text("noticeLinkBody"));
    }
  }

  removed(id: number): void {
    this.states.delete(id);
    this.badge();
  }

  connected(isConnected: boolean): void {
    this.isConnected = isConnected;
    this.badge();
  }

  /** Notifies that the agent could not be given a download. */
  async failed(error: unknown, name = ""): Promise<void> {
    const missing = error instanceof HostError && error.code === "no-host";
    const message = error instanceof Error ? error.message : String(error);
    await api.storage.session.set({ problem: missing ? INSTALL_HINT : message });
    await this.show(
      missing ? "no-host" : `problem:${Date.now()}`,
      missing ? text("noticeNoHost") : text("noticeNotTaken", name),
      missing ? text("noticeNoHostBody") : message,
    );
  }

  /** Asks whether a page that starts many downloads may hand them over. */
  async askAboutBurst(origin: string): Promise<void> {
    await this.show(`burst:${origin}`, text("noticeBurst", origin), text("noticeBurstBody"));
  }

  private badge(): void {
    const states = this.isConnected ? [...this.states.values()] : [];
    const dead = states.includes("waiting-link");
    const active = states.filter((state) => state === "running").length;
    void api.action.setBadgeText({ text: dead ? "!" : active > 0 ? String(active) : "" });
    void api.action.setBadgeBackgroundColor({ color: dead ? "#b3261e" : "#1f6f8b" });
  }

  private async show(id: string, title: string, message: string): Promise<void> {
    await api.notifications.create(id, { type: "basic", iconUrl: api.runtime.getURL(ICON), title, message });
  }
}
