// Package ask asks the gateway what only its operator may ask, over the gateway's Unix socket: the kernel tells the
// gateway who asks.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/control"
)

const (
	patience  = 30 * time.Second
	maxAnswer = 96 << 20 // bytes: a server's descriptors, as they are and for people
)

// Dial connects to a socket of the gateway's for the user uid. The gateway may run under a uid of its own: so it is the
// directory's owner that says whether the socket is ours. In /dev/shm anybody may squat a name.
func Dial(ctx context.Context, path string, uid int) (net.Conn, error) {
	dir := filepath.Dir(path)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: no directory %q", control.ErrNotRunning, dir)
	case err != nil:
		return nil, err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || (owner != 0 && owner != uid) || info.Mode().Perm()&0o022 != 0 {
		const words = "%w: %q must be a directory that only you or root may write to"
		return nil, fmt.Errorf(words, control.ErrDenied, dir)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: nothing answers at %q", control.ErrNotRunning, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: connecting to %q", control.ErrDenied, path)
	}
	return conn, err
}

// Transport returns one whose every connection goes to a socket of the gateway's.
func Transport(path string, uid int) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path, uid) },
		MaxIdleConnsPerHost: 64,
	}
}

// Refusal is an answer that is none, with the gateway's reason; "": it gave none.
type Refusal struct {
	Status int
	Reason string
}

func (r *Refusal) Error() string {
	if r.Reason == "" {
		return fmt.Sprintf("the gateway answers %q", fmt.Sprint(r.Status, " ", http.StatusText(r.Status)))
	}
	return r.Reason
}

// HungUp reports whether an error is that the gateway ended the connection before its answer was whole, as it does when
// it is killed or restarted. Whether it has done what it was asked is not known.
func HungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// Refused returns the gateway's reason: a text or, where it speaks JSON-RPC, that of its error.
func Refused(resp *http.Response) *Refusal {
	var refusal struct {
		Error json.RawMessage `json:"error"`
	}
	var rpc struct {
		Message string `json:"message"`
	}
	r := &Refusal{Status: resp.StatusCode}
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&refusal)
	if err == nil && json.Unmarshal(refusal.Error, &r.Reason) != nil && json.Unmarshal(refusal.Error, &rpc) == nil {
		r.Reason = rpc.Message
	}
	return r
}

// Open asks, and returns an answer for the caller to read and close. An answer that is none is a *Refusal.
func Open(ctx context.Context, h *http.Client, method, path string, body any) (io.ReadCloser, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	return Send(ctx, h, method, path, text, "")
}

// Send is Open for a body that is JSON already, with a passkey.ProofHeader unless that is empty.
func Send(ctx context.Context, h *http.Client, method, path string, text []byte, proof string) (io.ReadCloser, error) {
	var sent io.Reader // without a body the gateway hears at once that nobody reads a stream any more
	if text != nil {
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, sent)
	if err != nil {
		return nil, err
	}
	r.Close = true
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if proof != "" {
		r.Header.Set(passkey.ProofHeader, proof)
	}
	resp, err := h.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, Refused(resp)
	}
	return resp.Body, nil
}

// Decode reads one answer.
func Decode(stream io.Reader, answer any) error {
	if err := json.NewDecoder(io.LimitReader(stream, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return nil
}

// Within bounds how long the gateway has for an answer.
func Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("the gateway does not answer within %s", patience))
}
