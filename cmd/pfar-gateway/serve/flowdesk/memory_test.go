package flowdesk_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/units/flows"
)

// once is a body that keeps nothing of what was read.
type once struct{ rest []byte }

func (o *once) Read(b []byte) (int, error) {
	n := copy(b, o.rest)
	if o.rest = o.rest[n:]; len(o.rest) == 0 {
		o.rest = nil
		return n, io.EOF
	}
	return n, nil
}

func (o *once) Close() error { return nil }

// TestFollowedOrders: a run that is followed keeps nothing of the order that has begun it.
func TestFollowedOrders(t *testing.T) {
	b := newBench(t)
	const large, n = 1 << 20, 12
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	order := func() {
		text := "# " + strings.Repeat("x", large-100) + "\nbackoff --seconds 600"
		body, err := json.Marshal(flows.Order{Verb: flows.Run, Form: "line", Text: text})
		if err != nil {
			t.Fatal(err)
		}
		resp := b.post(t, laptop, "", func(r *http.Request) { // the answer keeps the request
			r.Body, r.GetBody, r.ContentLength = &once{body}, nil, int64(len(body))
		})
		if _, err := bufio.NewReader(resp.Body).ReadBytes('\n'); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
	}
	order()
	before := held()
	for range n {
		order()
	}
	if after := held(); after > before+n*large/2 {
		t.Errorf("%d runs that are followed hold %d bytes", n, after-before)
	}
}

// TestOverIsForgotten: what was decided about a plan is forgotten when its run is over.
func TestOverIsForgotten(t *testing.T) {
	b := newBench(t)
	b.server(t, "slack", post, "post")
	f := b.run(t, laptop, "slack.post --says one")
	s := f.until(flows.Waiting)
	b.answer(t, s.Approval, true)
	f.until(flows.Done)
	b.desk.Close(context.Background()) // whatever the run does after its last line
	if y, err := b.consents.Get(s.ID); !errors.Is(err, consent.ErrNone) {
		t.Errorf("%+v, %v", y, err)
	}
}
