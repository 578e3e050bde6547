import assert from "node:assert/strict";
import test from "node:test";

import { duration, rate, size } from "../../src/format";

test("sizes are IEC, rates are SI", () => {
  assert.equal(size(1023), "1023 B");
  assert.equal(size(1536), "1.5 KiB");
  assert.equal(size(2 ** 40), "1.0 TiB");
  assert.equal(rate(9_870_000_000), "9.9 Gbit/s");
  assert.equal(rate(0), "0 bit/s");
});

test("times have hours only where there are some", () => {
  assert.equal(duration(59.6), "1:00");
  assert.equal(duration(3_661), "1:01:01");
  assert.equal(duration(-1), "0:00");
});
