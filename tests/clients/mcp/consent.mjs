// Signs in to the provider of provider.mjs with Chromium, consents, and says what is on the page on which it ends. The
// arguments are the address to open, the path of Chromium, and "NAME ADDRESS" of the provider if it is not at 127.0.0.1.
import { chromium } from "playwright-core";

const [address, executablePath, elsewhere] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-background-networking", `--host-resolver-rules=${elsewhere ? `MAP ${elsewhere}, ` : ""}MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`],
});
const page = await browser.newPage({ ignoreHTTPSErrors: true });
page.setDefaultTimeout(360_000); // milliseconds, for a machine that is busy
await page.goto(address);
await page.fill("input[name=login]", "alice");
await page.fill("input[name=password]", "any");
await page.click("button[type=submit]");
await page.waitForSelector("text=Continue");
await page.click("button[type=submit]");
await page.waitForURL("http://127.0.0.1:*/callback**");
console.log(JSON.stringify({ url: page.url().replace(/\?.*/, ""), text: await page.textContent("body") }));
await browser.close();
