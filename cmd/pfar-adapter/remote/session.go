package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/units"
)

// session is what initialize begins with a server of a revision before 2026-07-28. Of some servers it has no id.
type session struct {
	ctx context.Context // ends with it
	end context.CancelCauseFunc

	endpoint  *url.URL      // of the HTTP+SSE pair: where messages are sent; nil: to the server's address
	told      chan struct{} // closed when the server knows that the session is open
	listening atomic.Bool   // its own event stream is open

	mu      sync.Mutex
	id      string
	version string
}

func newSession(ctx context.Context) *session {
	s := &session{told: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	return s
}

func (s *session) isPair() bool { return s.endpoint != nil }

// transport is the member that names the transport to the gateway. Without a session it is Streamable HTTP.
func (s *session) transport() []byte {
	name := units.TransportHTTP
	if s != nil && s.isPair() {
		name = units.TransportSSE
	}
	return fmt.Appendf(nil, "%q:%q", units.TransportKey, name)
}

// names returns the id and the revision, "" for none.
func (s *session) names() (id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.version
}

func (s *session) agree(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// maxSessionID bounds an id, in bytes.
const maxSessionID = 1 << 10

// name takes the id that the response to initialize gives the session. Later ones are none: a session has one id.
func (s *session) name(header http.Header) error {
	values := header.Values(mcp.HeaderSessionID)
	if len(values) == 0 {
		return nil
	}
	id := values[0]
	wrong := func(r rune) bool { return r < 0x21 || r > 0x7e }
	if len(values) > 1 || id == "" || len(id) > maxSessionID || strings.ContainsFunc(id, wrong) {
		return fault.New(fault.Schema, "the server's %s is not one id of visible ASCII characters", mcp.HeaderSessionID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	return nil
}

// add adds what every message of the session has in its header.
func (s *session) add(header http.Header) {
	id, version := s.names()
	if id != "" {
		header.Set(mcp.HeaderSessionID, id)
	}
	if version != "" {
		header.Set(mcp.HeaderProtocolVersion, version)
	}
}

// gone says that the server does not know the session any more.
type gone struct {
	why     *fault.Fault
	untaken bool // by the protocol's word, the server has not taken the request that it said so to
}

func (g *gone) Error() string { return g.why.Error() }
func (g *gone) Unwrap() error { return g.why }

// lost returns what a refusal says of the session, nil for nothing. The protocol's word for one that is gone is 404.
// Servers made after the examples of MCP's own TypeScript SDK say 400, and that the session is not valid. A tool might
// say the same of a session of another kind.
func (s *session) lost(f *fault.Fault) *gone {
	id, _ := s.names()
	switch {
	case id == "" && !s.isPair():
		return nil
	case f.Status == http.StatusNotFound:
		return &gone{f, true}
	case f.Status == http.StatusBadRequest && strings.Contains(strings.ToLower(f.Detail), "session"):
		return &gone{f, false}
	}
	return nil
}
