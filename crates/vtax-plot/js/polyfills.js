// Functions of browsers that Vega requires and QuickJS lacks.

// Vega-Lite uses it to copy specifications, which are plain data without cycles.
globalThis.structuredClone ??= function clone(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(clone);
  if (value instanceof Date) return new Date(value);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, clone(inner)]));
};

// Vega uses timers only to wait for images and files, and charts have none.
for (const name of ['setTimeout', 'setInterval']) globalThis[name] ??= () => 0;
for (const name of ['clearTimeout', 'clearInterval']) globalThis[name] ??= () => undefined;
globalThis.console ??= {log() {}, info() {}, warn() {}, error() {}};
