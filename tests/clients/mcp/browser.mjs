// Drives Chromium, as a person who is told what to do. Each line of standard input is a script with its arguments in
// JSON; a line with what it returns, or why it failed, is the answer. The arguments are the path of Chromium, rules for
// names (--host-resolver-rules), and the keys of certificates that it trusts (base64 of the SHA-256 of each).
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, rules, keys = ""] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: [
    "--no-sandbox", "--disable-background-networking", `--host-resolver-rules=${rules}`,
    `--ignore-certificate-errors-spki-list=${keys}`,
  ],
});
// The tests' authorization server has a certificate of its own making, which no browser knows.
const context = await browser.newContext({ ignoreHTTPSErrors: true });
const soon = 360_000; // milliseconds, for a machine that is busy
context.setDefaultTimeout(soon);
const late = () => new Promise((_, reject) => setTimeout(reject, soon, "it does not end").unref());
// What Chromium says if a page reloads itself while it is looked at, or while it is told to load another.
const reloaded = new RegExp([
  "Execution context was destroyed", "Not attached to an active page", "interrupted by another navigation",
  "page\\.(goto|reload): net::ERR_ABORTED",
].join("|"));
// steady runs look, and runs it again if the page reloads meanwhile.
const steady = async (look) => {
  for (;;) {
    try {
      return await look();
    } catch (e) {
      if (!reloaded.test(e.message)) throw e;
    }
  }
};
// What only looks is steady on every page.
const newPage = context.newPage.bind(context);
context.newPage = async () => {
  const page = await newPage();
  for (const name of ["goto", "reload", "innerText", "innerHTML", "getAttribute", "waitForSelector", "waitForFunction"]) {
    const once = page[name].bind(page);
    page[name] = (...args) => steady(() => once(...args));
  }
  return page;
};
const page = await context.newPage();
const Script = Object.getPrototypeOf(async () => {}).constructor;
const run = (script, args) => new Script("page", "context", "args", "steady", script)(page, context, args, steady);
for await (const line of createInterface({ input: process.stdin })) {
  const { script, args } = JSON.parse(line);
  let answer;
  try {
    const value = await Promise.race([run(script, args), late()]);
    answer = { value: value ?? null };
  } catch (e) {
    answer = { error: String(e) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
