// What Vega expects of a browser and QuickJS doesn't have.

// Vega-Lite copies specifications with it: plain data without cycles.
globalThis.structuredClone ??= function clone(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(clone);
  if (value instanceof Date) return new Date(value);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, clone(inner)]));
};

// Timers only wait for pictures and files to load, and there are none.
for (const name of ['setTimeout', 'setInterval']) globalThis[name] ??= () => 0;
for (const name of ['clearTimeout', 'clearInterval']) globalThis[name] ??= () => undefined;
globalThis.console ??= {log() {}, info() {}, warn() {}, error() {}};
