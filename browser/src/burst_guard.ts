// Bounds how many downloads a page can hand over: a page may start thousands.

/** Downloads of one page that are taken over without a question. */
const FREE = 30;

/** The time over which they are counted, milliseconds. */
const WINDOW = 300_000;

/** Pages that are remembered. */
const MAX_PAGES = 500;

export type Admission = "take" | "ask" | "leave";

interface Page {
  begun: number;
  taken: number;
  answer: "none" | "asked" | "allowed" | "denied";
}

export class BurstGuard {
  private readonly pages = new Map<string, Page>();

  /** Admits a download that `page` (an origin) starts at `now`, milliseconds. `ask` comes once a page; until the answer the browser keeps the others. */
  admit(page: string, now: number): Admission {
    const known = this.pages.get(page);
    const fresh = !known || (now - known.begun > WINDOW && known.answer !== "denied");
    const entry: Page = fresh ? { begun: now, taken: 0, answer: known?.answer === "allowed" ? "allowed" : "none" } : known;
    this.remember(page, entry);
    if (entry.answer === "allowed" || entry.taken < FREE) {
      entry.taken += 1;
      return "take";
    }
    if (entry.answer !== "none") return "leave";
    entry.answer = "asked";
    return "ask";
  }

  /** Records the user's answer for `page`. */
  answer(page: string, allowed: boolean): void {
    const entry = this.pages.get(page);
    if (entry) entry.answer = allowed ? "allowed" : "denied";
  }

  private remember(page: string, entry: Page): void {
    this.pages.delete(page);
    this.pages.set(page, entry);
    const oldest = this.pages.keys().next();
    if (this.pages.size > MAX_PAGES && !oldest.done) this.pages.delete(oldest.value);
  }
}
