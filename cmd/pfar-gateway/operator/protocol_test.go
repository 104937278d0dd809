package operator

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/tests/transcript"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/operator"
)

var update = flag.Bool("update", false, "add to testdata/answers.txt what is new in this version")

// TestAnswers: pfar of the version before, or another program of the operator's, reads them on.
func TestAnswers(t *testing.T) {
	var kinds []transcript.Kind
	for _, k := range []transcript.Kind{
		{Name: "approval", Zero: approval.Event{}}, {Name: "history", Zero: approval.Record{}}, {Name: "grant", Zero: operator.Grant{}},
		{Name: "session", Zero: label.Session{}}, {Name: "stain", Zero: label.Stain{}}, {Name: "pins", Zero: pins.ServerStatus{}},
		{Name: "facts", Zero: operator.ToolFacts{}}, {Name: "verification", Zero: units.Verification{}},
		{Name: "notice", Zero: operator.Notice{}},
		{Name: "change", Zero: drift.Change{}}, {Name: "offer", Zero: drift.Definition{}},
	} {
		k.Such, k.Sent = []any{gate.Internal, gate.Raw, gate.Reversible, approval.Pending, gate.Ask}, true
		kinds = append(kinds, k)
	}
	transcript.Hold(t, "testdata/answers.txt", *update, kinds...)
}

// TestRequests sends the requests of the version before. The gateway understands each, also one about an approval or a
// session that does not exist. It refuses a request with a member that it does not know, since that may be a
// restriction.
func TestRequests(t *testing.T) {
	b := newBench(t)
	b.Facts = func() []operator.ToolFacts { return nil }
	b.Servers, b.Notices = nobody{}, nobody{}
	b.Stats = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, nil) })
	handler := b.handler(t.Context())
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		w, ctx := httptest.NewRecorder(), context.WithValue(t.Context(), peerKey{}, os.Getuid())
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
		return w
	}
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 3), "")
		w := ask(words[0], words[1], words[2])
		if !json.Valid(w.Body.Bytes()) || w.Code == http.StatusBadRequest {
			t.Errorf("%s%d %s: see CONTRIBUTING.md, To change a protocol", line, w.Code, w.Body)
		}
		body := map[string]any{}
		if words[2] == "" || json.Unmarshal([]byte(words[2]), &body) != nil || len(body) == 0 {
			continue
		}
		body["member_of_a_later_version"] = true
		more, _ := json.Marshal(body)
		if w := ask(words[0], words[1], string(more)); w.Code != http.StatusBadRequest {
			t.Errorf("%swith an unknown member: %d %s", line, w.Code, w.Body)
		}
	}
}

// nobody has no servers.
type nobody struct{}

func (nobody) Verify(context.Context, string) (units.Verification, error) {
	return units.Verification{}, errRequestOfNobody
}
func (nobody) Refresh(context.Context, string) ([]drift.Change, error) {
	return nil, errRequestOfNobody
}
func (nobody) Notices() []operator.Notice                { return nil }
func (nobody) Offers(string) ([]drift.Definition, error) { return nil, errRequestOfNobody }

var errRequestOfNobody = jsonrpc.Errorf(0, "there is no server")
