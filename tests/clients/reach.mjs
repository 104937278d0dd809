// An MCP server on stdio whose one tool reaches out with whatever Node and npm offer for it: node reach.mjs MODULES
//
// MODULES is the node_modules with the SDK and the libraries. What is asked for bare runs in a child without the proxy
// variables, from before its libraries are loaded.
import { fork } from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns";
import http from "node:http";
import https from "node:https";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import tls from "node:tls";
import { pathToFileURL } from "node:url";

const modules = process.argv[2];
const require = createRequire(path.join(modules, "..", "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const unreachable = 5000; // milliseconds: nothing here may take so long

// The ways to reach a URL. Each resolves to { status, body }.
const ways = {
  fetch: async (a) => answer(await fetch(a.to)),
  "node-fetch": async (a) => answer(await (await load("node-fetch")).default(a.to)),
  axios: async (a) => {
    const r = await require("axios").get(a.to, { validateStatus: null, responseType: "text" });
    return { status: r.status, body: r.data };
  },
  agent: (a) => undici(a, (u) => new u.Agent()),
  "proxy-agent": (a) =>
    undici(a, (u) => new u.ProxyAgent({ uri: process.env.HTTPS_PROXY, requestTls: a.servername && { servername: a.servername } })),
  http: (a) => request(a, new (a.to.startsWith("https:") ? https : http).Agent()),
  // Two requests, one after the other on one connection: the second may name another host.
  "keep-alive": async (a) => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    try {
      const first = await request({ to: a.to }, agent);
      const second = await request(a, agent);
      return { ...second, body: `${first.status} ${second.reused ? "reused" : "anew"} ${second.body}` };
    } finally {
      agent.destroy();
    }
  },
  ws: (a) =>
    new Promise((resolve, reject) => {
      const s = new (require("ws").WebSocket)(a.to);
      s.on("open", () => s.send(a.send ?? "hello"));
      s.on("message", (data) => {
        resolve({ status: 101, body: String(data) });
        s.close();
      });
      s.on("unexpected-response", async (_, res) => resolve({ status: res.statusCode, body: await text(res) }));
      s.on("error", reject);
    }),
  net: (a) => exchange(net.connect(...hostPort(a.to)), "connect", a),
  tls: (a) => exchange(tls.connect(Number(hostPort(a.to)[0]), hostPort(a.to)[1], { servername: a.servername ?? hostPort(a.to)[1] }), "secureConnect", a),
  lookup: async (a) => ({ body: (await dns.promises.lookup(a.to, { family: 4 })).address }),
  resolve4: async (a) => ({ body: (await dns.promises.resolve4(a.to)).join() }),
  // Asks another resolver than the one of resolv.conf(5).
  resolver: async (a) => {
    const r = new dns.promises.Resolver();
    r.setServers([a.to]);
    return { body: (await r.resolve4(a.send)).join() };
  },
  udp: (a) =>
    new Promise((resolve, reject) => {
      const [port, host] = hostPort(a.to);
      const s = dgram.createSocket(host.includes(":") ? "udp6" : "udp4");
      s.on("error", reject);
      s.on("message", (data) => {
        resolve({ body: `${data.length} octets` });
        s.close();
      });
      s.send(Buffer.from(a.send, "base64"), port, host, (err) => err && reject(err));
    }),
};

async function answer(r) {
  return { status: r.status, body: await r.text() };
}

async function undici(a, dispatcher) {
  const u = require("undici");
  const d = dispatcher(u);
  try {
    return await answer(await u.fetch(a.to, { dispatcher: d }));
  } finally {
    d.destroy().catch(() => {});
  }
}

function request(a, agent) {
  const options = { agent, headers: a.host ? { Host: a.host } : {}, servername: a.servername };
  return new Promise((resolve, reject) => {
    const r = (a.to.startsWith("https:") ? https : http).get(a.to, options, async (res) =>
      resolve({ status: res.statusCode, body: await text(res), reused: r.reusedSocket }),
    );
    r.on("error", reject);
  });
}

async function text(stream) {
  let s = "";
  for await (const part of stream) s += part;
  return s;
}

// exchange sends something as soon as there is a connection, and resolves to what comes back.
function exchange(socket, event, a) {
  return new Promise((resolve, reject) => {
    socket.on(event, () => socket.write(a.send ?? "hello\n"));
    socket.on("data", (data) => {
      resolve({ body: String(data) });
      socket.destroy();
    });
    socket.on("end", () => reject(Object.assign(new Error("the other side ended the connection"), { code: "EOF" })));
    socket.on("error", reject);
  });
}

function hostPort(s) {
  const i = s.lastIndexOf(":");
  return [Number(s.slice(i + 1)), s.slice(0, i).replace(/[[\]]/g, "")];
}

// reach tries, and says what came of it and how many milliseconds it took.
async function reach(a) {
  const began = performance.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error("nothing came"), { code: "TIMEOUT" })), unreachable);
  });
  let result;
  try {
    const { status, body } = await Promise.race([ways[a.via](a), late]);
    result = { status, body };
  } catch (e) {
    const root = e.cause ?? e;
    result = { error: root.code ?? root.name, text: [e.message, root.message].join(": ") };
  }
  clearTimeout(timer);
  return { ...result, ms: Math.round(performance.now() - began) };
}

if (process.send) {
  process.on("message", async ({ id, a }) => process.send({ id, result: await reach(a) }));
} else {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/_proxy$/i.test(name)));
  const child = fork(process.argv[1], [modules], { env });
  const waiting = new Map();
  child.on("message", ({ id, result }) => waiting.get(id)(result));
  let last = 0;
  const bare = (a) =>
    new Promise((resolve) => {
      waiting.set(++last, resolve);
      child.send({ id: last, a });
    });
  const { Server } = await load("@modelcontextprotocol/sdk/server/index.js");
  const { StdioServerTransport } = await load("@modelcontextprotocol/sdk/server/stdio.js");
  const { CallToolRequestSchema, ListToolsRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
  const server = new Server({ name: "reach", version: "1" }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [{ name: "reach", description: "reaches out and says what came of it", inputSchema: { type: "object" } }],
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params: { arguments: a } }) => ({
    content: [{ type: "text", text: JSON.stringify(await (a.bare ? bare(a) : reach(a))) }],
  }));
  server.onclose = () => child.kill();
  process.stdin.on("end", () => child.kill() && process.exit());
  await server.connect(new StdioServerTransport());
}
