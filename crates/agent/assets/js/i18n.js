// Texts in the reader's language.

import en from "./strings/en.js";
import ja from "./strings/ja.js";

export const LANGUAGES = { en, ja };
const STORED = "longhaul.language";
let current = choose();

function choose() {
  const stored = localStorage.getItem(STORED);
  if (stored in LANGUAGES) return stored;
  const wanted = navigator.languages ?? [navigator.language];
  return wanted.map((tag) => tag.slice(0, 2).toLowerCase()).find((tag) => tag in LANGUAGES) ?? "en";
}

/** The reader's variant of the language, by which numbers and dates are written. */
export const locale = () => (navigator.languages ?? []).find((tag) => tag.slice(0, 2).toLowerCase() === current) ?? current;
export const language = () => current;

/** Returns the text of a key, with `{name}` replaced; English where the language lacks it. */
export function t(key, values = {}) {
  const text = LANGUAGES[current][key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export const has = (key) => key in en;

/** Sets the language and keeps it for the next visit. */
export function setLanguage(language) {
  current = language;
  localStorage.setItem(STORED, language);
  translatePage();
}

/** Puts the texts into the elements that name their key. */
export function translatePage() {
  document.documentElement.lang = current;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.dataset.tLabel));
  }
}
