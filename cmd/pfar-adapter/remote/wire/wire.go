// Package wire asks one host over HTTPS: it follows no redirect elsewhere, bounds what it reads, and gives up by the
// clock.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/units"
)

// Limits bound what the host may cost.
type Limits struct {
	Connect   time.Duration // to connect, and again for TLS
	FirstByte time.Duration // from the request until the response's head
	Idle      time.Duration // between two pieces of a body
	Pooled    time.Duration // a connection that nobody uses
	Head      int64         // bytes of a response's head
	Redirects int           // in a row
}

// longest is more than any call may take: the gateway ends those by its own clock, which knows the declaration.
const longest = 65 * time.Minute

// DefaultLimits are generous to an honest host.
func DefaultLimits() Limits {
	return Limits{
		Connect: 10 * time.Second, FirstByte: longest, Idle: longest, Pooled: time.Minute,
		Head: 64 << 10, Redirects: 3,
	}
}

// Config is what a Client needs.
type Config struct {
	Token  string // sent as the bearer's; "" for none
	Header map[string]string
	Query  map[string]string
	Proxy  *url.URL // by which hosts are reached that are addresses; nil: as names are
	Limits Limits
	Roots  *x509.CertPool // nil: those of the system, or of SSL_CERT_FILE

	// Dial connects; nil: to the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client asks hosts. It keeps no cookies, knows no proxy, and speaks HTTP/1.1 only.
type Client struct {
	transport *http.Transport
	limits    Limits
	authority string // the value of Authorization
	header    map[string]string
	query     url.Values
	agent     string
}

// New returns a client.
func New(c Config) *Client {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: c.Limits.Connect, KeepAlive: 30 * time.Second}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	client := &Client{limits: c.Limits, agent: "pfar/" + units.Version(), header: c.Header, transport: &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if _, err := netip.ParseAddr(r.URL.Hostname()); err != nil {
				return nil, nil
			}
			return c.Proxy, nil
		},
		OnProxyConnectResponse: tunnelled,
		DialContext:            c.Dial,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots},
		TLSHandshakeTimeout:    c.Limits.Connect,
		ResponseHeaderTimeout:  c.Limits.FirstByte,
		MaxResponseHeaderBytes: c.Limits.Head,
		IdleConnTimeout:        c.Limits.Pooled,
		MaxIdleConnsPerHost:    16,
		DisableCompression:     true, // it would unpack without a bound
	}}
	if c.Token != "" {
		client.authority = "Bearer " + c.Token
	}
	client.query = url.Values{}
	for name, value := range c.Query {
		client.query.Set(name, value)
	}
	return client
}

// tunnelled returns why the proxy does not connect to an address.
func tunnelled(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	f := fault.OfResponse(response.StatusCode, response.Header, nil, "", time.Now())
	f.Unsent = true
	return f
}

// Close closes connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Request is one request. It has no body if Body is nil.
type Request struct {
	Method string
	URL    *url.URL
	Header http.Header
	Body   []byte
	Idle   time.Duration // instead of Limits.Idle; 0: that
}

// Do sends a request and returns the response, whose body is unpacked. Every error is a *fault.Fault. Redirects within
// the origin are followed: 307 and 308 of every request, and 301, 302 and 303 of one that only reads.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	for at, hops := r.URL, 0; ; hops++ {
		response, err := c.once(ctx, r, at)
		if err != nil {
			return nil, err
		}
		if !isRedirect(response.StatusCode) {
			return unpacked(response)
		}
		Discard(response)
		next, err := target(r, at, response)
		if err != nil {
			return nil, err
		}
		if hops == c.limits.Redirects {
			return nil, redirected(response.StatusCode, "more than %d redirects", c.limits.Redirects)
		}
		at = next
	}
}

func (c *Client) once(ctx context.Context, r Request, at *url.URL) (*http.Response, error) {
	header := r.Header.Clone()
	header.Set("User-Agent", c.agent)
	header.Set("Accept-Encoding", "identity")
	if c.authority != "" {
		header.Set("Authorization", c.authority)
	}
	for name, value := range c.header {
		header.Set(name, value)
	}
	if len(c.query) > 0 {
		asked := *at
		asked.RawQuery = strings.TrimPrefix(at.RawQuery+"&"+c.query.Encode(), "&")
		at = &asked
	}
	ctx, cancel := context.WithCancelCause(ctx)
	request := (&http.Request{
		Method: r.Method, URL: at, Host: at.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if r.Body != nil {
		request.ContentLength = int64(len(r.Body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
		request.Body, _ = request.GetBody()
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		err = fault.OfError(ctx, err)
		cancel(err)
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols { // the body is the connection, which no context ends
		response.Body.Close()
		f := fault.New(fault.Schema, "the server wants to speak a protocol other than HTTP")
		f.Status = response.StatusCode
		cancel(f)
		return nil, f
	}
	response.Body = watch(ctx, response.Body, cmp.Or(r.Idle, c.limits.Idle), cancel)
	return response, nil
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func redirected(status int, format string, args ...any) error {
	f := fault.New(fault.NetworkError, "redirect refused: "+format, args...)
	f.Status = status
	return f
}

// target returns where a redirect leads, if it may.
func target(r Request, at *url.URL, response *http.Response) (*url.URL, error) {
	status := response.StatusCode
	to, err := at.Parse(response.Header.Get("Location"))
	switch {
	case err != nil || response.Header.Get("Location") == "":
		return nil, redirected(status, "the server does not say where to")
	case !SameOrigin(at, to):
		return nil, redirected(status, "the redirect leads to %s, and the declaration says %s", Origin(to), Origin(at))
	case r.Method != http.MethodGet && status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect:
		return nil, redirected(status, "%s may only be redirected by 307 and 308", r.Method)
	}
	to.Fragment, to.RawFragment = "", ""
	return to, nil
}

// SameOrigin reports whether two addresses have the scheme, the host and the port in common, and the second no user.
func SameOrigin(a, b *url.URL) bool { return b.User == nil && b.Opaque == "" && Origin(a) == Origin(b) }

// Origin is the scheme, the host and the port of an address.
func Origin(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && !(u.Scheme == "https" && port == "443") && !(u.Scheme == "http" && port == "80") {
		host += ":" + port
	}
	return u.Scheme + "://" + host
}

// CheckURL reports why a server is not asked at an address.
func CheckURL(u *url.URL, insecure bool) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return fmt.Errorf("address %q is not an https: URL", u.Redacted())
	case u.Scheme == "http" && !insecure:
		return fmt.Errorf("address %q is not encrypted; use an https: URL", u.Redacted())
	case u.User != nil:
		return errors.New("the address has a user: credentials come in a variable (--token-env)")
	case u.Fragment != "":
		return fmt.Errorf("address %q has a fragment", u.Redacted())
	}
	return nil
}
