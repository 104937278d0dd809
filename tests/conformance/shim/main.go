// Command shim is an MCP server on stdio that relays every message to a server on streamable HTTP, unchanged: it lets
// the conformance suite, whose own servers are on HTTP, judge a client that starts its servers and talks to them on
// stdio.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

// maxLine bounds one message, in bytes.
const maxLine = 16 << 20

func main() {
	dial := flag.String("dial", "", "connect here, `host:port`, whatever host the URL names")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: shim [-dial host:port] URL")
		os.Exit(2)
	}
	transport := &http.Transport{} // without Proxy: the proxy of the sandbox would be one more thing to be judged
	if *dial != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, *dial)
		}
	}
	r := &relay{url: flag.Arg(0), http: &http.Client{Transport: transport}, out: os.Stdout, pending: map[string]context.CancelFunc{}}
	if err := r.run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		os.Exit(1)
	}
}

// relay stands between one client on stdio and one server on HTTP.
type relay struct {
	url  string
	http *http.Client

	mu       sync.Mutex // guards what follows, and writing
	out      io.Writer
	session  string // Mcp-Session-Id that the server gave
	protocol string // revision agreed on in a handshake; "" before, and without one
	pending  map[string]context.CancelFunc
}

// message is what the relay has to know of one.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params struct {
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		RequestID json.RawMessage            `json:"requestId"`
		Meta      map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
	Result struct {
		Protocol string `json:"protocolVersion"`
	} `json:"result"`
	Error json.RawMessage `json:"error,omitempty"`
}

// revision is the one that a request of the stateless protocol names itself; "" if it names none.
func (m message) revision() string {
	var s string
	json.Unmarshal(m.Params.Meta["io.modelcontextprotocol/protocolVersion"], &s)
	return s
}

// run relays until in ends. A request runs beside the others; whatever needs no answer is delivered before the next
// line is read, so that order is kept where it matters.
func (r *relay) run(in io.Reader) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("a line that is no message: %q", line)
		}
		switch {
		case m.Method == "notifications/cancelled" && r.stateless():
			r.abandon(m.Params.RequestID) // there, to close the stream is to cancel (2026-07-28, transports)
		case m.Method == "" || m.ID == nil:
			if err := r.deliver(ctx, m, line); err != nil {
				fmt.Fprintln(os.Stderr, "shim:", err)
			}
			if m.Method == "notifications/initialized" {
				running.Go(func() { r.listen(ctx) })
			}
		default:
			call, done := context.WithCancel(ctx)
			r.mu.Lock()
			r.pending[string(m.ID)] = done
			r.mu.Unlock()
			running.Go(func() {
				defer r.abandon(m.ID)
				r.ask(call, m, line)
			})
		}
	}
	return lines.Err()
}

func (r *relay) stateless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protocol == ""
}

// abandon ends a request that runs.
func (r *relay) abandon(id json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done := r.pending[string(id)]; done != nil {
		done()
		delete(r.pending, string(id))
	}
}

// deliver posts a notification or an answer.
func (r *relay) deliver(ctx context.Context, m message, line []byte) error {
	resp, err := r.post(ctx, m, line)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s: the server says %s", m.Method, resp.Status)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxLine))
	return err
}

// ask posts a request and writes whatever comes back. There is an answer in any case, unless it was abandoned.
func (r *relay) ask(ctx context.Context, m message, line []byte) {
	answered, err := r.exchange(ctx, m, line)
	if answered || ctx.Err() != nil {
		return
	}
	if err == nil {
		err = fmt.Errorf("the response ended without an answer")
	}
	text, _ := json.Marshal(map[string]any{"code": -32603, "message": "shim: " + err.Error()})
	r.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, text))
}

func (r *relay) exchange(ctx context.Context, m message, line []byte) (answered bool, err error) {
	resp, err := r.post(ctx, m, line)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		r.mu.Lock()
		r.session = s
		r.mu.Unlock()
	}
	err = messages(resp, func(b []byte) {
		var got message
		if json.Unmarshal(b, &got) != nil {
			return
		}
		if got.Method == "" && string(got.ID) != string(m.ID) && got.Error != nil {
			b = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, got.Error) // over HTTP it needs no id
		}
		if got.Method == "" {
			answered = true
			r.agree(m, got)
		}
		r.write(b)
	})
	return answered, err
}

// agree takes note of a handshake.
func (r *relay) agree(asked, got message) {
	if asked.Method == "initialize" && got.Result.Protocol != "" {
		r.mu.Lock()
		r.protocol = got.Result.Protocol
		r.mu.Unlock()
	}
}

// listen writes what a server with sessions sends of itself.
func (r *relay) listen(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	r.head(req.Header, message{})
	resp, err := r.http.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		messages(resp, r.write)
	}
}

// write puts one message on a line.
func (r *relay) write(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.out.Write(append(oneLine(b), '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
	}
}
