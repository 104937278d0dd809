package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/control"
)

// leastToken is the shortest token that is one: 128 bits in hexadecimal.
const leastToken = 32

// Loopback returns the endpoint for a TCP listener on loopback, where any process and any web page of the machine can
// knock: Host and Origin keep pages out (DNS rebinding, GC-01 to GC-15), the token other users' processes.
func (s *Server) Loopback(token []byte, port int) (http.Handler, error) {
	if len(token) < leastToken {
		return nil, fmt.Errorf("the token has %d bytes, at least %d are needed", len(token), leastToken)
	}
	own := access.DigestOf(token)
	s.let(&own, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host, port) {
			refuse(w, http.StatusForbidden, "Host is not this endpoint's")
			return
		}
		if !ownOrigin(r.Header) {
			refuse(w, http.StatusForbidden, "Origin is not a loopback one")
			return
		}
		t := s.admitted(r.Context())
		if t == nil {
			unknown(w)
			return
		}
		digest, ok := bearer(r.Header)
		var m *member
		if ok {
			m = t.bearer(digest)
		}
		if m == nil {
			challenge, text := `Bearer realm="pfar"`, "a bearer token is needed"+tokens
			if len(r.Header["Authorization"]) > 0 { // RFC 6750 section 3.1
				challenge, text = challenge+`, error="invalid_token"`, "the bearer token is wrong"+tokens
			}
			w.Header().Set("WWW-Authenticate", challenge)
			refuse(w, http.StatusUnauthorized, text)
			return
		}
		s.serve(w, r, t, m, binding{Token: digest})
	}), nil
}

// tokens says where one gets a token: a program's configuration often has none, or an old one.
const tokens = `: "pfar client add NAME" makes a client and prints its token, "pfar client config NAME" prints where it goes`

// unknown answers a request for which nobody has said who is let in.
func unknown(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "pfard has not said yet which clients are declared")
}

// Local returns the endpoint for a Unix listener whose connections Peers has let in. Beside declared clients, root and
// the given users come in, as the default client or as whom the path names: the operator, or any client.
func (s *Server) Local(operators ...uint32) http.Handler {
	s.let(nil, operators)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, ok := peerOf(r.Context())
		if !ok {
			refuse(w, http.StatusForbidden, "the connection's peer is not known")
			return
		}
		t := s.admitted(r.Context())
		if t == nil {
			unknown(w)
			return
		}
		s.serve(w, r, t, t.peer(uid), binding{UID: uid})
	})
}

func ownHost(host string, port int) bool {
	rest := ""
	for _, h := range [...]string{"127.0.0.1", "[::1]", "localhost"} {
		if len(host) >= len(h) && strings.EqualFold(host[:len(h)], h) {
			rest = host[len(h):]
			if rest == "" {
				return port == 80
			}
			return rest[0] == ':' && rest[1:] == strconv.Itoa(port)
		}
	}
	return false
}

func ownOrigin(h http.Header) bool {
	values, ok := h["Origin"]
	if !ok {
		return true // not a browser
	}
	if len(values) != 1 {
		return false
	}
	u, err := url.Parse(values[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || u.Opaque != "" {
		return false
	}
	return slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, u.Hostname())
}

// bearer returns the digest of the token that the request has, and false if it has none.
func bearer(h http.Header) (access.Digest, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return access.Digest{}, false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return access.Digest{}, false
	}
	return access.DigestOf([]byte(token)), true
}

// Peers is a Unix listener that lets in root, the given users and those who are declared clients, as the kernel knows
// them.
type Peers struct {
	*net.UnixListener
	UIDs     []uint32
	Declared func(uid uint32) bool // nil: nobody is
	Log      *slog.Logger
}

// Declared reports whether a user is a declared client, or may be one: as long as nobody has said who is declared, a
// connection is kept, and its requests wait.
func (s *Server) Declared(uid uint32) bool {
	t := s.clients.table.Load()
	return t == nil || t.uids[uid] != nil
}

// Accept returns the next connection that may be served.
func (p Peers) Accept() (net.Conn, error) {
	for {
		c, err := p.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := control.PeerOf(c)
		uid := uint32(peer.UID)
		if err == nil && (uid == 0 || slices.Contains(p.UIDs, uid) || p.Declared != nil && p.Declared(uid)) {
			return c, nil
		}
		if err == nil {
			err = fmt.Errorf("uid %d is not served", uid)
		}
		p.Log.Warn("refusing a client", "error", err.Error())
		c.Close()
	}
}

type peerKey struct{}

// peerOf returns the user at the other end of a request's Unix socket, and false if there is none that is known.
func peerOf(ctx context.Context) (uid uint32, ok bool) {
	uid, ok = ctx.Value(peerKey{}).(uint32)
	return uid, ok
}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = w.NetConn()
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	peer, err := control.PeerOf(u)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uint32(peer.UID))
}
