package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// maxHead bounds the head of a request, in bytes.
const maxHead = 64 << 10

// front stands before pfar's endpoint for a client that cannot be given a token. It adds one, and puts the endpoint's
// port in the place of its own in Host and Origin. All else passes byte for byte, and what is not HTTP as this reads it
// ends the connection: what pfar is asked to refuse, pfar refuses, and nothing before it.
type front struct {
	listener net.Listener
	to       string // host:port of the endpoint
	token    string

	mu          sync.Mutex // guards connections
	connections map[net.Conn]bool
	running     sync.WaitGroup
}

// newFront listens on a port of its own.
func newFront(to, token string) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, to: to, token: token, connections: map[net.Conn]bool{}}
	f.running.Go(f.accept)
	return f, nil
}

func (f *front) address() string { return f.listener.Addr().String() }

// close cuts every connection, and returns when nothing is left of them.
func (f *front) close() {
	f.listener.Close()
	f.mu.Lock()
	for c := range f.connections {
		c.Close()
	}
	f.connections = nil
	f.mu.Unlock()
	f.running.Wait()
}

func (f *front) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.relay(c) })
	}
}

// keep remembers a connection to cut; it reports false when all are cut already.
func (f *front) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connections == nil {
		c.Close()
		return false
	}
	f.connections[c] = true
	return true
}

func (f *front) drop(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Close()
	delete(f.connections, c)
}

// relay carries requests there one by one, and back whatever comes. Whoever hangs up first ends the other side too.
func (f *front) relay(client net.Conn) {
	if !f.keep(client) {
		return
	}
	defer f.drop(client)
	server, err := net.Dial("tcp", f.to)
	if err != nil || !f.keep(server) {
		return
	}
	defer f.drop(server)
	f.running.Go(func() {
		io.Copy(client, server)
		client.Close()
	})
	in := bufio.NewReader(client)
	for {
		head, body, err := f.head(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(server, head); err != nil {
			return
		}
		if _, err := io.CopyN(server, in, body); err != nil {
			return
		}
	}
}

// head reads the head of a request and returns it as it is to be sent on, with the length of the body behind it.
func (f *front) head(in *bufio.Reader) (head string, body int64, err error) {
	var out strings.Builder
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", 0, err
		}
		if out.Len()+len(line) > maxHead {
			return "", 0, fmt.Errorf("a head of more than %d bytes", maxHead)
		}
		if strings.Trim(line, "\r\n") == "" {
			fmt.Fprintf(&out, "Authorization: Bearer %s\r\n%s", f.token, line)
			return out.String(), body, nil
		}
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(name) {
		case "host", "origin":
			if !first {
				line = name + ":" + f.port(value)
			}
		case "content-length":
			if body, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil || body < 0 {
				return "", 0, fmt.Errorf("a length of %q", value)
			}
		case "transfer-encoding":
			return "", 0, fmt.Errorf("a body without a length, as no client here sends one")
		}
		out.WriteString(line)
	}
}

// port replaces this listener's port at the end of an authority, and only that: a host that is not this machine's
// stays one.
func (f *front) port(value string) string {
	_, own, _ := net.SplitHostPort(f.address())
	_, theirs, _ := net.SplitHostPort(f.to)
	text := strings.TrimRight(value, " \t\r\n")
	if rest, ok := strings.CutSuffix(text, ":"+own); ok {
		return rest + ":" + theirs + value[len(text):]
	}
	return value
}

func TestFront(t *testing.T) {
	const token = "0123456789abcdef"
	seen := make(chan http.Header, 1)
	gone := make(chan struct{})
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		h.Set("Host", r.Host)
		h.Set("Body", string(b))
		seen <- h
		if r.URL.Path == "/wait" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	f, err := newFront(l.Addr().String(), token)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	_, own, _ := net.SplitHostPort(f.address())
	_, theirs, _ := net.SplitHostPort(f.to)

	client := &http.Client{Timeout: soon}
	defer client.CloseIdleConnections()
	for _, c := range []struct{ host, origin, wantHost, wantOrigin string }{
		{"evil.example.com", "http://evil.example.com", "evil.example.com", "http://evil.example.com"},
		{"evil.example.com:80", "null", "evil.example.com:80", "null"},
		{"evil.example.com:" + own, "http://evil.example.com:" + own, "evil.example.com:" + theirs, "http://evil.example.com:" + theirs},
		{"127.0.0.1:" + own, "http://127.0.0.1:" + own, "127.0.0.1:" + theirs, "http://127.0.0.1:" + theirs},
		{"localhost:" + own, "http://localhost:1", "localhost:" + theirs, "http://localhost:1"},
	} {
		req, _ := http.NewRequest(http.MethodPost, "http://"+f.address()+"/", strings.NewReader("body"))
		req.Host = c.host
		req.Header.Set("Origin", c.origin)
		req.Header["x-odd-CASE"] = []string{"as it was"}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := <-seen
		if h.Get("Host") != c.wantHost || h.Get("Origin") != c.wantOrigin {
			t.Errorf("Host %q and Origin %q became %q and %q", c.host, c.origin, h.Get("Host"), h.Get("Origin"))
		}
		if h.Get("Authorization") != "Bearer "+token || h.Get("Body") != "body" || h.Get("X-Odd-Case") != "as it was" {
			t.Errorf("of a request arrived %q", h)
		}
	}

	resp, err := client.Get("http://" + f.address() + "/wait")
	if err != nil {
		t.Fatal(err)
	}
	<-seen
	resp.Body.Close() // a client that hangs up cancels: the server has to see it
	select {
	case <-gone:
	case <-time.After(soon):
		t.Error("the server does not see that the client has hung up")
	}
}
