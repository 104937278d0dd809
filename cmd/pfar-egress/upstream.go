package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
)

// Refusals by the proxy of the host's network, or for want of it. The texts name neither it nor what it said: where the
// operator's network has its proxy is not the server's to learn. All are failures of the network, not of the policy.
var (
	errUpstreamNotReached = upstreamRefusal(502, "upstream-not-reached", "which could not be reached.")
	errUpstreamTimeout    = upstreamRefusal(504, "upstream-timeout", "which did not connect to the host in time.")
	errUpstreamAuth       = upstreamRefusal(502, "upstream-auth",
		"which wants other credentials than it was given. The owner of this machine can correct them.")
	errUpstreamRefused = upstreamRefusal(502, "upstream-refused",
		"which does not allow this connection. Many such proxies allow port 443 only.")
	errUpstreamFailed = upstreamRefusal(502, "upstream-failed", "which did not reach the host.")
	errUpstreamAnswer = upstreamRefusal(502, "upstream-answer", "whose answer was none that HTTP/1.1 knows.")
)

func upstreamRefusal(status int, reason, what string) *refusal {
	return &refusal{status, reason, "This machine reaches the internet through a proxy of its network, " + what}
}

// upstream is the proxy through which the host reaches the internet, as the operator has set it. Nil is none.
type upstream struct {
	https, http *proxyServer // of connections to port 80: http, as of all others: https; nil: none
	// apply returns nil for what NO_PROXY leaves out. The addresses that it returns hold no password.
	apply func(*url.URL) (*url.URL, error)
}

// proxyServer is one HTTP proxy.
type proxyServer struct {
	address       string // host:port, the operator's word: neither vetted nor a fully qualified name
	authorization string // value of Proxy-Authorization; "": none
}

// readUpstream reads the credential in dir. Without one, or if it sets no proxy, there is no upstream. No error quotes
// what it read, since any part of it may be the password.
func readUpstream(dir string) (*upstream, error) {
	if dir == "" {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, units.CredentialUpstream))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading credential %q: %w", units.CredentialUpstream, err)
	}
	var s units.Upstream
	if json.Unmarshal(b, &s) != nil {
		return nil, fmt.Errorf(`reading credential %q: it is not of the form {"https":"...","http":"...","no":"..."}`,
			units.CredentialUpstream)
	}
	var u upstream
	if u.https, err = parseProxyServer("HTTPS_PROXY", s.HTTPS); err != nil {
		return nil, err
	}
	if u.http, err = parseProxyServer("HTTP_PROXY", s.HTTP); err != nil {
		return nil, err
	}
	if u.https == nil && u.http == nil {
		return nil, nil
	}
	cfg := httpproxy.Config{NoProxy: s.No}
	if u.https != nil {
		cfg.HTTPSProxy = "http://" + u.https.address
	}
	if u.http != nil {
		cfg.HTTPProxy = "http://" + u.http.address
	}
	u.apply = cfg.ProxyFunc()
	return &u, nil
}

// parseProxyServer reads the value of variable: [http://][user:password@]host[:port][/]. It is not left to net/url,
// whose errors quote.
func parseProxyServer(variable, value string) (*proxyServer, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil, nil
	}
	bad := fmt.Errorf("reading %s: it is not of the form http://user:password@host:port (characters such as / and # "+
		"in the password are written percent-encoded)", variable)
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme, rest = "http", value // as curl and Go read it
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "http":
	case "https", "socks", "socks4", "socks4a", "socks5", "socks5h":
		return nil, fmt.Errorf("reading %s: pfar speaks to no proxy of the kind %s://; write http://host:port of an HTTP "+
			"proxy, or unset it in the environment of pfard", variable, scheme)
	default:
		return nil, bad
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "/?#") {
		return nil, bad
	}
	var s proxyServer
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		if s.authorization, ok = basic(rest[:i]); !ok {
			return nil, bad
		}
		rest = rest[i+1:]
	}
	if s.address, ok = hostPort(rest); !ok {
		return nil, bad
	}
	return &s, nil
}

// basic returns the credentials of RFC 7617, in which the user's name has no colon and neither part a control
// character.
func basic(userinfo string) (authorization string, ok bool) {
	name, password, _ := strings.Cut(userinfo, ":")
	name, err := url.PathUnescape(name)
	if err != nil || strings.Contains(name, ":") {
		return "", false
	}
	password, err = url.PathUnescape(password)
	if err != nil || strings.ContainsFunc(name+password, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password)), true
}

