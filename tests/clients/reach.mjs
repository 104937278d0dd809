// What Node and its libraries see of the network, and after how many milliseconds: node reach.mjs NODE_MODULES HOW TARGET [OPTION]
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import dns from "node:dns/promises";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import tls from "node:tls";

const [modules, how, target, option] = process.argv.slice(2);
const resolveIn = createRequire(pathToFileURL(modules + "/"));
let began = performance.now();

// use loads a library, and has the clock start anew when it is there.
const use = async (name) => {
	const library = await import(pathToFileURL(resolveIn.resolve(name)).href);
	began = performance.now();
	return library.default;
};

const host = (t) => t.slice(0, t.lastIndexOf(":"));
const port = (t) => Number(t.slice(t.lastIndexOf(":") + 1));

const body = (res) =>
	new Promise((resolve, reject) => {
		let text = "";
		res.on("data", (d) => (text += d));
		res.on("end", () => resolve(`${res.statusCode} ${text}`));
		res.on("error", reject);
	});

const get = (library, url, options = {}) =>
	new Promise((resolve, reject) => {
		library.get(url, options, (res) => body(res).then(resolve, reject)).on("error", reject);
	});

const hello = (socket) =>
	new Promise((resolve, reject) => {
		socket.on("error", reject);
		socket.on("data", (d) => {
			resolve(d.toString().trim());
			socket.destroy();
		});
		socket.on("close", () => reject(new Error("closed")));
		socket.write("hello\n");
	});

// remembered asks again, twice at most, when Node has nothing left to wait for: undici 6 forgets a request whose connection is reset
// before it is written.
const remembered = async (ask) => {
	for (let attempts = 3; ; attempts--) {
		const idle = new Promise((resolve) => process.once("beforeExit", () => resolve()));
		const r = await Promise.race([ask(), idle]);
		if (r || attempts === 1) return r;
	}
};

const ways = {
	fetch: async () => {
		const r = await fetch(target);
		return `${r.status} ${await r.text()}`;
	},
	"node-fetch": async () => {
		const r = await (await use("node-fetch"))(target);
		return `${r.status} ${await r.text()}`;
	},
	axios: async () => {
		const r = await (await use("axios")).get(target, { validateStatus: () => true });
		return `${r.status} ${r.data}`;
	},
	undici: async () => {
		const undici = await use("undici");
		const named = option && { servername: option };
		const uri = process.env.HTTPS_PROXY;
		const ask = () => undici.request(target, { dispatcher: uri ? new undici.ProxyAgent({ uri, requestTls: named }) : new undici.Agent({ connect: named }) });
		const r = await remembered(ask);
		return `${r.statusCode} ${await r.body.text()}`;
	},
	http: () => get(http, target, option ? { headers: { Host: option } } : {}),
	https: () => get(https, target),
	net: () => hello(net.connect(port(target), host(target))),
	tls: () => hello(tls.connect({ host: host(target), port: port(target), servername: option || host(target), rejectUnauthorized: !option })),
	ws: async () => {
		const WebSocket = await use("ws");
		return new Promise((resolve, reject) => {
			const ws = new WebSocket(target);
			ws.on("error", reject);
			ws.on("open", () => ws.send("hello"));
			ws.on("message", (m) => {
				resolve(m.toString());
				ws.terminate();
			});
		});
	},
	lookup: async () => (await dns.lookup(target)).address,
	resolve4: async () => (await dns.resolve4(target)).join(" "),
	// Asks the resolver that is given, and not the one of resolv.conf(5).
	resolver: async () => {
		const r = new dns.Resolver();
		r.setServers([option]);
		return (await r.resolve4(target)).join(" ");
	},
	// Two requests on one connection, of which the second names another host.
	twice: async () => {
		const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
		const first = await get(http, target, { agent });
		return `${first} / ${await get(http, target, { agent, headers: { Host: option } })}`;
	},
};

let said;
try {
	said = await ways[how]();
} catch (e) {
	const cause = e.cause ?? e.errors?.[0] ?? e;
	said = `error: ${cause.code ?? e.code} ${cause.message ?? e.message}`;
}
console.log(`${said} (${Math.ceil(performance.now() - began)} ms)`);
process.exit();
