package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/redact"
)

// late is how net/http and the net package say that a time is over.
type late string

func (l late) Error() string { return string(l) }
func (late) Timeout() bool   { return true }
func (late) Temporary() bool { return true }

// TestWords: of what a library says of a connection a client hears pfar's words alone, and the owner has the rest
// without addresses of the sandbox's inside.
func TestWords(t *testing.T) {
	inside := &net.TCPAddr{IP: net.ParseIP("2001:2::7"), Port: 443}
	socket := &net.UnixAddr{Net: "unix", Name: "/run/socket/mcp.sock"}
	op := func(name string, addr net.Addr, err error) error {
		return &net.OpError{Op: name, Net: addr.Network(), Source: addr, Addr: addr, Err: err}
	}
	call := os.NewSyscallError
	broken := func(err error) error { return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err) }
	lookup := &net.DNSError{Err: "read udp 10.0.0.7:4->10.0.0.1:53: refused", Name: host, Server: "127.0.0.1:53"}
	unknown := &net.DNSError{Err: "no such host", Name: host, Server: "127.0.0.1:53", IsNotFound: true}
	none := error(nil)
	unasked := fmt.Errorf("readLoopPeekFailLocked: %w", none)
	over := &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}
	for _, test := range []struct {
		err    error
		class  Class
		client string
		cause  string // "": the owner has no more than the client
	}{
		{op("read", inside, call("read", unix.ECONNRESET)), NetworkError, closed, "read: connection reset by peer"},
		{broken(op("write", inside, call("write", unix.EPIPE))), NetworkError, closed, "write: broken pipe"},
		{op("read", socket, call("read", unix.ECONNRESET)), NetworkError, closed, "read: connection reset by peer"},
		{op("read", inside, late("i/o timeout")), Timeout, "the server does not answer in time", ""},
		{op("read", inside, net.ErrClosed), NetworkError, closed, "read: use of closed network connection"},
		{op("read", inside, call("read", unix.EIO)), NetworkError, "the connection to the server broke",
			"read: input/output error"},
		{unasked, NetworkError, "the server says something before it is asked", ""},
		{errors.New("http: server closed idle connection"), NetworkError, closed, ""},
		{io.EOF, NetworkError, closed, ""},
		{broken(io.ErrUnexpectedEOF), NetworkError, closed, ""},
		{broken(errors.New(`malformed HTTP response "220 smtp ready"`)), NetworkError, "the server's answer is not HTTP",
			`malformed HTTP response "220 smtp ready"`},
		{broken(errors.New(`malformed HTTP response "tls: "`)), NetworkError, "the server's answer is not HTTP",
			`malformed HTTP response "tls: "`},
		{errors.New("net/http: server response headers exceeded 65536 bytes; aborted"), NetworkError,
			"the header of the server's answer is too long",
			"net/http: server response headers exceeded 65536 bytes; aborted"},
		{late("net/http: timeout awaiting response headers"), Timeout, "the server does not begin to answer in time",
			""},
		{late("net/http: TLS handshake timeout"), Timeout, "the server does not agree on TLS in time", ""},
		{context.DeadlineExceeded, Timeout, "the server does not answer in time", ""},
		{context.Canceled, NetworkError, Ended, ""},
		{op("dial", inside, call("connect", unix.ECONNREFUSED)), NetworkError, nobody,
			"connect: connection refused"},
		{op("dial", socket, call("connect", unix.ENOENT)), NetworkError, nobody,
			"connect: no such file or directory"},
		{op("dial", inside, call("connect", unix.ENETUNREACH)), NetworkError, "the server cannot be reached",
			"connect: network is unreachable"},
		{op("dial", inside, late("i/o timeout")), Timeout, "the server does not take the connection in time",
			"dial: i/o timeout"},
		{op("dial", inside, unknown), NetworkError, "the name of the server leads to no address",
			`no such host: "mcp.test"`},
		{op("dial", inside, lookup), NetworkError, "the name of the server cannot be looked up",
			`looking up "mcp.test"`},
		{op("proxyconnect", inside, op("dial", inside, call("connect", unix.ECONNREFUSED))), NetworkError,
			"the connection to the server broke", "connect: connection refused"},
		{op("remote error", inside, errors.New("tls: handshake failure")), TLS,
			unproven + "it and pfar find no common TLS", "remote error: tls: handshake failure"},
		{x509.HostnameError{Certificate: new(x509.Certificate), Host: host}, TLS,
			unproven + "its certificate is for another name",
			"x509: certificate is not valid for any names, but wanted to match mcp.test"},
		{x509.UnknownAuthorityError{}, TLS, unproven + "no authority that pfar trusts has signed its certificate",
			"x509: certificate signed by unknown authority"},
		{over, TLS, unproven + "its certificate has expired, or is not valid yet",
			"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: "},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, TLS,
			unproven + "it does not speak TLS",
			"tls: first record does not look like a TLS handshake"},
		{errors.New("something new"), NetworkError, "the connection to the server broke", "something new"},
		{New(Schema, "its own"), Schema, "its own", ""},
	} {
		f := Of(test.err)
		line := string(f.Answer(redact.New(nil), []byte("7")))
		want := fmt.Sprintf(`"message":"server: %s: %s","data"`, test.class, test.client)
		if f.Class != test.class || f.Detail != test.client || f.Cause != test.cause || !strings.Contains(line, want) {
			t.Errorf("%v:\nis   %s: %q (%s)\nwant %s: %q (%s)\n%s", test.err, f.Class, f.Detail, f.Cause, test.class,
				test.client, test.cause, line)
		}
		for _, no := range []string{"2001:2::", "/run/", "127.0.0.1", "10.0.0.1", "->", "@", "%!", "PeekFail"} {
			if strings.Contains(line, no) || strings.Contains(f.Error(), no) {
				t.Errorf("%q is in %s", no, line)
			}
		}
		if unsent := strings.HasPrefix(test.err.Error(), "dial "); f.Unsent != unsent {
			t.Errorf("%v: a connection was made: %v", test.err, !f.Unsent)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(New(Timeout, "the server has not answered"))
	if f := OfError(ended, io.EOF); f.Class != Timeout || f.Detail != "the server has not answered" {
		t.Errorf("what has ended the request is lost: %v", f)
	}
}

const (
	host   = "mcp.test"
	nobody = "nobody listens where the server should be"
)
