package serve

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
)

// acceptable checks the headers of a POST and reports whether an event stream may be the answer.
func (x *exchange) acceptable() bool {
	content := x.r.Header.Get("Content-Type")
	if content != "application/json" {
		if media, _, err := mime.ParseMediaType(content); err != nil || media != "application/json" {
			reply.Refuse(x.w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
			return false
		}
	}
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		reply.Refuse(x.w, http.StatusUnsupportedMediaType, "a request body is not to be compressed")
		return false
	}
	json, events, first := accepts(x.r.Header["Accept"])
	x.events = first
	if !json || !events {
		reply.Refuse(x.w, http.StatusNotAcceptable, "Accept must have application/json and text/event-stream")
		return false
	}
	return true
}

// accepts reports which of the two forms of an answer the client takes, and whether it names the event stream first.
// Without the header it takes any (RFC 9110 section 12.5.1).
func accepts(values []string) (json, events, first bool) {
	if len(values) == 0 || len(values) == 1 && values[0] == "application/json, text/event-stream" { // as the protocol has it
		return true, true, false
	}
	for _, v := range values {
		for kind := range strings.SplitSeq(v, ",") {
			kind, parameters, _ := strings.Cut(kind, ";")
			if q := strings.ReplaceAll(parameters, " ", ""); q == "q=0" {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "*/*":
				json, events = true, true
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				events, first = true, first || !json
			}
		}
	}
	return json, events, first
}

// body reads the request's body in bounded time and space, whatever length it claims.
func (x *exchange) body() ([]byte, bool) {
	if !x.acceptable() {
		return nil, false
	}
	limit := x.limits.Body
	if x.r.ContentLength > int64(limit) {
		x.w.Header().Set("Connection", "close")
		reply.Refuse(x.w, http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.Itoa(limit)+" bytes")
		return nil, false
	}
	b, err := readAll(x.r.Body, x.r.ContentLength, limit)
	if err == nil {
		// The server's ReadTimeout is over: from now on the connection is watched for the client's hanging up.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
		return b, true
	}
	x.w.Header().Set("Connection", "close") // or net/http would wait for the rest
	switch {
	case errors.Is(err, errLarge):
		reply.Refuse(x.w, http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.Itoa(limit)+" bytes")
	case errors.Is(err, os.ErrDeadlineExceeded):
		reply.Refuse(x.w, http.StatusRequestTimeout, "the body did not arrive in time")
	default:
		reply.Refuse(x.w, http.StatusBadRequest, "the body is broken")
	}
	return nil, false
}

var errLarge = errors.New("body too large")

// readAll trusts a claimed length only as far as 64 KiB.
func readAll(r io.Reader, claimed int64, limit int) ([]byte, error) {
	const trusted = 64 << 10
	size := min(max(claimed, 512), trusted)
	b := make([]byte, 0, size)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) > limit {
			return nil, errLarge
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}
