import assert from "node:assert/strict";
import test from "node:test";

import { BurstGuard } from "../../src/burst_guard";

function admitMany(guard: BurstGuard, page: string, count: number, now: number): Record<string, number> {
  const counts: Record<string, number> = { take: 0, ask: 0, leave: 0 };
  for (let i = 0; i < count; i += 1) {
    const admission = guard.admit(page, now + i);
    counts[admission] = (counts[admission] ?? 0) + 1;
  }
  return counts;
}

test("page that starts 10,000 downloads is asked about once", () => {
  const counts = admitMany(new BurstGuard(), "https://a.org", 10_000, 0);
  assert.deepEqual(counts, { take: 30, ask: 1, leave: 9_969 });
});

test("allowed page hands over all, denied page none for the rest of the session", () => {
  const guard = new BurstGuard();
  admitMany(guard, "https://a.org", 40, 0);
  guard.answer("https://a.org", true);
  assert.equal(guard.admit("https://a.org", 50), "take");
  admitMany(guard, "https://b.org", 40, 0);
  guard.answer("https://b.org", false);
  assert.equal(guard.admit("https://b.org", 10_000_000), "leave");
});

test("pages are counted apart, and anew after five minutes", () => {
  const guard = new BurstGuard();
  admitMany(guard, "https://a.org", 31, 0);
  assert.equal(guard.admit("https://b.org", 40), "take");
  assert.equal(guard.admit("https://a.org", 301_000), "take");
});
