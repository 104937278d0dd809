package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Generations of the protocol.
const (
	older = "2025-11-25"
	newer = "2026-07-28"
)

// client is one client of one generation, which makes a call after the other, and now and then does what clients do.
type client struct {
	s        *soak
	n        int
	version  string
	http     *http.Client
	host     string
	token    string
	sessions map[string]session // by path
	last     atomic.Int64       // id
}

// session is what the older generation has.
type session struct {
	id    string
	began time.Time
}

// request is one call and what its caller does while it waits.
type request struct {
	server   *served
	own      bool // on the server's own endpoint
	text     string
	wait     int           // milliseconds that the server is to take
	steps    int           // progress that it is to report
	hangUp   time.Duration // 0: never
	cancel   time.Duration // 0: never
	list     bool          // list the tools instead
	id       int64
	began    time.Time
	progress int // notifications that have come
}

func (s *soak) newClient(n int, version string) *client {
	host, token := s.pfar.endpoint()
	return &client{s: s, n: n, version: version, host: host, token: token, sessions: map[string]session{}, http: &http.Client{Transport: &http.Transport{}}}
}

// close ends the client's sessions.
func (c *client) close() {
	for len(c.sessions) > 0 {
		c.leave()
	}
	c.http.CloseIdleConnections()
}

// live makes calls until stop is closed, and listens on the side to what the gateway has to tell.
func (c *client) live(stop <-chan struct{}) {
	defer c.close()
	ctx, cancel := context.WithCancel(context.Background())
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		c.listen(ctx)
	}()
	for {
		select {
		case <-stop:
			cancel()
			<-heard
			return
		case <-time.After(c.s.between(0, 10*time.Millisecond)):
		}
		c.once(c.s.invent())
		if c.s.roll(200) == 0 {
			c.leave()
		}
	}
}

// invent makes up a call.
func (s *soak) invent() request {
	r := request{server: s.pfar.servers[s.roll(len(s.pfar.servers))], own: s.roll(3) == 0, wait: s.roll(20)}
	if s.roll(20) == 0 {
		r.text = strings.Repeat("long ", 1+s.roll(20_000))
	}
	switch k := s.roll(100); {
	case k < 10:
		r.steps = 1 + s.roll(10)
	case k < 17:
		r.cancel = s.between(0, 30*time.Millisecond)
		r.wait = s.roll(60)
	case k < 25:
		r.hangUp = s.between(1, 30*time.Millisecond)
		r.wait = s.roll(60)
	case k < 30:
		r.list = true
	case k == 30 && s.roll(2) == 0:
		for !r.server.late {
			r.server = s.pfar.servers[s.roll(len(s.pfar.servers))]
		}
		r.wait = int(lateTimeout/time.Millisecond) + 500 + s.roll(500)
	}
	return r
}

// path is where the request goes.
func (r *request) path() string {
	if r.own {
		return "/mcp/" + r.server.name
	}
	return "/mcp"
}

// tool is what the server's tool is called there.
func (r *request) tool() string {
	if r.own {
		return r.server.tool
	}
	return r.server.name + "__" + r.server.tool
}

// once makes one call, checks what comes back, and counts it.
func (c *client) once(r request) outcome {
	r.id, r.began = c.last.Add(1), time.Now()
	r.text = fmt.Sprintf("<%s %d %d %s>", c.s.pfar.marker, c.n, r.id, r.text)
	ctx, done := context.WithTimeout(context.Background(), hang)
	defer done()
	o, text := c.greet(ctx, &r)
	if o == answered {
		o, text = c.exchange(ctx, &r)
	}
	if took := time.Since(r.began); took >= hang {
		c.s.tally.violation("client %d (%s): call %d to %s hangs: %v, %s", c.n, c.version, r.id, r.server.name, took, text)
	}
	if o == wrong {
		c.s.stained()
		c.s.tally.violation("client %d (%s): call %d to %s%s: %s", c.n, c.version, r.id, r.server.name, r.path(), text)
	}
	began := r.began
	if o == lost { // any end of the gateway since the session began is a reason
		began = c.sessions[r.path()].began
		delete(c.sessions, r.path())
	}
	c.s.tally.add(o, r, began, text)
	return o
}

