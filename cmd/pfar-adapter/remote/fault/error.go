package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The words for what becomes of a connection.
const (
	Ended    = "pfar has ended its connection to the server"
	closed   = "the server closed the connection before it had answered"
	unproven = "the server does not prove who it is: "
)

// Of returns the fault that an error is. Of any other error only pfar's own words are in Detail.
func Of(err error) *Fault { return OfError(context.Background(), err) }

// OfError returns the fault that an error of a connection is, or the one that has ended ctx.
func OfError(ctx context.Context, err error) *Fault {
	for _, e := range []error{err, context.Cause(ctx)} {
		if f, ok := errors.AsType[*Fault](e); ok {
			return f
		}
	}
	f := ofDial(err)
	if f == nil {
		f = ofTLS(err)
	}
	if f == nil {
		f = ofStream(err)
	}
	return f
}

// ofDial is the fault of a connection that was never made; nil: it was.
func ofDial(err error) *Fault {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" {
		return nil
	}
	f := New(NetworkError, "the server cannot be reached")
	f.Unsent, f.Cause = true, Cause(err)
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	switch {
	case isLookup && lookup.IsNotFound:
		f.Detail = "the name of the server leads to no address"
	case isLookup:
		f.Detail = "the name of the server cannot be looked up"
	case op.Timeout():
		f.Class, f.Detail = Timeout, "the server does not take the connection in time"
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		f.Detail = "nobody listens where the server should be"
	}
	return f
}

// ofTLS is the fault of a server that does not prove who it is; nil: that is not what the error says.
func ofTLS(err error) *Fault {
	_, name := errors.AsType[x509.HostnameError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	words := ""
	switch {
	case name:
		words = "its certificate is for another name"
	case unknown:
		words = "no authority that pfar trusts has signed its certificate"
	case isInvalid && invalid.Reason == x509.Expired:
		words = "its certificate has expired, or is not valid yet"
	case isInvalid, verify:
		words = "its certificate is not valid"
	case record:
		words = "it does not speak TLS"
	case anyBegins(err, "tls: "): // crypto/tls has no type for most
		words = "it and pfar find no common TLS"
	default:
		return nil
	}
	f := New(TLS, "%s", unproven+words)
	f.Cause = Cause(err)
	return f
}

// anyBegins reports whether the text of an error, or of one that it wraps, begins so.
func anyBegins(err error, text string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}

// ofStream is the fault of a connection that was made.
func ofStream(err error) *Fault {
	text := err.Error()
	timeout, isTimeout := errors.AsType[net.Error](err)
	is := func(list ...error) bool {
		return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
	}
	has := func(list ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(text, s) })
	}
	switch {
	case is(context.Canceled):
		return New(NetworkError, Ended)
	case strings.HasSuffix(text, "TLS handshake timeout"): // as the next one, of a type of net/http's own
		return New(Timeout, "the server does not agree on TLS in time")
	case strings.HasSuffix(text, "timeout awaiting response headers"):
		return New(Timeout, "the server does not begin to answer in time")
	case is(context.DeadlineExceeded), isTimeout && timeout.Timeout():
		return New(Timeout, "the server does not answer in time")
	case is(io.EOF, io.ErrUnexpectedEOF), text == "http: server closed idle connection":
		return New(NetworkError, closed)
	case strings.HasPrefix(text, "readLoopPeekFailLocked: "):
		return New(NetworkError, "the server says something before it is asked")
	}
	f := New(NetworkError, "the connection to the server broke")
	f.Cause = Cause(err)
	switch {
	case is(unix.ECONNRESET, unix.EPIPE, net.ErrClosed, io.ErrClosedPipe):
		f.Detail = closed
	case has("headers exceeded", "read limit of"):
		f.Detail = "the header of the server's answer is too long"
	case has("malformed", "chunk", "Content-Length", "transfer encoding", "trailer"): // of texts of net/http's
		f.Detail = "the server's answer is not HTTP"
	}
	return f
}

// Cause is what a library says of an error, without addresses: those inside of a sandbox tell nobody anything.
func Cause(err error) string {
	op, isOp := errors.AsType[*net.OpError](err)
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	file, isFile := errors.AsType[*fs.PathError](err)
	call, isCall := errors.AsType[*os.SyscallError](err)
	switch {
	case isLookup && lookup.IsNotFound:
		return fmt.Sprintf("no such host: %q", lookup.Name)
	case isLookup:
		return fmt.Sprintf("looking up %q", lookup.Name)
	case isCall:
		return call.Error()
	case isFile:
		return file.Op + ": " + Cause(file.Err)
	case isOp:
		return op.Op + ": " + Cause(op.Err)
	}
	return strings.TrimPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ")
}
