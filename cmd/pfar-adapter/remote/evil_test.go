package remote

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const secret = "pl4ceH0lder/+token=="

// evil is one way in which a server answers a tool's call, and what comes of it: an error of the adapter's own, or
// lines. After it the next call works as ever.
type evil struct {
	name   string
	do     func(w http.ResponseWriter, r *http.Request, m received)
	class  string
	detail string
	also   func(t *testing.T, f failure) // of the error

	stateless string // the detail behind server/discover; "": the same
	hops      int    // redirects within the host
	lines     []string
}

func status(code int, header ...string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		body := ""
		for i := 0; i+1 < len(header); i += 2 {
			if header[i] == "body" {
				body = header[i+1]
				continue
			}
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func body(format string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, "%s", format) }
}

func stream(text string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		fmt.Fprint(w, text)
	}
}

// chunks sends a text a byte at a time.
func chunks(text string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		c := asStream(w)
		for i := range len(text) {
			fmt.Fprint(w, text[i:i+1])
			c.Flush()
		}
	}
}

func packed(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprint(z, text)
	z.Close()
	return b.Bytes()
}

func encoded(coding string, b []byte) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		w.Header().Set("Content-Encoding", coding)
		w.Header().Set("Content-Type", "application/json")
		w.Write(b)
	}
}

func redirect(code int, to string) func(http.ResponseWriter, *http.Request, received) {
	return status(code, "Location", to)
}

// endless writes until the client has gone.
func endless(kind, text string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		w.Header().Set("Content-Type", kind)
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, text); err != nil {
				return
			}
		}
	}
}

// slowly writes a text every so often until the client has gone.
func slowly(kind, text string, every time.Duration) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, r *http.Request, m received) {
		w.Header().Set("Content-Type", kind)
		c := http.NewResponseController(w)
		for {
			fmt.Fprint(w, text)
			if c.Flush() != nil {
				return
			}
			select {
			case <-time.After(every):
			case <-r.Context().Done():
				return
			}
		}
	}
}

func retry(seconds int) func(t *testing.T, f failure) {
	return func(t *testing.T, f failure) {
		if got := f.Error.Data["pfar/error"].RetryAfter; got != seconds {
			t.Errorf("it is to be tried again after %d s, want %d", got, seconds)
		}
	}
}

func wants(scope, resource, reason string) func(t *testing.T, f failure) {
	return func(t *testing.T, f failure) {
		told := f.Error.Data["pfar/error"]
		if told.Scope != scope || told.Resource != resource || told.Reason != reason {
			t.Errorf("it says scope %q, resource %q, error %q", told.Scope, told.Resource, told.Reason)
		}
	}
}

// longScopes are as many as fit into a text of a fault, and not into a command.
func longScopes() (list []string) {
	for i := range 24 {
		list = append(list, fmt.Sprintf("scope:%02d", i))
	}
	return list
}

// thisHost is what a sandbox has its server's name in.
func thisHost() string {
	name, _ := os.Hostname()
	return name
}

var deep = `{"jsonrpc":"2.0","id":2,"result":` + strings.Repeat(`{"a":`, 9000) + `1` + strings.Repeat("}", 9001)

const done = `{"jsonrpc":"2.0","id":2,"result":{}}`

// evils are by status, by body, by stream, by redirect, and by what is reflected or forged.
var evils = slices.Concat(evilStatuses, evilBodies, evilStreams, evilRedirects, evilWords)

