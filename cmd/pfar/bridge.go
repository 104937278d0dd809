package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/units/control"
)

// bridge carries JSON-RPC messages between stdio and one streamable HTTP endpoint.
type bridge struct {
	endpoint string
	http     *http.Client
	requests sync.WaitGroup
	limit    chan struct{} // requests under way

	writing sync.Mutex
	out     io.Writer
	broken  context.CancelCauseFunc // of the whole bridge, when nobody reads out

	mu       sync.Mutex
	session  string // Mcp-Session-Id
	protocol string // MCP-Protocol-Version, agreed on by initialize
	hello    []byte // the client's initialize, to greet a gateway that was restarted
	greeting sync.Mutex
	greeted  bool // the client has sent notifications/initialized
	running  map[string]stateless
}

// stateless is a request of 2026-07-28 under way: over HTTP it is cancelled by ending the exchange.
type stateless struct {
	listens bool // until the client takes it back, or leaves
	cancel  context.CancelFunc
}

const (
	maxRequests    = 256
	farewell       = 2 * time.Second // for the DELETE that ends the session
	firstReconnect = time.Second
	maxReconnect   = 30 * time.Second
)

func newBridge(endpoint string, client *http.Client, out io.Writer) *bridge {
	return &bridge{endpoint: endpoint, http: client, out: out, limit: make(chan struct{}, maxRequests), running: make(map[string]stateless)}
}

// run bridges until the input ends; then it waits for the answers under way and ends the session.
func (b *bridge) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.broken = cancel
	listening, stopListening := context.WithCancel(ctx)
	defer stopListening()
	err := untilEOF(ctx, in, func(line []byte) error {
		b.forward(ctx, listening, line)
		return nil
	})
	b.leave()
	b.requests.Wait()
	stopListening()
	b.end(context.WithoutCancel(ctx))
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// forward sends one message. Requests run side by side, but each is written before the next message is read, so that
// the gateway sees them in the client's order; initialize and what has no answer is waited for.
func (b *bridge) forward(ctx, listening context.Context, line []byte) {
	line = bytes.Clone(line)
	m, err := parseMessage(line)
	if err != nil {
		b.fail(nil, mcp.PARSE_ERROR, err)
		return
	}
	switch {
	case m.Method == string(mcp.MethodInitialize):
		b.mu.Lock()
		b.hello, b.session, b.protocol = line, "", ""
		b.mu.Unlock()
		b.exchange(ctx, m, line)
	case m.wantsAnswer():
		b.limit <- struct{}{}
		written := make(chan struct{})
		once := sync.OnceFunc(func() { close(written) })
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }})
		traced, done := b.begin(traced, m)
		b.requests.Go(func() {
			defer func() { <-b.limit }()
			defer once()
			defer done()
			b.exchange(traced, m, line)
		})
		<-written
	case m.Method == string(mcp.MethodNotificationCancelled) && b.cancel(m):
	default:
		b.exchange(ctx, m, line)
		if m.Method == string(mcp.MethodNotificationInitialized) {
			b.listenOnce(listening)
		}
	}
}

// begin notes a request of 2026-07-28, so that it can be cancelled.
func (b *bridge) begin(ctx context.Context, m message) (context.Context, func()) {
	if m.version() == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	id := string(m.ID)
	b.mu.Lock()
	b.running[id] = stateless{m.Method == string(mcp.MethodSubscriptionsListen), cancel}
	b.mu.Unlock()
	return ctx, func() {
		b.mu.Lock()
		delete(b.running, id)
		b.mu.Unlock()
		cancel()
	}
}

// cancel ends the request that a cancellation names, and reports whether there is such a one of 2026-07-28.
func (b *bridge) cancel(m message) bool {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &params) != nil {
		return false
	}
	b.mu.Lock()
	r, ok := b.running[string(params.RequestID)]
	b.mu.Unlock()
	if ok {
		r.cancel()
	}
	return ok
}

// leave ends what would last as long as the client listens.
func (b *bridge) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.running {
		if r.listens {
			r.cancel()
		}
	}
}

// exchange posts a message and writes what comes back. A request always gets an answer, if need be an error of ours.
func (b *bridge) exchange(ctx context.Context, m message, line []byte) {
	session, err := b.post(ctx, m, line)
	if errors.Is(err, errLost) && m.Method == string(mcp.MethodInitialize) {
		_, err = b.post(ctx, m, line) // clients give up a server whose first request fails
	}
	if errors.Is(err, errSessionGone) && m.Method != string(mcp.MethodInitialize) {
		if err = b.greet(ctx, session); err == nil {
			_, err = b.post(ctx, m, line)
		}
	}
	if err != nil && m.wantsAnswer() && ctx.Err() == nil {
		b.fail(m.ID, mcp.INTERNAL_ERROR, err)
	}
}