// hostPort completes the address of a proxy. The port is that of the scheme if there is none.
func hostPort(s string) (address string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), "80"
	}
	n, ok := egress.ParsePort(port)
	if !ok {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return net.JoinHostPort(a.String(), strconv.Itoa(int(n))), true
	}
	for i := range len(host) {
		c := host[i] | 0x20
		if (c < 'a' || c > 'z') && (host[i] < '0' || host[i] > '9') && !strings.ContainsRune("-._", rune(host[i])) {
			return "", false
		}
	}
	return host + ":" + strconv.Itoa(int(n)), host != ""
}

// choose returns the proxy for a connection, or nil. As programs read the variables, HTTP_PROXY is for http, which port
// 80 is here, and HTTPS_PROXY for what goes through a tunnel anyway.
func (u *upstream) choose(host string, port uint16) *proxyServer {
	scheme, s := "https", u.https
	if port == 80 {
		scheme, s = "http", u.http
	}
	to, err := u.apply(&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, strconv.Itoa(int(port)))})
	if to == nil || err != nil {
		return nil
	}
	return s
}

// answered is a refusal and what the proxy answered, for the owner's eyes only.
type answered struct {
	*refusal
	answer string
}

func (a answered) Error() string { return a.answer }
func (a answered) Unwrap() error { return a.refusal }

// tunnel asks for a tunnel on c (RFC 9110 section 9.3.6). When it returns nil, the next byte to be read from c is the
// first of the tunnel: in some protocols it is the other side that begins, and its word may come with the answer.
func (s *proxyServer) tunnel(ctx context.Context, c *net.TCPConn, target string, limit int) error {
	// Of a closed connection there is nothing to interrupt.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if s.authorization != "" {
		request += "Proxy-Authorization: " + s.authorization + "\r\n"
	}
	_, err := io.WriteString(c, request+"\r\n")
	var head []byte
	if err == nil {
		head, err = readAnswer(c, limit)
	}
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return judge(head)
}

// judge reads the answer to CONNECT. Its fields mean nothing: a 200 has no body, whatever they say.
func judge(head []byte) error {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	f := bytes.SplitN(line, []byte(" "), 3)
	if len(f) < 2 || string(f[0]) != "HTTP/1.1" && string(f[0]) != "HTTP/1.0" || len(f[1]) != 3 {
		return answered{errUpstreamAnswer, "the proxy did not answer in HTTP/1.1"}
	}
	status, err := strconv.ParseUint(string(f[1]), 10, 16)
	if err != nil {
		return answered{errUpstreamAnswer, "the proxy answered without a status"}
	}
	answer := fmt.Sprintf("the proxy answered %d", status)
	switch {
	case status == 200:
		return nil
	case status == 407:
		return answered{errUpstreamAuth, answer}
	case status == 504:
		return answered{errUpstreamTimeout, answer}
	case status >= 400 && status < 500:
		return answered{errUpstreamRefused, answer}
	case status >= 500 && status < 600:
		return answered{errUpstreamFailed, answer}
	}
	return answered{errUpstreamAnswer, answer}
}

// readAnswer reads up to and including the empty line and not a byte more: it looks at what has arrived before it takes
// it, so that c itself can be given on, and be spliced from.
func readAnswer(c *net.TCPConn, limit int) ([]byte, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	end := []byte("\r\n\r\n")
	head := make([]byte, 0, limit)
	for len(head) < limit {
		n, err := peek(raw, head[len(head):limit])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, answered{errUpstreamAnswer, "the proxy closed the connection without an answer"}
		}
		known := len(head)
		head = head[:known+n]
		from := max(0, known-len(end)+1) // the empty line may have come in two parts
		i := bytes.Index(head[from:], end)
		if i >= 0 {
			head = head[:from+i+len(end)]
		}
		if _, err := io.ReadFull(c, head[known:]); err != nil {
			return nil, err
		}
		if i >= 0 {
			return head, nil
		}
	}
	return nil, answered{errUpstreamAnswer, fmt.Sprintf("the head of its answer exceeds %d octets", limit)}
}

// peek waits until something has arrived, or the end, and copies it without taking it (MSG_PEEK, recv(2)).
func peek(raw syscall.RawConn, b []byte) (n int, err error) {
	werr := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_PEEK)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if werr != nil {
		return 0, werr
	}
	return n, err
}
