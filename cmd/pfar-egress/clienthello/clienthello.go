// Package clienthello reads from a connection as much as TLS's first message takes and returns the server name in it,
// with every byte to pass on.
package clienthello

import (
	"errors"
	"io"
)

// Hello is what a ClientHello says of where it wants to go, in the clear. A server may see another hello than this one:
// the one inside ECH, the second one after a HelloRetryRequest (RFC 8446 4.1.2 wants it to have the same name, and not
// every server looks), or one of a renegotiation. So the name decides together with the address that the bytes go to.
type Hello struct {
	ServerName    string // as sent: ASCII, not empty, no address, no trailing dot; its case and labels are not looked at
	HasServerName bool

	// ECH is set by an encrypted_client_hello extension (RFC 9849), also by one of its drafts, or ESNI. One that is
	// filled with noise (GREASE, RFC 9849 6.2) looks the same to everyone but the server: that is what it is for.
	ECH bool
}

// Error is why what came is not taken for a ClientHello.
type Error struct {
	Reason string // one of the constants below
	Detail string // a sentence, without anything that was sent
}

func (e *Error) Error() string { return e.Reason }

// Reasons of an Error. They are stable: logs and audit records carry them.
const (
	NotTLS     = "not-tls"         // the first bytes are no TLS record with a handshake message
	TooLarge   = "hello-too-large" // over the limit, or in more records or extensions than any client sends
	Malformed  = "hello-malformed" // no ClientHello, or one that programs read in different ways
	ServerName = "sni-malformed"   // the server_name extension is not one name
	Truncated  = "hello-truncated" // the connection ended within the hello
)

var (
	errTooLarge  = &Error{TooLarge, "The ClientHello exceeds the bridge's limit."}
	errTruncated = &Error{Truncated, "The connection ended within the ClientHello."}
)

const (
	firstBuffer = 2048 // bytes: a hello with a post-quantum key share fits
	maxIdle     = 100  // reads in a row that return nothing, as in bufio
)

// Read reads TLS records (RFC 8446 5.1, RFC 5246 6.2.1) until their first handshake message, a ClientHello, is
// complete. The limit is in bytes, record headers included; no more than that is taken from r, and no Read follows the
// one that completes the hello. Faults are found as the bytes arrive: whoever sends nonsense need not send all of it.
//
// raw is all that was read, also beside an error, and also what came after the hello (early data). The hello is zero
// beside an error. Errors are *Error, or r's own, such as a timeout, unchanged. A reader that ended before it sent
// anything yields io.EOF. A hello without a server name is no error: a client that was given an address sends none.
func Read(r io.Reader, limit int) (h Hello, raw []byte, err error) {
	s := records{limit: limit, message: message{need: 1}}
	raw = make([]byte, 0, max(0, min(limit, firstBuffer)))
	for idle := 0; ; {
		if len(raw) == cap(raw) {
			if len(raw) >= limit {
				return Hello{}, raw, errTooLarge
			}
			raw = append(make([]byte, 0, min(limit, 4*cap(raw))), raw...)
		}
		n, err := r.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		done, fault := s.scan(raw)
		if fault != nil {
			return Hello{}, raw, fault
		}
		if done {
			return s.message.hello, raw, nil
		}
		if idle++; n > 0 {
			idle = 0
		}
		switch {
		case err == nil && idle < maxIdle:
		case err == nil:
			return Hello{}, raw, io.ErrNoProgress
		case errors.Is(err, io.EOF) && len(raw) > 0:
			return Hello{}, raw, errTruncated
		default:
			return Hello{}, raw, err
		}
	}
}
