// Speaks to MCP endpoints as a user of the TypeScript libraries does, and says what it got, a line of JSON each.
// The argument is a list of runs: {name, library, mode, url, headers, command, args, servers}, where a server is
// {name, prefix}. Each run goes on beside the others.
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HTTP1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import * as types1 from "@modelcontextprotocol/sdk/types.js";
import * as v2 from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";

const libraries = {
  v1: {
    client: (info) => new v1.Client(info),
    http: HTTP1,
    stdio: Stdio1,
    call: (client, params, options) => client.callTool(params, undefined, options),
    on: (client, method, handler) => client.setNotificationHandler({
      "notifications/tools/list_changed": types1.ToolListChangedNotificationSchema,
      "notifications/resources/updated": types1.ResourceUpdatedNotificationSchema,
    }[method], handler),
  },
  v2: {
    client: (info, mode) => new v2.Client(info, {
      versionNegotiation: { mode: mode === "modern" ? { pin: "2026-07-28" } : "legacy" },
    }),
    http: v2.StreamableHTTPClientTransport,
    stdio: Stdio2,
    call: (client, params, options) => client.callTool(params, options),
    on: (client, method, handler) => client.setNotificationHandler(method, handler),
  },
};

// once is a promise and what fulfils it.
function once() {
  const o = {};
  o.promise = new Promise((resolve) => { o.resolve = resolve; });
  return o;
}

// plain takes out what is pfar's own and what only one generation has.
function plain(result) {
  const { _meta, resultType, ttlMs, cacheScope, ...rest } = result;
  return rest;
}

async function failure(promise) {
  try {
    return { result: plain(await promise) };
  } catch (e) {
    return { code: e.code, message: String(e.message) };
  }
}

async function run(r) {
  const library = libraries[r.library];
  const say = (step, value) => console.log(JSON.stringify({ run: r.name, step, value }));
  const client = library.client({ name: "pfar-tests", version: "1" }, r.mode);
  const changed = once();
  const updates = new Map();
  const transport = r.command
    ? new library.stdio({ command: r.command, args: r.args, env: process.env, stderr: "inherit" })
    : new library.http(new URL(r.url), { requestInit: { headers: r.headers } });
  try {
    await client.connect(transport);
  } catch (e) {
    say("refused", { code: e.code ?? null, message: String(e.message), status: e.data?.status ?? null });
    return;
  }
  library.on(client, "notifications/tools/list_changed", () => changed.resolve());
  library.on(client, "notifications/resources/updated", (n) => updates.get(n.params.uri)?.resolve(true));
  say("server", client.getServerVersion().name);
  say("instructions", client.getInstructions());
  say("tools", (await client.listTools()).tools.map((t) => t.name));
  say("prompts", (await client.listPrompts()).prompts.map((p) => p.name));
  say("resources", (await client.listResources()).resources.map((p) => p.uri));
  say("templates", (await client.listResourceTemplates()).resourceTemplates.map((p) => p.uriTemplate));
  for (const server of r.servers) {
    await visit(r, library, client, server, (step, value) => say(`${server.name} ${step}`, value), updates);
  }
  if (r.mode === "modern") {
    await client.listen({ toolsListChanged: true });
  }
  say("ready", true);
  await changed.promise;
  const after = await failure(client.listTools());
  say("changed", after.result ? after.result.tools.map((t) => t.name) : after.code);
  await client.close();
  say("closed", true);
}

// visit uses one server.
async function visit(r, library, client, { name, prefix }, say, updates) {
  const call = (tool, args, options) => library.call(client, { name: prefix + tool, arguments: args }, options);
  say("text", plain(await call("text", { message: "h\u00e9llo \u{1f600}" })));
  say("sum", plain(await call("sum", { a: 1, b: 2.5 })));
  say("media", plain(await call("media", {})));
  const progress = [];
  const label = `${r.name} ${name}`;
  const stepped = call("steps", { steps: 3, label }, { onprogress: (p) => {
    if (progress.push([p.progress, p.total, p.message]) === 3) {
      call("release", { label });
    }
  } });
  say("steps", plain(await stepped));
  say("progress", progress);
  say("fail", plain(await call("fail", {})));
  say("unknown", await failure(call("nothing", {})));
  say("greet", plain(await client.getPrompt({ name: prefix + "greet", arguments: { name: "Ada" } })));
  const complete = async (ref, argument) => (await client.complete({ ref, argument })).completion;
  say("complete", await complete({ type: "ref/prompt", name: prefix + "greet" }, { name: "name", value: "A" }));
  say("complete template", await complete({ type: "ref/resource", uri: `plain://${name}/item/{id}` }, { name: "id", value: "G" }));
  for (const path of ["text", "blob", "item/7"]) {
    say(`read ${path}`, plain(await client.readResource({ uri: `plain://${name}/${path}` })));
  }
  say("missing", (await failure(client.readResource({ uri: "missing://nowhere" }))).code);
  await cancel(r, call, say);
  const updated = once();
  updates.set(`plain://${name}/text`, updated); // which others may cause as well
  if (r.mode === "modern") {
    await client.listen({ resourceSubscriptions: [`plain://${name}/text`] });
  } else {
    await client.subscribeResource({ uri: `plain://${name}/text` });
  }
  await call("touch", {});
  say("updated", await updated.promise);
}

// cancel gives a call up once the server has begun it; the server says when it has heard.
async function cancel(r, call, say) {
  const abort = new AbortController();
  const waits = once();
  const label = `${r.name} ${Math.random()}`;
  const given = failure(call("wait", { label }, { signal: abort.signal, onprogress: () => waits.resolve() }));
  await waits.promise;
  abort.abort("given up");
  say("given up", "result" in (await given));
  const heard = await call("cancelled", { label });
  say("cancelled", heard.content[0].text === label);
}

await Promise.all(JSON.parse(process.argv[2]).map((r) => run(r).catch((e) => {
  console.log(JSON.stringify({ run: r.name, step: "error", value: String(e.stack ?? e) }));
})));
process.exit(0);
