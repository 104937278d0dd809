package local

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote"
	"github.com/pfar/pfar/units/jsonrpc"
)

// The older convention of servers at a socket: a request is posted to the path of its method, and a server says of
// itself what it is. All of it is optional but calls, and a list of what can be called.
const (
	infoPath = "/server/info"
	listPath = "/tools/list"
	callPath = "/tools/call"
)

// probeTime bounds the questions that tell what a server speaks.
const probeTime = 5 * time.Second

// most is the largest answer of a server that is read.
const most = 16 << 20

// older reports whether a server speaks that convention, and not MCP at its address.
func older(ctx context.Context, o remote.Options) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	client := newClient(o.Dial)
	defer client.CloseIdleConnections()
	status := func(url string) int {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0
		}
		request.Header.Set("Accept", "text/event-stream, application/json")
		response, err := client.Do(request)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	if status(o.URL.String()) != http.StatusNotFound {
		return false
	}
	at := *o.URL
	for _, at.Path = range []string{infoPath, callPath} {
		if s := status(at.String()); s != 0 && s != http.StatusNotFound {
			return true
		}
	}
	return false
}

func newClient(to dial) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: to, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// seed makes MCP of that convention: it is an MCP server in this process, which asks the real one.
type seed struct {
	server *http.Server
	client *http.Client
	conns  chan net.Conn
	closed chan struct{}
}

func newSeed(to dial) *seed {
	s := &seed{client: newClient(to), conns: make(chan net.Conn), closed: make(chan struct{})}
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go func() { _ = s.server.Serve(s) }()
	return s
}

func (s *seed) close() {
	_ = s.server.Close()
	s.client.CloseIdleConnections()
}

// dial connects to the MCP server.
func (s *seed) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept makes it a listener.
func (s *seed) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener, once.
func (s *seed) Close() error {
	close(s.closed)
	return nil
}

// Addr is of no use to anybody.
func (s *seed) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// serve answers one message.
func (s *seed) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1<<20))
	m, perr := jsonrpc.Parse(body)
	switch {
	case err != nil || perr != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.Method == "" || m.ID == nil: // there is nobody to tell
		w.WriteHeader(http.StatusAccepted)
		return
	}
	switch mcp.MCPMethod(m.Method) {
	case mcp.MethodInitialize:
		s.initialize(w, r.Context(), m)
	case mcp.MethodPing:
		answer(w, m.ID, "result", []byte("{}"))
	case mcp.MethodToolsList:
		s.list(w, r.Context(), m, body)
	case mcp.MethodToolsCall:
		s.call(w, r.Context(), m, body)
	default:
		answer(w, m.ID, "error", jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "the server only has tools").JSON())
	}
}

func answer(w http.ResponseWriter, id []byte, member string, value []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(append(jsonrpc.AppendHead(nil, id, member), value...), '}')) // this process reads it
}

// initialize says for the server what it says of itself.
func (s *seed) initialize(w http.ResponseWriter, ctx context.Context, m jsonrpc.Message) {
	var info struct{ Name, Version string }
	if _, body, err := s.ask(ctx, http.MethodGet, infoPath, nil); err == nil {
		_ = json.Unmarshal(body, &info) // or nothing is known of it
	}
	if info.Name == "" {
		info.Name = "server"
	}
	result, _ := json.Marshal(map[string]any{
		"protocolVersion": mcp.LATEST_LEGACY_PROTOCOL_VERSION, "capabilities": map[string]any{"tools": map[string]any{}},
		"serverInfo": map[string]string{"name": info.Name, "version": info.Version},
	}) // strings
	answer(w, m.ID, "result", result)
}

// ask asks the server, and returns a whole answer. Of an error's status there is the beginning.
func (s *seed) ask(ctx context.Context, method, path string, body []byte) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && len(b) > most {
		err = io.ErrShortBuffer
	}
	return response, b, err
}

// list asks for the tools: at their path, or as a part of what the server says of itself.
func (s *seed) list(w http.ResponseWriter, ctx context.Context, m jsonrpc.Message, body []byte) {
	response, b, err := s.ask(ctx, http.MethodPost, listPath, body)
	for _, path := range []string{listPath, infoPath} {
		if err != nil || response.StatusCode != http.StatusNotFound && response.StatusCode != http.StatusMethodNotAllowed {
			break
		}
		response, b, err = s.ask(ctx, http.MethodGet, path, nil)
	}
	var tools []map[string]json.RawMessage
	if err == nil && response.StatusCode == http.StatusOK {
		tools = listed(b, m.ID)
	}
	if err != nil || tools == nil && response.StatusCode >= 400 && response.StatusCode != http.StatusNotFound {
		failed(w, response, b, err)
		return
	}
	if tools == nil {
		answer(w, m.ID, "error", jsonrpc.Errorf(mcp.INTERNAL_ERROR,
			"the server lists no tools: neither %s nor %s has a list \"tools\"", listPath, infoPath).JSON())
		return
	}
	result, _ := json.Marshal(map[string]any{"tools": tools})
	answer(w, m.ID, "result", result)
}

// listed are the tools of an answer: a list, an object with one, or a JSON-RPC response with such an object; nil: none.
func listed(b, id []byte) []map[string]json.RawMessage {
	if result, ok := ofResponse(b, id); ok {
		b = result
	}
	var tools []map[string]json.RawMessage
	var object struct{ Tools []map[string]json.RawMessage }
	if json.Unmarshal(b, &tools) != nil {
		if json.Unmarshal(b, &object) != nil {
			return nil
		}
		tools = object.Tools
	}
	for _, t := range tools {
		if name, ok := t["tool"]; ok && t["name"] == nil {
			t["name"] = name
			delete(t, "tool")
		}
	}
	return tools
}

// ofResponse returns the result of a JSON-RPC response with that id.
func ofResponse(b, id []byte) ([]byte, bool) {
	m, err := jsonrpc.Parse(b)
	return m.Result, err == nil && m.Version && bytes.Equal(m.ID, id) && m.Result != nil
}

// call has a tool called. The server answers with a JSON-RPC response, or with a result alone.
func (s *seed) call(w http.ResponseWriter, ctx context.Context, m jsonrpc.Message, body []byte) {
	response, b, err := s.ask(ctx, http.MethodPost, callPath, body)
	if err != nil || response.StatusCode != http.StatusOK {
		failed(w, response, b, err)
		return
	}
	if r, err := jsonrpc.Parse(b); err == nil && r.Version {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b) // it may have another id: who reads it checks that
		return
	}
	if !json.Valid(b) {
		answer(w, m.ID, "error", jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the server answers with what is not JSON").JSON())
		return
	}
	var result struct{ Content []json.RawMessage }
	if json.Unmarshal(b, &result) != nil || result.Content == nil {
		text, _ := json.Marshal(map[string]any{"content": []map[string]string{{"type": "text", "text": string(b)}}})
		b = text
	}
	answer(w, m.ID, "result", b)
}

// failed passes on how a request has failed.
func failed(w http.ResponseWriter, response *http.Response, body []byte, err error) {
	if err != nil {
		panic(http.ErrAbortHandler) // as the server's connection broke, so does this one
	}
	for _, name := range []string{"Retry-After", "WWW-Authenticate", "Content-Type"} {
		if v := response.Header.Get(name); v != "" && !strings.ContainsAny(v, "\r\n") {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(max(response.StatusCode, 400))
	_, _ = w.Write(body)
}
