// The browser's storage, in memory.

export interface Storage {
  local: Record<string, unknown>;
  session: Record<string, unknown>;
  /** Whether reads fail. */
  fail: boolean;
}

/** Adds an empty storage to the browser's API. */
export function addStorage(): Storage {
  const storage: Storage = { local: {}, session: {}, fail: false };
  const area = (kept: Record<string, unknown>) => ({
    get: async (key: string) => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (storage.fail) throw new Error("the storage cannot be read");
      return { [key]: structuredClone(kept[key]) };
    },
    set: async (values: Record<string, unknown>) => {
      Object.assign(kept, structuredClone(values));
    },
  });
  const api = (globalThis as unknown as { chrome: Record<string, unknown> }).chrome;
  api["storage"] = { local: area(storage.local), session: area(storage.session) };
  return storage;
}
