package stream

import (
	"bytes"
	"net/http"
	"testing"
	"time"
)

func TestEventLines(t *testing.T) {
	var b bytes.Buffer
	rec := &recorder{Buffer: &b}
	e := &Events{w: rec, rc: http.NewResponseController(rec)}
	if err := e.Send([]byte("{\r\"a\":1,\n\"b\":2}")); err != nil {
		t.Fatal(err)
	}
	if want := "event: message\ndata: {\ndata: \"a\":1,\ndata: \"b\":2}\n\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

type recorder struct{ *bytes.Buffer }

func (recorder) Header() http.Header                { return nil }
func (recorder) WriteHeader(int)                    {}
func (recorder) Flush()                             {}
func (recorder) SetWriteDeadline(_ time.Time) error { return nil }