// errSessionGone says that the gateway does not know the session any more: it was restarted.
var errSessionGone = errors.New("the gateway ended the session")

// post sends a message and writes what comes back. It returns the session that it was sent in.
func (b *bridge) post(ctx context.Context, m message, line []byte) (session string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.endpoint, bytes.NewReader(line))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	session = b.setHeaders(request, m)
	response, err := b.http.Do(request)
	if err != nil {
		return session, reached(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound && session != "" {
		return session, errSessionGone
	}
	if m.Method == string(mcp.MethodInitialize) {
		b.mu.Lock()
		b.session = response.Header.Get(mcp.HeaderSessionID)
		b.mu.Unlock()
	}
	return session, b.relay(response, m)
}

// errLost says that the gateway ended while it had the request: it was killed, and the next one answers.
var errLost = errors.New("the gateway ended during the request")

// reached puts "is not running" into the words that people know.
func reached(err error) error {
	switch {
	case errors.Is(err, control.ErrNotRunning):
		return control.ErrNotRunning
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

// setHeaders sets what either generation of the protocol wants, and returns the session. The stateless one (2026-07-28)
// names its version in each message and has method and name repeated in headers.
func (b *bridge) setHeaders(request *http.Request, m message) (session string) {
	if version := m.version(); version != "" {
		request.Header.Set(mcp.HeaderProtocolVersion, version)
		for name, value := range mcp.StandardHeaders(version, mcp.MCPMethod(m.Method), m.Params) {
			request.Header.Set(name, value)
		}
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != "" {
		request.Header.Set(mcp.HeaderSessionID, b.session)
	}
	if b.protocol != "" {
		request.Header.Set(mcp.HeaderProtocolVersion, b.protocol)
	}
	return b.session
}

// relay writes the messages of one HTTP response.
func (b *bridge) relay(response *http.Response, m message) error {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusAccepted || response.StatusCode == http.StatusNoContent:
		return nil
	case mediaType == "text/event-stream" && response.StatusCode == http.StatusOK:
		answered := false
		err := readEvents(response.Body, func(e event) {
			answered = b.deliver(e.data, m) || answered
		})
		if err == nil && !answered {
			err = errors.New("the gateway ended the answer before it was complete")
		}
		if answered {
			return nil
		}
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the gateway's answer: %w", reached(err))
	case len(body) > maxMessage:
		return errTooLong
	case mediaType == "application/json" && b.deliver(body, m):
		return nil // also with an error status: a JSON-RPC error to this request
	}
	return fmt.Errorf("the gateway answered %s: %.200q", response.Status, bytes.TrimSpace(body))
}

// deliver writes one message of the gateway's, and reports whether it is the answer to m.
func (b *bridge) deliver(data []byte, m message) bool {
	var answer struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	err := json.Unmarshal(data, &answer)
	switch {
	case !json.Valid(data):
		return false
	case err == nil && answer.Method != "": // a request or notification of the gateway's own
		b.write(data)
		return false
	case m.wantsAnswer() && (err != nil || !argument.Same(answer.ID, m.ID)):
		return false // a refusal with a null id: relay puts it into words
	case m.Method != "" && !m.wantsAnswer():
		return true // a notification gets no answer on stdio
	}
	if m.Method == string(mcp.MethodInitialize) {
		b.agreed(answer.Result)
	}
	b.write(data)
	return true
}

// agreed keeps the revision that initialize settled on.
func (b *bridge) agreed(result json.RawMessage) {
	var r struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if json.Unmarshal(result, &r) == nil {
		b.mu.Lock()
		b.protocol = r.ProtocolVersion
		b.mu.Unlock()
	}
}

// write puts one message on one line. Line breaks stand between its tokens only, and become spaces; all else stays.
func (b *bridge) write(data []byte) {
	if !json.Valid(data) {
		return
	}
	line := append(slices.Clone(data), '\n')
	for i, c := range line[:len(data)] {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	if _, err := b.out.Write(line); err != nil {
		b.broken(fmt.Errorf("writing to standard output: %w", err))
	}
}

// fail answers a request in the gateway's stead.
func (b *bridge) fail(id json.RawMessage, code int, err error) {
	if id == nil {
		id = json.RawMessage("null")
	}
	data, err := json.Marshal(map[string]any{
		"jsonrpc": mcp.JSONRPC_VERSION, "id": id, "error": map[string]any{"code": code, "message": "pfar: " + err.Error()},
	})
	if err == nil {
		b.write(data)
	}
}