// greet opens a session if there has to be one and there is none.
func (c *client) greet(ctx context.Context, r *request) (outcome, string) {
	if c.version == newer || c.sessions[r.path()].id != "" {
		return answered, ""
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`, older)
	response, err := c.post(ctx, r.path(), "initialize", "", []byte(body))
	if err != nil {
		return c.severed(ctx, r, err)
	}
	defer response.Body.Close()
	var m message
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil {
		return c.severed(ctx, r, err)
	}
	if m.Error != nil {
		return judgeError(*m.Error, r.server.name), m.Error.Message
	}
	c.sessions[r.path()] = session{response.Header.Get("Mcp-Session-Id"), r.began}
	second, err := c.post(ctx, r.path(), "", "", []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return c.severed(ctx, r, err)
	}
	second.Body.Close()
	return answered, ""
}

// post sends one message. The method and the tool are for the headers of the newer generation.
func (c *client) post(ctx context.Context, path, method, tool string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	c.headers(req, path)
	if c.version == newer {
		req.Header.Set("Mcp-Method", method)
		if tool != "" {
			req.Header.Set("Mcp-Name", tool)
		}
	}
	return c.http.Do(req)
}

func (c *client) headers(req *http.Request, path string) {
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+c.token)
	if id := c.sessions[path].id; id != "" {
		req.Header.Set("Mcp-Session-Id", id)
	}
	if c.version == newer || c.sessions[path].id != "" {
		req.Header.Set("MCP-Protocol-Version", c.version)
	}
}

// body writes the request's message, and says its method.
func (r *request) body(version string) (body []byte, method string) {
	params, meta := map[string]any{}, map[string]any{}
	method = "tools/list"
	if !r.list {
		method = "tools/call"
		arguments := map[string]any{"message": r.text}
		if r.server.tool == "say" {
			arguments = map[string]any{"text": r.text, "milliseconds": r.wait, "steps": r.steps}
		}
		params["name"], params["arguments"] = r.tool(), arguments
	}
	if r.steps > 0 {
		meta["progressToken"] = r.token()
	}
	if version == newer {
		meta["io.modelcontextprotocol/protocolVersion"] = newer
		meta["io.modelcontextprotocol/clientInfo"] = map[string]string{"name": "soak", "version": "1"}
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{}
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.id, "method": method, "params": params})
	if err != nil {
		panic(err) // strings and numbers
	}
	return body, method
}

func (r *request) token() string { return fmt.Sprintf("token-%d", r.id) }

// exchange makes the call itself.
func (c *client) exchange(ctx context.Context, r *request) (outcome, string) {
	if r.hangUp > 0 || r.cancel > 0 && c.version == newer { // since 2026-07-28 hanging up is how a client cancels
		var hangUp context.CancelFunc
		ctx, hangUp = context.WithTimeoutCause(ctx, max(r.hangUp, r.cancel), errHungUp)
		defer hangUp()
	} else if r.cancel > 0 {
		defer c.cancelLater(ctx, r)()
	}
	body, method := r.body(c.version)
	tool := r.tool()
	if r.list {
		tool = ""
	}
	response, err := c.post(ctx, r.path(), method, tool, body)
	if err != nil {
		return c.severed(ctx, r, err)
	}
	defer response.Body.Close()
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	var m *message
	switch media {
	case "application/json":
		var b []byte
		if b, err = io.ReadAll(response.Body); err == nil {
			m, err = r.single(b)
		}
	case "text/event-stream":
		m, err = r.stream(response.Body)
	default:
		return wrong, fmt.Sprintf("answered %s with %q", response.Status, media)
	}
	var broken violation
	switch {
	case errors.As(err, &broken):
		return wrong, err.Error()
	case err != nil:
		return c.severed(ctx, r, err)
	}
	o, text := r.judge(*m)
	id := c.sessions[r.path()].id
	switch {
	case o == answered && r.server.own && !r.list && id != "":
		c.s.tally.belongs(text, id)
	case o == full && id == "":
		return wrong, "without a session: " + text
	}
	return o, text
}

var errHungUp = errors.New("hung up as intended")

// violation is an error in what came, in contrast to one in its coming.
type violation string

func (v violation) Error() string { return string(v) }

// severed names the end of a connection before its answer.
func (c *client) severed(ctx context.Context, r *request, err error) (outcome, string) {
	switch {
	case errors.Is(context.Cause(ctx), errHungUp):
		return hungUp, ""
	case ctx.Err() != nil:
		return wrong, fmt.Sprintf("no answer within %v", time.Since(r.began))
	}
	return transport, err.Error()
}

// cancelLater tells the gateway after a while that the answer is not wanted any more. It returns what ends the waiting.
func (c *client) cancelLater(ctx context.Context, r *request) func() {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"soak"}}`, r.id)
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.cancel):
		}
		if response, err := c.post(ctx, r.path(), "notifications/cancelled", "", body); err == nil {
			response.Body.Close()
		}
	}()
	return func() {
		stop()
		<-done
	}
}

// leave ends one of the client's sessions, if it has any.
func (c *client) leave() {
	for path := range c.sessions {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://"+c.host+path, nil)
		if err != nil {
			return
		}
		c.headers(req, path)
		if response, err := c.http.Do(req); err == nil {
			response.Body.Close()
		}
		delete(c.sessions, path)
		return
	}
}
