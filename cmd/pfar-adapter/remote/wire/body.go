package wire

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// watched is a body that is given up when nothing comes of it.
type watched struct {
	io.ReadCloser
	ctx    context.Context // of the request
	idle   time.Duration
	timer  *time.Timer
	hasty  bool // the timer runs on, whatever comes
	cancel context.CancelCauseFunc
}

func watch(ctx context.Context, body io.ReadCloser, idle time.Duration, cancel context.CancelCauseFunc) *watched {
	w := &watched{ReadCloser: body, ctx: ctx, idle: idle, cancel: cancel}
	w.timer = time.AfterFunc(idle, func() { cancel(fault.New(fault.Timeout, "the server's response stopped halfway")) })
	w.timer.Stop()
	return w
}

func (w *watched) Read(p []byte) (int, error) {
	if !w.hasty {
		w.timer.Reset(w.idle)
		defer w.timer.Stop()
	}
	n, err := w.ReadCloser.Read(p)
	if f := new(fault.Fault); err != nil && errors.As(context.Cause(w.ctx), &f) {
		err = f // even for io.EOF: a server that sees the connection go may end its response well
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	w.cancel(nil)
	return w.ReadCloser.Close()
}

// Hurry has a response given up after that time, however much comes of it.
func Hurry(response *http.Response, limit time.Duration) {
	body := response.Body
	if u, ok := body.(*unpacking); ok {
		body = u.packed
	}
	if w, ok := body.(*watched); ok && !w.hasty {
		w.hasty = true
		w.timer.Reset(limit)
	}
}

// unpacked returns the response with a body that is not compressed. Whoever reads it bounds what it has then.
func unpacked(response *http.Response) (*http.Response, error) {
	switch coding := strings.ToLower(strings.Join(response.Header.Values("Content-Encoding"), ",")); coding {
	case "", "identity":
		return response, nil
	case "gzip", "x-gzip":
		response.Body = &unpacking{packed: response.Body}
		return response, nil
	default:
		Discard(response)
		return nil, fault.New(fault.Schema, "the server's response is encoded as %.40q, which pfar did not ask for", coding)
	}
}

// unpacking unpacks a body as it is read. gzip's head is read with the first byte, since it may come late.
type unpacking struct {
	packed io.ReadCloser
	plain  *gzip.Reader
}

func (u *unpacking) Read(p []byte) (int, error) {
	if u.plain == nil {
		plain, err := gzip.NewReader(u.packed)
		if err != nil {
			return 0, packing(err)
		}
		u.plain = plain
	}
	n, err := u.plain.Read(p)
	return n, packing(err)
}

// packing makes a fault of an error that is the packing's own.
func packing(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return fault.New(fault.Schema, "the server calls its response gzip, but it is not")
	}
	return err
}

func (u *unpacking) Close() error { return u.packed.Close() }

// Of a body that nobody wants, discarded bytes are read so that its connection can be used again, and of an error its
// words; for no longer than impatience.
const (
	discarded  = 4 << 10
	words      = 16 << 10
	impatience = 2 * time.Second
)

// Discard ends a response that nobody wants.
func Discard(response *http.Response) {
	Hurry(response, impatience)
	_, _ = io.CopyN(io.Discard, response.Body, discarded)
	response.Body.Close()
}

// Excerpt returns the beginning of a body, and ends the response.
func Excerpt(response *http.Response) []byte {
	Hurry(response, impatience)
	b, _ := io.ReadAll(io.LimitReader(response.Body, words)) // or as much as there is
	response.Body.Close()
	return b
}

// All reads a whole body of at most that many bytes, and ends the response. Every error is a *fault.Fault.
func All(ctx context.Context, response *http.Response, most int) ([]byte, error) {
	defer response.Body.Close()
	if response.ContentLength > int64(most) {
		return nil, tooLong(most)
	}
	b, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, fault.OfError(ctx, err)
	case len(b) > most:
		return nil, tooLong(most)
	}
	return b, nil
}

func tooLong(most int) error {
	return fault.New(fault.Schema, "the server's answer has more than %d bytes", most)
}
