package wire

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/broker"
)

// ErrEncoding is the error of a response that cannot be searched.
var ErrEncoding = errors.New("the response is encoded in a way that was not asked for")

// scrubbing is what is taken out now, also of responses that began before.
func (s *Source) scrubbing() *patterns { return s.now.Load().scrub }

// Header takes the secrets out of fields.
func (s *Source) Header(h http.Header) {
	p := s.scrubbing()
	for name, values := range h {
		if p.within(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i], _ = p.all(v) // nothing is refused in a response
		}
	}
}

// within reports whether a field's name holds a secret, in any case: programs change it.
func (s *patterns) within(name string) bool {
	if len(name) < broker.MinSecret {
		return false
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(s.list, func(p pattern) bool {
		return len(p.text) <= len(name) && strings.Contains(name, strings.ToLower(p.text))
	})
}

// Response takes the secrets out of a response: fields, body as it comes, trailers. A part of one, such as the host
// cuts off, stays. Of a connection that becomes a WebSocket's the messages are searched. The error is ErrEncoding, or
// that of what has nothing to do with the request.
func (s *Source) Response(r *http.Response) error {
	s.Header(r.Header)
	r.Status = "" // it may say anything; the number counts
	if r.StatusCode == http.StatusSwitchingProtocols {
		return s.socket(r)
	}
	bodiless := r.Request.Method == http.MethodHead || r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified
	if len(r.Header["Content-Encoding"]) > 0 && !bodiless {
		if err := decode(r); err != nil {
			return err
		}
	}
	if !s.scrubbing().even || len(r.Trailer) > 0 { // HTTP/1.1 has trailers behind chunks only
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
	s.Header(r.Trailer) // the names that are announced
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	r.Body = &body{ReadCloser: r.Body, filter: filter{patterns: s.scrubbing}, ended: func() error {
		s.Header(r.Trailer)
		return nil
	}}
	return nil
}

func decode(r *http.Response) error {
	switch coding := strings.ToLower(strings.Join(r.Header["Content-Encoding"], ",")); coding {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
	default:
		return ErrEncoding
	}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	r.Body = &unzipped{ReadCloser: r.Body}
	return nil
}

// unzipped reads what was compressed. Its beginning is read with the first byte: a response may come long before it.
type unzipped struct {
	io.ReadCloser
	zip *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.zip == nil {
		var err error
		if u.zip, err = gzip.NewReader(u.ReadCloser); err != nil {
			return 0, err // io.EOF of an empty body
		}
	}
	return u.zip.Read(p)
}
