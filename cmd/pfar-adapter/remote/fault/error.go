package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
)

// OfError returns the fault that an error of a connection is.
func OfError(ctx context.Context, err error) *Fault {
	f := new(Fault)
	var (
		name     x509.HostnameError
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		alert    tls.AlertError
		lookup   *net.DNSError
		op       *net.OpError
		timeout  net.Error
		cause    = context.Cause(ctx)
		refusing = strings.Contains(err.Error(), "tls: ") // crypto/tls has no type for most
	)
	unsent := errors.As(err, &op) && op.Op == "dial"
	switch {
	case errors.As(err, &f), errors.As(cause, &f):
		return f
	case unsent:
		f = New(NetworkError, "%v", err)
		if f.Unsent = true; op.Timeout() {
			f.Class = Timeout
		}
		return f
	case errors.As(err, &name), errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &verify),
		errors.As(err, &record), errors.As(err, &alert), refusing:
		return New(TLS, "the server does not prove who it is: %v", err)
	case errors.As(err, &lookup):
		return New(NetworkError, "looking up its name: %v", err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return New(Timeout, "%v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return New(NetworkError, "the server closed the connection before it had answered")
	}
	return New(NetworkError, "%v", err)
}
