import assert from "node:assert/strict";
import test from "node:test";

import { loadSettings } from "../../src/settings";
import { addStorage } from "./storage";

test("settings are read again after a read that failed, and not after one that succeeded", async () => {
  const storage = addStorage();
  storage.local["settings"] = { minimumMiB: 7 };
  storage.fail = true;
  await assert.rejects(loadSettings());
  storage.fail = false;
  assert.equal((await loadSettings()).minimumMiB, 7);
  storage.local["settings"] = { minimumMiB: 8 };
  assert.equal((await loadSettings()).minimumMiB, 7);
});
