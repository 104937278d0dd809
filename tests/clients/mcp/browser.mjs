// Drives Chromium, as persons who are told what to do. Each line of standard input has a number of a person and a script
// with its arguments, in JSON; a line with what it returns, or why it failed, is the answer to that person. No person
// has cookies or pages of another. A line without a script has the person leave. The arguments are the path of
// Chromium, rules for names (--host-resolver-rules), and the keys of certificates that it trusts (base64 of the SHA-256
// of each).
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, rules, keys = ""] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: [
    "--no-sandbox", "--disable-background-networking", `--host-resolver-rules=${rules}`,
    `--ignore-certificate-errors-spki-list=${keys}`,
  ],
});
const soon = 360_000; // milliseconds, for a machine that is busy
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
// enter has a new person open a page. What only looks is steady on all their pages.
const enter = async () => {
  // The tests' authorization server has a certificate of its own making, which no browser knows.
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(soon);
  const newPage = context.newPage.bind(context);
  context.newPage = async () => {
    const page = await newPage();
    for (const name of ["goto", "reload", "innerText", "innerHTML", "getAttribute", "waitForSelector", "waitForFunction"]) {
      const once = page[name].bind(page);
      page[name] = (...args) => steady(() => once(...args));
    }
    return page;
  };
  return { context, page: await context.newPage(), kept: {} };
};
const persons = new Map();
const Script = Object.getPrototypeOf(async () => {}).constructor;
const run = async (person, script, args) => {
  if (!persons.has(person)) persons.set(person, enter());
  const { context, page, kept } = await persons.get(person);
  if (!script) {
    persons.delete(person);
    return context.close();
  }
  return new Script("page", "context", "args", "steady", "kept", script)(page, context, args, steady, kept);
};
const answer = async ({ person, script, args }) => {
  let said;
  try {
    const value = await Promise.race([run(person, script, args), late()]);
    said = { value: value ?? null };
  } catch (e) {
    said = { error: String(e) };
  }
  process.stdout.write(JSON.stringify({ person, ...said }) + "\n");
};
for await (const line of createInterface({ input: process.stdin })) answer(JSON.parse(line));
await browser.close();
