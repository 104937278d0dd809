// An OAuth authorization server for the tests: oidc-provider on loopback over TLS, with its own development pages for
// signing in and for consent. The arguments are files with its key and certificate, and how long an access token lives,
// in seconds, and if given how long a device code does. A fifth one in JSON has it be elsewhere: the port on all addresses,
// the host of its issuer, and the resource that tokens are for, and another one; clients register themselves then. It says where it is, and
// then each grant that it makes, and its tokens, a line of JSON each. At the address of its API, which
// is without TLS, a good token is answered with what it is for; DELETE takes back all that was granted with it.
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import Provider from "oidc-provider";

const [key, cert, life, code = 600, elsewhere = "{}"] = process.argv.slice(2);
const at = JSON.parse(elsewhere);
const say = (value) => console.log(JSON.stringify(value));
const server = https.createServer({ key: fs.readFileSync(key), cert: fs.readFileSync(cert) });

server.listen(at.port ?? 0, at.port ? "0.0.0.0" : "127.0.0.1", () => {
  const issuer = `https://${at.host ?? "127.0.0.1"}:${server.address().port}`;
  const resource = at.resource ?? `${issuer}/api`;
  const grants = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"];
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "owners-client", token_endpoint_auth_method: "none", application_type: "native", grant_types: grants,
        response_types: ["code"], redirect_uris: ["http://127.0.0.1/callback"],
      },
      {
        client_id: "confidential", client_secret: "CS-hunter2-of-the-client", application_type: "native", grant_types: grants,
        token_endpoint_auth_method: "client_secret_basic", response_types: ["code"], redirect_uris: ["http://127.0.0.1/callback"],
      },
    ],
    cookies: { keys: ["tests"] },
    scopes: ["read", "write"],
    pkce: { required: () => true },
    issueRefreshToken: () => true,
    rotateRefreshToken: true,
    ttl: { AccessToken: Number(life), DeviceCode: Number(code) },
    features: {
      deviceFlow: { enabled: true },
      registration: { enabled: Boolean(at.port) },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (ctx, indicator) => {
          if (indicator !== resource && indicator !== at.other) throw new Error("no such resource");
          return { scope: "read write", accessTokenTTL: Number(life), accessTokenFormat: "opaque" };
        },
      },
    },
  });
  provider.on("grant.success", (ctx) => say({
    grant: ctx.oidc.params.grant_type, client: ctx.oidc.client.clientId, resource: ctx.oidc.params.resource ?? null,
  }));
  provider.on("grant.success", (ctx) => say({ issued: [ctx.body?.access_token, ctx.body?.refresh_token] }));
  provider.on("device_authorization.success", (ctx) => say({ device: ctx.oidc.client.clientId }));
  provider.on("grant.error", (ctx, e) => say({ grant: ctx.oidc?.params?.grant_type ?? null, error: e.error }));
  provider.on("registration_create.success", (ctx, client) => say({ registered: client.redirectUris, method: client.tokenEndpointAuthMethod }));
  provider.on("server_error", (ctx, e) => say({ error: String(e) }));
  server.on("request", provider.callback());
  const api = http.createServer(async (q, r) => {
    const token = await provider.AccessToken.find((q.headers.authorization ?? "").replace(/^Bearer /, ""));
    if (token && q.method === "DELETE") {
      await provider.RefreshToken.revokeByGrantId(token.grantId);
      await provider.AccessToken.revokeByGrantId(token.grantId);
      await (await provider.Grant.find(token.grantId)).destroy();
    }
    r.setHeader("content-type", "application/json");
    r.statusCode = token ? 200 : 401;
    r.end(JSON.stringify(token ? { account: token.accountId, aud: token.aud, scope: token.scope, jti: token.jti.length } : { error: "invalid_token" }));
    say({ api: token ? token.scope : null });
  });
  api.listen(0, "127.0.0.1", () => say({ issuer, api: `127.0.0.1:${api.address().port}` }));
});
