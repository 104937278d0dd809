// Signs in to the provider of provider.mjs with Chromium, consents, and says what is on the page on which it ends. The
// arguments are the address to open, and the path of Chromium.
import { chromium } from "playwright-core";

const [address, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
});
const page = await browser.newPage({ ignoreHTTPSErrors: true });
await page.goto(address);
await page.fill("input[name=login]", "alice");
await page.fill("input[name=password]", "any");
await page.click("button[type=submit]");
await page.waitForSelector("text=Continue");
await page.click("button[type=submit]");
await page.waitForURL("http://127.0.0.1:*/callback**");
console.log(JSON.stringify({ url: page.url().replace(/\?.*/, ""), text: await page.textContent("body") }));
await browser.close();