var evilStatuses = []evil{
	{name: "401", do: status(401), class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("", "", "")},
	{name: "401 with a challenge", do: status(401, "WWW-Authenticate",
		`Bearer error="invalid_token", resource_metadata="https://mcp.test/.well-known/x" ,scope="a b"`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized",
		also: wants("a b", "https://mcp.test/.well-known/x", "invalid_token")},
	{name: "401 with tokens in place of strings", do: status(401, "WWW-Authenticate", `bearer scope=x,error=y`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("x", "", "y")},
	{name: "401 for another scheme", do: status(401, "WWW-Authenticate", `Basic realm="scope=x"`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("", "", "")},
	{name: "401 with a string without end", do: status(401, "WWW-Authenticate", `Bearer scope="a b`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("", "", "")},
	{name: "401 with two challenges",
		do:    status(401, "WWW-Authenticate", `Bearer scope="a"`, "WWW-Authenticate", `Bearer scope="b"`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("a", "", "")},
	{name: "401 that says it is the answer", do: status(401, "Content-Type", "application/json", "body", done),
		class: "unauthorized", detail: "HTTP 401 Unauthorized"},
	{name: "403", do: status(403, "Content-Type", "text/plain", "body", "not you\nat all"),
		class: "forbidden", detail: "HTTP 403 Forbidden: not you"},
	{name: "403 for a scope", do: status(403, "WWW-Authenticate", `Bearer error="insufficient_scope", scope="repo:write"`),
		class: "forbidden", detail: "HTTP 403 Forbidden, for want of a scope: its owner asks for it with pfar login " +
			thisHost() + " --scope repo:write", also: wants("repo:write", "", "insufficient_scope")},
	{name: "401 that names another host's metadata", do: status(401, "WWW-Authenticate",
		`Bearer resource_metadata="https://evil.test/.well-known/x", authorization_uri="https://evil.test/authorize"`,
		"Link", `<https://evil.test/>; rel="authorization_server"`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("", "https://evil.test/.well-known/x", "")},
	{name: "403 for commands in place of scopes", do: status(403, "WWW-Authenticate",
		`Bearer error="insufficient_scope", scope="$(id) --yes a;id"`), class: "forbidden",
		detail: "HTTP 403 Forbidden", also: wants("$(id) --yes a;id", "", "insufficient_scope")},
	{name: "403 for scopes without end", do: status(403, "WWW-Authenticate",
		`Bearer error="insufficient_scope", scope="`+strings.Repeat("a ", 100)+`"`), class: "forbidden",
		detail: "HTTP 403 Forbidden", also: wants("", "", "insufficient_scope")},
	{name: "403 for more scopes than anybody types", do: status(403, "WWW-Authenticate",
		`Bearer error="insufficient_scope", scope="`+strings.Join(longScopes(), " ")+`"`), class: "forbidden",
		detail: "HTTP 403 Forbidden", also: wants(strings.Join(longScopes(), " "), "", "insufficient_scope")},
	{name: "403 of too many", do: status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684860"),
		class: "rate_limited", detail: "HTTP 403 Forbidden", also: retry(60)},
	{name: "404 without a session", do: status(404), class: "not_found", detail: "HTTP 404 Not Found"},
	{name: "405", do: status(405), class: "schema", detail: "HTTP 405 Method Not Allowed"},
	{name: "407", do: status(407), class: "forbidden", detail: "HTTP 407 Proxy Authentication Required"},
	{name: "408", do: status(408), class: "timeout", detail: "HTTP 408 Request Timeout"},
	{name: "410", do: status(410), class: "not_found", detail: "HTTP 410 Gone"},
	{name: "418 with a page", do: status(418, "Content-Type", "text/html", "body", "<script>alert(1)</script>"),
		class: "schema", detail: "HTTP 418 I'm a teapot"},
	{name: "429 in seconds", do: status(429, "Retry-After", "30"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(30)},
	{name: "429 at a date", do: status(429, "Retry-After", "Sat, 01 Jan 2000 00:02:00 GMT"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(120)},
	{name: "429 at a date that is over", do: status(429, "Retry-After", "Fri, 01 Jan 1999 00:02:00 GMT"),
		class:  "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(0)},
	{name: "429 until a moment", do: status(429, "X-RateLimit-Reset", "946684830"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(30)},
	{name: "429 for some seconds", do: status(429, "X-RateLimit-Reset", "1.5s"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(2)},
	{name: "429 for ever", do: status(429, "Retry-After", "1e300"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(86400)},
	{name: "429 before now", do: status(429, "Retry-After", "-5"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(0)},
	{name: "429 for no number", do: status(429, "Retry-After", "NaN"), class: "rate_limited",
		detail: "HTTP 429 Too Many Requests", also: retry(0)},
	{name: "500", do: status(500), class: "server_error", detail: "HTTP 500 Internal Server Error"},
	{name: "500 with an error of nobody's",
		do:    status(500, "body", `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"boom"}}`),
		class: "server_error", detail: "HTTP 500 Internal Server Error: boom"},
	{name: "500 with an error of ours",
		do:    status(500, "body", `{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"boom"}}`),
		class: "server_error", detail: "HTTP 500 Internal Server Error: boom"},
	{name: "503", do: status(503), class: "server_error", detail: "HTTP 503 Service Unavailable"},
	{name: "503 for a while", do: status(503, "Retry-After", "5"), class: "rate_limited",
		detail: "HTTP 503 Service Unavailable", also: retry(5)},
	{name: "504", do: status(504), class: "timeout", detail: "HTTP 504 Gateway Timeout"},
	{name: "599", do: status(599), class: "server_error", detail: "HTTP 599"},
	{name: "999", do: status(999), class: "schema", detail: "HTTP 999"},
	{name: "400 with an answer",
		do:    status(400, "body", `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}`}},
	{name: "400 with the answer to another",
		do:    status(400, "body", `{"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"no"}}`),
		class: "schema", detail: "HTTP 400 Bad Request: no"},
	{name: "400 with a result", do: status(400, "Content-Type", "application/json", "body", done), class: "schema",
		detail: "HTTP 400 Bad Request"},
	{name: "202", do: status(202), class: "schema",
		detail: "the server takes the request, and says that it will not answer"},
	{name: "204", do: status(204), class: "schema",
		detail: "the server takes the request, and says that it will not answer"},
	{name: "bridge: certificate",
		do:    status(502, "X-Pfar-Reason", "certificate", "body", "pfar cannot reach mcp.test: certificate\nmore"),
		class: "tls", detail: "pfar cannot reach mcp.test: certificate"},
	{name: "bridge: another key", class: "tls", detail: "none of its keys",
		do: status(403, "X-Pfar-Reason", "tls-pin", "body", "none of its keys\nmore")},
	{name: "bridge: time", do: status(504, "X-Pfar-Reason", "dial-timeout"), class: "timeout",
		detail: "pfar refuses the request: dial-timeout"},
	{name: "bridge: policy",
		do:    status(403, "X-Pfar-Reason", "address-refused", "body", "pfar refuses mcp.test: address-refused\n"),
		class: "network_error", detail: "pfar refuses mcp.test: address-refused"},
}

var evilBodies = []evil{
	{name: "a page", do: status(200, "Content-Type", "text/html", "body", done), class: "schema",
		detail: `the server's response is "text/html", neither application/json nor text/event-stream`},
	{name: "no type", do: status(200, "Content-Type", "", "body", done), class: "schema",
		detail: `the server's response is "", neither application/json nor text/event-stream`},
	{name: "nothing", do: body(""), class: "schema",
		detail: "the server sent a line that is not a JSON-RPC message: JSON ends too early"},
	{name: "half", do: body(`{"jsonrpc":"2.0","id":2,"res`), class: "schema",
		detail: "the server sent a line that is not a JSON-RPC message: JSON ends too early"},
	{name: "more behind it", do: body(done + "x"), class: "schema",
		detail: `the server sent a line that is not a JSON-RPC message: want the end at byte 36, found 'x'`},
	{name: "null", do: body("null"), class: "schema",
		detail: "the server sent a line that is not a JSON-RPC message: not an object"},
	{name: "a number", do: body("7"), class: "schema",
		detail: "the server sent a line that is not a JSON-RPC message: not an object"},
	{name: "another id", do: body(`{"jsonrpc":"2.0","id":3,"result":{}}`), class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "the id as a string", do: body(`{"jsonrpc":"2.0","id":"2","result":{}}`), class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "the id with a point", do: body(`{"jsonrpc":"2.0","id":2.0,"result":{}}`), class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "an error for null", do: body(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"bad"}}`),
		class:  "schema",
		detail: "the server sent an error that belongs to no request: bad"},
	{name: "an error for nobody", do: body(`{"jsonrpc":"2.0","error":{"code":1,"message":"bad"}}`), class: "schema",
		detail: "the server sent an error that belongs to no request: bad"},
	{name: "a result for null", do: body(`{"jsonrpc":"2.0","id":null,"result":{}}`), class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "a batch", do: body(`[{"jsonrpc":"2.0","method":"n"},` + done + `]`),
		lines: []string{`{"jsonrpc":"2.0","method":"n"}`, done}},
	{name: "a batch with two answers", do: body(`[` + done + `,` + done + `]`), lines: []string{done}},
	{name: "an empty batch", do: body(`[]`), class: "schema", detail: "the server's response does not answer the request"},
	{name: "a batch of batches", do: body(`[[` + done + `]]`), class: "schema",
		detail: "an entry of a batch is not a message"},
	{name: "a batch of thousands", do: body(`[` + strings.Repeat(`{"jsonrpc":"2.0","method":"n"},`, 1000) + done + `]`),
		class: "schema", detail: "the server sent a batch that cannot be read: array has more than 256 values"},
	{name: "two ids", do: body(`{"jsonrpc":"2.0","id":2,"id":3,"result":{}}`), class: "schema",
		detail: `the server sent a line that is not a JSON-RPC message: member "id" comes twice`},
	{name: "two results", do: body(`{"jsonrpc":"2.0","id":2,"result":{},"\u0072esult":{}}`), class: "schema",
		detail: `the server sent a line that is not a JSON-RPC message: member "result" comes twice`},
	{name: "a result and an error", do: body(`{"jsonrpc":"2.0","id":2,"result":{},"error":{"code":1,"message":"m"}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"result":{},"error":{"code":1,"message":"m"}}`}},
	{name: "no text", do: body("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"a\":\"\xff\"}}"), class: "schema",
		detail: "cannot read the server's answer: invalid UTF-8"},
	{name: "a notification", do: body(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`),
		lines: []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`}, class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "a request under our id", do: body(`{"jsonrpc":"2.0","id":2,"method":"ping"}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"method":"ping"}`}, class: "schema",
		detail: "the server's response does not answer the request"},
	{name: "deep",
		do:    body(deep),
		lines: []string{deep}},
	{name: "a long body that says so",
		do:    status(200, "Content-Type", "application/json", "body", strings.Repeat(" ", 300<<10)),
		class: "schema", detail: "the server's answer has more than 65536 bytes"},
	{name: "a body without end", do: endless("application/json", strings.Repeat(" ", 1000)), class: "schema",
		detail: "the server's answer has more than 65536 bytes"},
	{name: "many members", do: body(`{"jsonrpc":"2.0","id":2,"result":{}` + many(300) + `}`), class: "schema",
		detail: "the server sent a line that is not a JSON-RPC message: object has more than 256 members"},
	{name: "packed", do: encoded("gzip", packed(done)), lines: []string{done}},
	{name: "packed to a bomb", do: encoded("gzip", packed(strings.Repeat(" ", 64<<20))), class: "schema",
		detail: "the server's answer has more than 65536 bytes"},
	{name: "not packed", do: encoded("gzip", []byte(done)), class: "schema",
		detail: "the server calls its response gzip, but it is not"},
	{name: "packed, but for the end", do: encoded("gzip", packed(done)[:20]), class: "network_error",
		detail: "the server closed the connection before it had answered"},
	{name: "packed otherwise than it says", do: encoded("gzip", changed(packed(done), -6)), class: "schema",
		detail: "the server calls its response gzip, but it is not"},
	{name: "packed by another", do: encoded("br", []byte(done)), class: "schema",
		detail: `the server's response is encoded as "br", which pfar did not ask for`},
	{name: "packed twice", do: encoded("gzip, gzip", packed(string(packed(done)))), class: "schema",
		detail: `the server's response is encoded as "gzip, gzip", which pfar did not ask for`},
	{name: "a body that trickles", do: slowly("application/json", " ", 4*time.Minute), class: "timeout",
		detail: "the server has not answered within 15m0s"},
	{name: "a body that halts", do: slowly("application/json", " ", time.Hour), class: "timeout",
		detail: "the server's response stopped halfway"},
	{name: "no head", do: func(_ http.ResponseWriter, r *http.Request, _ received) { <-r.Context().Done() },
		class:  "timeout",
		detail: "the server does not begin to answer in time"},
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	return b.String()
}

// changed changes one byte, counted from the end if at is negative.
func changed(b []byte, at int) []byte {
	b[(len(b)+at)%len(b)] ^= 1
	return b
}

var evilStreams = []evil{
	{name: "a stream without an answer", do: stream(": hello\n\n"), class: "network_error",
		detail: "the server's event stream ended without the answer"},
	{name: "a stream that ends in an event", do: stream("data: " + done), class: "network_error",
		detail: "the server's event stream ended without the answer"},
	{name: "a stream with another's answer", do: stream("data: " + strings.Replace(done, "2,", "99,", 1) + "\n\n"),
		class: "network_error", detail: "the server's event stream ended without the answer"},
	{name: "a stream of noise", do: stream("data: hello\n\n"), class: "schema",
		detail: `the server sent a line that is not a JSON-RPC message: want a value at byte 0, found 'h'`},
	{name: "events without end",
		do:    endless("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\nevent:x\n\n"),
		class: "schema", detail: "the server has sent 1000 events and no answer"},
	{name: "notifications without end",
		do:    endless("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"),
		lines: slices.Repeat([]string{`{"jsonrpc":"2.0","method":"n"}`}, 1000),
		class: "schema", detail: "the server has sent 1000 events and no answer"},
	{name: "comments without end", do: endless("text/event-stream", ": keep this open\n"), class: "schema",
		detail: "the event stream is over its limit: 1114112 bytes without an event"},
	{name: "a comment without end", do: endless("text/event-stream", ": keep this open"), class: "schema",
		detail: "the event stream is over its limit: 1114112 bytes without an event"},
	{name: "a line without end", do: endless("text/event-stream", "data:aaaaaaaaaaaaa"), class: "schema",
		detail: "the event stream is over its limit: a line has more than 65536 bytes"},
	{name: "an event without end", do: endless("text/event-stream", "data:aaaaaaaaaaaaa\n"), class: "schema",
		detail: "the event stream is over its limit: an event has more than 65536 bytes"},
	{name: "a field without end", do: endless("text/event-stream", "neither a field nor a comment"), class: "schema",
		detail: "the event stream is over its limit: a line has more than 65536 bytes"},
	{name: "empty lines without end", do: endless("text/event-stream", "\n\n\n\r\n"), class: "schema",
		detail: "the event stream is over its limit: 1114112 bytes without an event"},
	{name: "a long id", do: stream("id: " + strings.Repeat("x", 2000) + "\n\n"), class: "schema",
		detail: "the event stream is over its limit: an event's id has more than 1024 bytes"},
	{name: "a long type", do: stream("event: " + strings.Repeat("x", 2000) + "\n\n"), class: "schema",
		detail: "the event stream is over its limit: an event's type has more than 1024 bytes"},
	{name: "events of other types",
		do:    stream("event: ping\ndata: {}\n\nevent: endpoint\ndata: https://evil.test/\n\ndata: " + done + "\n\n"),
		lines: []string{done}},
	{name: "bytes one by one", do: chunks("\ufeff: c\rid: \x00\rdata: " + done[:1] + "\r\ndata:" + done[1:] + "\r\n\r\n"),
		lines: []string{done[:1] + " " + done[1:]}},
	{name: "carriage returns", do: stream("data: " + done + "\r\r"), lines: []string{done}},
	{name: "an answer and more",
		do: stream("data: " + done + "\n\ndata: " + done +
			"\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\ndata: x\n\n"),
		lines: []string{done, `{"jsonrpc":"2.0","method":"n"}`}},
	{name: "an answer and no end", do: func(w http.ResponseWriter, r *http.Request, _ received) {
		asStream(w)
		event(w, done)
		<-r.Context().Done()
	}, lines: []string{done}},
	{name: "a stream that halts", do: slowly("text/event-stream", ": x\n", time.Hour), class: "timeout",
		detail: "the server's event stream broke off: the server's response stopped halfway"},
	{name: "a stream that trickles", do: slowly("text/event-stream", ": x\n", 4*time.Minute), class: "timeout",
		detail: "the server has not answered within 15m0s"},
	{name: "a packed stream", do: func(w http.ResponseWriter, r *http.Request, _ received) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Write(packed("data: " + done + "\n\n"))
	}, lines: []string{done}},
	{name: "a packed stream that is a bomb", do: func(w http.ResponseWriter, r *http.Request, _ received) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write(packed("data: " + strings.Repeat("a", 32<<20)))
	}, class: "schema", detail: "the event stream is over its limit: a line has more than 65536 bytes"},
	{name: "a batch in a stream", do: stream("data: [" + done + "]\n\n"), lines: []string{done}},
	{name: "no text in a stream", do: stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}\n\ndata: " + done + "\n\n"),
		lines: []string{done}},
	{name: "ids that lead nowhere", do: stream("id: 1\nretry: 1\ndata:\n\n"), class: "network_error",
		detail:    "pfar cannot resume the server's event stream: HTTP 405 Method Not Allowed: no",
		stateless: "the server's event stream ended without the answer"}, // there is nothing to resume
}

var evilRedirects = []evil{
	{name: "to another host", do: redirect(307, "https://evil.test/mcp"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://evil.test, and the declaration says https://mcp.test"},
	{name: "to a host by its path", do: redirect(308, "//evil.test/mcp"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://evil.test, and the declaration says https://mcp.test"},
	{name: "to a host that looks like ours", do: redirect(307, "https://mcp.test.evil.test/"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://mcp.test.evil.test, " +
			"and the declaration says https://mcp.test"},
	{name: "to metadata", do: redirect(307, "http://169.254.169.254/latest/meta-data/"), class: "network_error",
		detail: "redirect refused: the redirect leads to http://169.254.169.254, and the declaration says https://mcp.test"},
	{name: "to loopback", do: redirect(307, "http://[::1]:9876/"), class: "network_error",
		detail: "redirect refused: the redirect leads to http://[::1]:9876, and the declaration says https://mcp.test"},
	{name: "to http", do: redirect(307, "http://mcp.test/mcp"), class: "network_error",
		detail: "redirect refused: the redirect leads to http://mcp.test, and the declaration says https://mcp.test"},
	{name: "to another port", do: redirect(307, "https://mcp.test:8443/mcp"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://mcp.test:8443, and the declaration says https://mcp.test"},
	{name: "to a file", do: redirect(307, "file:///etc/passwd"), class: "network_error",
		detail: "redirect refused: the redirect leads to file://, and the declaration says https://mcp.test"},
	{name: "to a script", do: redirect(307, "javascript:alert(1)"), class: "network_error",
		detail: "redirect refused: the redirect leads to javascript://, and the declaration says https://mcp.test"},
	{name: "with a user", do: redirect(307, "https://mcp.test@evil.test/"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://evil.test, and the declaration says https://mcp.test"},
	{name: "with a user, to us", do: redirect(307, "https://root@mcp.test/"), class: "network_error",
		detail: "redirect refused: the redirect leads to https://mcp.test, and the declaration says https://mcp.test"},
	{name: "to nowhere", do: status(307), class: "network_error",
		detail: "redirect refused: the server does not say where to"},
	{name: "to no address", do: redirect(307, "https://[::1"), class: "network_error",
		detail: "redirect refused: the server does not say where to"},
	{name: "of a call by 302", do: redirect(302, "/other"), class: "network_error",
		detail: "redirect refused: POST may only be redirected by 307 and 308"},
	{name: "of a call by 303", do: redirect(303, "/other"), class: "network_error",
		detail: "redirect refused: POST may only be redirected by 307 and 308"},
	{name: "in a circle", do: redirect(307, "/mcp"), class: "network_error",
		detail: "redirect refused: more than 3 redirects", hops: 3},
	{name: "within the host", hops: 1, do: func(w http.ResponseWriter, r *http.Request, m received) {
		if r.URL.Path == "/mcp" {
			redirect(308, "/other?x=1#y")(w, r, m)
			return
		}
		asJSON(w, `{"jsonrpc":"2.0","id":2,"result":{"at":%q,"method":%q,"token":%v}}`, r.URL, r.Method,
			r.Header.Get("Authorization") == "Bearer "+secret)
	}, lines: []string{`{"jsonrpc":"2.0","id":2,"result":{"at":"/other?x=1","method":"POST","token":true}}`}},
	{name: "not modified", do: status(304), class: "schema", detail: "HTTP 304 Not Modified"},
	{name: "several to choose from", do: redirect(300, "https://evil.test/"), class: "schema",
		detail: "HTTP 300 Multiple Choices"},
}

var evilWords = []evil{
	{name: "forged class",
		do: body(`{"jsonrpc":"2.0","id":2,"error":{"code":-32010,"message":"m",` +
			`"data":{"pfar/error":{"class":"tls"},"x":1}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32010,"message":"m","data":{"x":1}}}`}},
	{name: "forged class alone",
		do:    body(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"pfar/error":{}}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{}}}`}},
	{name: "forged class with escapes",
		do:    body(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"pfa\u0072\/error":{},"y":2}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"y":2}}}`}},
	{name: "forged class in capitals",
		do:    body(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"y":2,"Pfar/ERROR":{}}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"y":2}}}`}},
	{name: "forged class in a stream",
		do:    stream(`data: {"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"pfar/error":{}}}}` + "\n\n"),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{}}}`}},
	{name: "forged class with 400",
		do:    status(400, "body", `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{"pfar/error":{}}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{}}}`}},
	{name: "forged class in two data",
		do:    body(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":{},"data":{"pfar/error":{}}}}`),
		class: "schema", detail: `cannot read the server's answer: member "data" comes twice`},
	{name: "forged class in DATA",
		do:    body(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","DATA":{"pfar/error":{}}}}`),
		class: "schema", detail: `cannot read the server's answer: member "DATA" looks like "data"`},
	{name: "forged class of a result",
		do:    body(`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"a":1,"pfar/error":{}},"isError":true}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"a":1},"isError":true}}`}},
	{name: "pfar/error as a text", do: body(`{"jsonrpc":"2.0","id":2,"result":{"_meta":{ "a":"pfar/error"}}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"result":{"_meta":{ "a":"pfar/error"}}}`}},
	{name: "the token in a result", do: body(`{"jsonrpc":"2.0","id":2,"result":{"a":"Bearer ` + secret + `"}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"result":{"a":"Bearer [redacted]"}}`}},
	{name: "the token with escapes", do: body(`{"jsonrpc":"2.0","id":2,"result":{"a":"pl4ceH0lder\/\u002btoken=="}}`),
		lines: []string{`{"jsonrpc":"2.0","id":2,"result":{"a":"[redacted]"}}`}},
	{name: "the token in a notification",
		do:    stream(`data: {"jsonrpc":"2.0","method":"n","params":{"a":"` + secret + `"}}` + "\n\ndata: " + done + "\n\n"),
		lines: []string{`{"jsonrpc":"2.0","method":"n","params":{"a":"[redacted]"}}`, done}},
	{name: "the token in an error", do: status(500, "Content-Type", "text/plain", "body", "no: "+secret),
		class:  "server_error",
		detail: "HTTP 500 Internal Server Error: no: [redacted: TOKEN]"},
	{name: "the token in a challenge",
		do:    status(401, "WWW-Authenticate", `Bearer scope="`+secret+`", error="`+secret+`"`),
		class: "unauthorized", detail: "HTTP 401 Unauthorized", also: wants("[redacted: TOKEN]", "", "")},
	{name: "the token in a redirect", do: redirect(307, "https://"+strings.Trim(secret, "/+=")[:11]+".test/"+secret),
		class: "network_error",
		detail: "redirect refused: the redirect leads to https://pl4ceh0lder.test, " +
			"and the declaration says https://mcp.test"},
	{name: "the token in a type", do: status(200, "Content-Type", "text/"+secret), class: "schema",
		detail: `the server's response is "text/[redacted: TOKEN]", neither application/json nor text/event-stream`},
	{name: "a terminal's codes", do: status(500, "Content-Type", "text/plain", "body", "\x1b[31mred\u202e"),
		class:  "server_error",
		detail: `HTTP 500 Internal Server Error: \x1b[31mred\u202e`},
	{name: "a header of ours",
		do: status(500, "Content-Type", "text/plain", "body", "Authorization: Bearer other-secret-9"), class: "server_error",
		detail: "HTTP 500 Internal Server Error: Authorization: [removed]"},
	{name: "a long text", do: status(500, "Content-Type", "text/plain", "body", strings.Repeat("é", 5000)),
		class:  "server_error",
		detail: "HTTP 500 Internal Server Error: " + strings.Repeat("é", 240) + "..."},
	{name: "another session", do: func(w http.ResponseWriter, r *http.Request, m received) {
		w.Header().Set("Mcp-Session-Id", "evil")
		asJSON(w, done)
	}, lines: []string{done}},
}

// TestEvilAnswers has a server answer in every such way, in a session.
func TestEvilAnswers(t *testing.T) {
	for _, e := range evils {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			h := &honest{t: t, call: e.once}
			e.answers(t, h, (*world).begin, call)
			for _, line := range h.noted() {
				if strings.HasPrefix(line, "tools/call") && line != "tools/call " {
					t.Errorf("a call has a session: %s", line)
				}
			}
		})
	}
	if len(evils) < 80 {
		t.Errorf("only %d modes", len(evils))
	}
}

// TestEvilStateless tries every mode on a server of 2026-07-28, and an eighth of them with -short.
func TestEvilStateless(t *testing.T) {
	for i, e := range slices.Concat(evils, evilInputs) {
		if testing.Short() && i%8 != 0 && i < len(evils) {
			continue
		}
		if e.stateless != "" {
			e.detail = e.stateless
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			h := stateless(t, e.once)
			e.answers(t, h, func(w *world) {
				w.t.Helper()
				w.send(discover)
				w.want(named(discovered, "stream-http"))
			}, statelessCall)
			want := slices.Repeat([]string{"tools/call "}, 2+e.hops)
			want = slices.Insert(want, 0, "server/discover ")
			if e.class == "unauthorized" { // does the server accept the token at all?
				want = slices.Insert(want, 0, "server/discover ")
			}
			if got := slices.Sorted(slices.Values(h.noted())); !slices.Equal(got, want) {
				t.Errorf("the server has heard %q, want %q", got, want)
			}
		})
	}
}

const statelessCall = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{` + meta +
	`,"name":"t","arguments":{}}}`

// once answers the call of the id 2 in that way.
func (e evil) once(w http.ResponseWriter, r *http.Request, m received) {
	if string(m.ID) == "2" {
		e.do(w, r, m)
		return
	}
	asJSON(w, answer, 3)
}

// answers calls the server twice. The server answers the first call in the mode of e.
func (e evil) answers(t *testing.T, h *honest, begin func(*world), call string) {
	t.Helper()
	var seen []string
	inWorld(t, place{handler: h, token: secret, limits: small}, func(t *testing.T, w *world) {
		begin(w)
		w.send(call, 2)
		for _, want := range e.lines {
			w.want(want)
		}
		if e.class != "" {
			f := w.wantFault(2, e.class, e.detail)
			if e.also != nil {
				e.also(t, f)
			}
		}
		w.send(call, 3)
		w.want(fmt.Sprintf(answer, 3))
		w.silent(time.Minute)
		seen = w.dials.addresses()
		if text := w.stderr.String(); strings.Contains(text, secret) || strings.Contains(text, "other-secret") {
			t.Errorf("the log has the token: %s", text)
		}
	})
	if !slices.Equal(seen, []string{"mcp.test:443"}) {
		t.Errorf("it has connected to %q", seen)
	}
}

// evilInputs are what only a server of 2026-07-28 says: that it needs something of the client first. The adapter passes
// it on as it is, within its bounds, and the gateway judges it.
var evilInputs = []evil{
	{name: "an endless state", do: endless("application/json", strings.Repeat("x", 1000)), class: "schema",
		detail: "the server's answer has more than 65536 bytes"},
	{name: "a state that is larger than a message",
		do:    input(`"` + strings.Repeat("x", 70<<10) + `"`),
		class: "schema", detail: "the server's answer has more than 65536 bytes"},
	{name: "a large state", do: input(`"` + strings.Repeat("x", 60<<10) + `"`),
		lines: []string{inputOf(`"` + strings.Repeat("x", 60<<10) + `"`)}},
	{name: "a state that is a number", do: input("7"), lines: []string{inputOf("7")}},
	{name: "a state that is an object", do: input(`{"pfar/error":{}}`), lines: []string{inputOf(`{"pfar/error":{}}`)}},
	{name: "a state of no text", do: input("\"\xff\""), class: "schema",
		detail: "cannot read the server's answer: invalid UTF-8"},
	{name: "a state that is the token", do: input(`"` + secret + `"`), lines: []string{inputOf(`"[redacted]"`)}},
	{name: "a state with the token in escapes", do: input(`"pl4ceH0lder\/\u002btoken=="`),
		lines: []string{inputOf(`"[redacted]"`)}},
	{name: "two states", do: input(`"a","requestState":"b"`), lines: []string{inputOf(`"a","requestState":"b"`)}},
	{name: "a state in a stream, and the answer", do: stream("data: " + inputOf(`"x"`) + "\n\ndata: " + done + "\n\n"),
		lines: []string{inputOf(`"x"`)}},
	{name: "a state for another call", do: body(strings.Replace(inputOf(`"x"`), `"id":2`, `"id":9`, 1)),
		class: "schema", detail: "the server's response does not answer the request"},
	{name: "a forged class beside a state", do: input(`"x","_meta":{"pfar/error":{"class":"tls"},"a":1}`),
		lines: []string{inputOf(`"x","_meta":{"a":1}`)}},
	{name: "a state with an error's status", do: status(500, "Content-Type", "application/json", "body", inputOf(`"x"`)),
		class: "server_error", detail: "HTTP 500 Internal Server Error"},
}

func inputOf(state string) string {
	return `{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{},"requestState":` +
		state + `}}`
}

func input(state string) func(http.ResponseWriter, *http.Request, received) {
	return body(inputOf(state))
}

// small are limits that a test reaches fast.
func small(l *Limits) {
	l.Line = 64 << 10
	l.Events = 1000
}
