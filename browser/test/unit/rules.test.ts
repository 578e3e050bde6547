import assert from "node:assert/strict";
import test from "node:test";

import { fileName, isSaved, looksSaved, whyNot, withoutFolder, type Download } from "../../src/rules";
import { DEFAULTS, parseHostRules, parseTypes } from "../../src/settings";

const MIB = 1024 * 1024;

function download(change: Partial<Download> = {}): Download {
  return {
    url: "https://data.example.org/set.tar", method: "GET", size: 100 * MIB, mediaType: "application/x-tar",
    name: "set.tar", privateWindow: false, ...change,
  };
}

test("large file of a GET is taken over", () => {
  assert.equal(whyNot(download(), DEFAULTS), null);
});

test("browser keeps what is small, of unknown size, private, posted, or the page's own bytes", () => {
  assert.equal(whyNot(download({ size: 64 * MIB - 1 }), DEFAULTS), "small");
  assert.equal(whyNot(download({ size: null }), DEFAULTS), "size unknown");
  assert.equal(whyNot(download({ privateWindow: true }), DEFAULTS), "private window");
  assert.equal(whyNot(download({ method: "POST" }), DEFAULTS), "result of POST");
  for (const url of ["blob:https://example.org/1", "data:,x", "file:///etc/passwd"]) {
    assert.equal(whyNot(download({ url }), DEFAULTS), "not a network address");
  }
  assert.equal(whyNot(download(), { ...DEFAULTS, enabled: false }), "disabled");
});

test("host rules cover subdomains and override the size", () => {
  const { rules } = parseHostRules("*.example.org never\nsmall.net always");
  const settings = { ...DEFAULTS, hosts: rules };
  assert.equal(whyNot(download(), settings), "excluded host");
  assert.equal(whyNot(download({ url: "https://example.org/a" }), settings), "excluded host");
  assert.equal(whyNot(download({ url: "https://notexample.org/a" }), settings), null);
  assert.equal(whyNot(download({ url: "https://small.net/a", size: 1 }), settings), null);
});

test("a line that is no rule, names no host, or has no effect is named", () => {
  assert.deepEqual(parseHostRules("\n a.org   never \n Bücher.example always\n[::1] never\n10.0.0.1 never").rules, [
    { host: "a.org", action: "never" }, { host: "xn--bcher-kva.example", action: "always" },
    { host: "[::1]", action: "never" }, { host: "10.0.0.1", action: "never" },
  ]);
  for (const [line, why] of [
    ["b.org sometimes", "form"], ["b.org", "form"], ["b.org never 1", "form"],
    ["https://b.org never", "host"], ["b.org/data never", "host"], ["b.org:443 never", "host"], ["* never", "host"], ["*b.org never", "host"],
    ["www.*.org never", "host"], ["*. never", "host"], ["::1 never", "host"], ["me@b.org never", "host"], ["1.2.3.4.5 never", "host"],
    ["c.org always", "covered"], ["d.c.org always", "covered"], ["*.d.c.org always", "covered"],
  ] as const) {
    assert.deepEqual(parseHostRules(`a.org never\n*.c.org never\n${line}`).bad, { line, why });
  }
});

test("a type that no file can have is named", () => {
  assert.deepEqual(parseTypes(" pdf, .TAR ,image/*,application/x-tar, tar.gz, 7z,").types, ["pdf", ".TAR", "image/*", "application/x-tar", "tar.gz", "7z"]);
  for (const bad of ["*.pdf", "pdf zip", "image/", "*/*", "/", ".", "pdf;zip", "a/b/c", "*"]) assert.equal(parseTypes(`pdf, ${bad}`).bad, bad);
});

test("excluded types are extensions, media types, or kinds of them", () => {
  for (const excludedTypes of [["tar"], [".TAR"], ["application/x-tar"], ["application/*"]]) {
    assert.equal(whyNot(download(), { ...DEFAULTS, excludedTypes }), "excluded type", String(excludedTypes));
  }
  assert.equal(whyNot(download(), { ...DEFAULTS, excludedTypes: ["ar", "image/*", ""] }), null);
});

test("names lose their folders", () => {
  assert.equal(fileName('attachment; filename="../../.bashrc"', "https://a.org/x"), "bashrc");
  assert.equal(fileName("attachment; filename*=UTF-8''..%2F..%2Fa%20b.iso", "https://a.org/x"), "a b.iso");
  assert.equal(fileName("attachment; filename=plain.bin; size=3", "https://a.org/x"), "plain.bin");
  assert.equal(fileName("", "https://a.org/dir/%E5%A4%A7.iso?q=1"), "大.iso");
  assert.equal(fileName("", "https://a.org/%E5%ZZ"), "%E5%ZZ");
  assert.equal(withoutFolder("C:\\Users\\x\\.."), "");
});

test("attachments and types that browsers do not show are saved", () => {
  assert.ok(isSaved("attachment", "text/html"));
  assert.ok(isSaved("", "application/octet-stream"));
  assert.ok(!isSaved("inline", "text/html; charset=utf-8"));
  assert.ok(!isSaved("", "video/mp4"));
  assert.ok(!isSaved("", ""));
});

test("links whose names end like a file's are likely to be saved", () => {
  for (const name of ["set.tar.gz", "image.iso", "a/run7.nc", "x.7z", "x.bin?token=1.html"]) {
    assert.ok(looksSaved(`https://h.example/${name}`), name);
  }
  for (const name of ["", "page", "index.html", "a.php?file=x.iso", "photo.JPG", "v1.2", "paper.pdf", ".", "%zz"]) {
    assert.ok(!looksSaved(`https://h.example/${name}`), name);
  }
});
