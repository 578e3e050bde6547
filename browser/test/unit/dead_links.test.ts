import assert from "node:assert/strict";
import test from "node:test";

import { DeadLinks, isReplacement, type Awaited, type Candidate } from "../../src/dead_links";
import type { Transfer } from "../../src/messages";
import { addStorage } from "./storage";

const AWAITED: Awaited = {
  transfer: 1, name: "set.tar", size: 500, hosts: ["data.example", "cdn.example"], store: "firefox-container-2", at: 0,
};

function replaces(change: Partial<Candidate> = {}, awaited: Partial<Awaited> = {}, now = 1_000): boolean {
  const candidate: Candidate = {
    url: "https://cdn.example/other?signature=2", page: "https://data.example/page", cookieStore: "firefox-container-2",
    method: "GET", size: 500, mediaType: "", name: "other.tar", privateWindow: false, ...change,
  };
  return isReplacement({ ...AWAITED, ...awaited }, candidate, now);
}

test("download of the size, the site and the store continues the transfer", () => {
  assert.ok(replaces());
  assert.ok(replaces({ page: "" }), "the link's own host is enough");
  assert.ok(replaces({ url: "https://mirror.example/set.tar" }), "and so is the page's");
});

test("another size, store or site does not", () => {
  assert.ok(!replaces({ size: 501 }));
  assert.ok(!replaces({ cookieStore: "firefox-default" }));
  assert.ok(!replaces({ cookieStore: undefined }));
  assert.ok(!replaces({ url: "https://elsewhere.example/set.tar", page: "https://elsewhere.example/" }));
  assert.ok(!replaces({ url: "https://elsewhere.example/set.tar", page: "" }));
});

test("name decides where a size is not known", () => {
  assert.ok(!replaces({ size: null }));
  assert.ok(replaces({ size: null, name: "set.tar" }));
  assert.ok(replaces({ name: "set.tar" }, { size: null }));
});

test("transfer whose store is not known takes a download of any, and none after a quarter of an hour", () => {
  assert.ok(replaces({ cookieStore: "firefox-default" }, { store: undefined }));
  assert.ok(!replaces({}, {}, 16 * 60_000));
});

test("stores of transfers that begin at once are all remembered, those of private windows for the session only", async () => {
  const storage = addStorage();
  const links = new DeadLinks();
  const remember = (id: number, store: string) => links.remember({ id, name: `f${id}` } as Transfer, store);
  await Promise.all([remember(1, "a"), remember(2, "firefox-private"), remember(3, "b"), remember(4, "1")]);
  const kept = (area: Record<string, unknown>) => (area["stores"] as { transfer: number }[]).map((one) => one.transfer);
  assert.deepEqual(kept(storage.local), [1, 3]);
  assert.deepEqual(kept(storage.session), [2, 4]);
  await remember(1, "firefox-private");
  assert.deepEqual(kept(storage.local), [3]);
  assert.deepEqual(kept(storage.session), [2, 4, 1]);
});
