package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units/operator"
)

// FuzzRead: a body is one object of what is known and nothing behind it, and is read as it was meant.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"digest":"d","grant":{"seconds":60,"calls":2,"bytes":10}}`, `{"reason":"no"}`, `{"client":"laptop"}`, `{} {}`, `{}]`, `null`, `[]`, `{"digest":1}`,
		`{"digest":"a","digest":"b"}`, `{"Digest":"a"}`, "{\"digest\":\"\xff\"}", `{"grant":{"seconds":1e3}}`,
	} {
		f.Add([]byte(seed))
	}
	type body struct {
		Digest string               `json:"digest"`
		Grant  *operator.GrantTerms `json:"grant"`
		Reason string               `json:"reason"`
		Client string               `json:"client"`
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		from := func(text []byte) (b body, err error) {
			err = read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text)), maxBody, &b)
			return b, err
		}
		got, err := from(text)
		if len(text) > maxBody && err == nil {
			t.Fatalf("%d bytes are read", len(text))
		}
		if err != nil {
			return
		}
		if len(bytes.TrimSpace(text)) > 0 && !json.Valid(text) {
			t.Errorf("%q is read", text)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) <= maxBody {
			if b, err := from(again); err != nil || !reflect.DeepEqual(b, got) {
				t.Errorf("%s is read as %+v, %v; want %+v", again, b, err, got)
			}
		}
		for _, more := range []string{"{}", "x", "0"} {
			if b, err := from(append(bytes.Clone(text), " "+more...)); err == nil && len(bytes.TrimSpace(text)) > 0 {
				t.Errorf("with %s behind it %q is read as %+v", more, text, b)
			}
		}
	})
}

// FuzzApprove: whatever is sent, a call is approved by nothing but its own digest, what is refused is answered in JSON,
// and what is done is recorded before.
func FuzzApprove(f *testing.F) {
	b := newBench(f)
	h := b.handler(f.Context())
	shown := b.waiting(`{"to":"a"}`)
	const own = "DIGEST" // stands for the call's
	for _, seed := range []string{
		"", "{}", `{"digest":"` + own + `"}`, `{"digest":"` + own + `","grant":{"seconds":3600}}`, `{"digest":"` + strings.Repeat("0", 64) + `"}`,
		`{"digest":"` + own + `"} x`, `{"digest":["` + own + `"]}`, `{"reason":"` + own + `"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b.t = t
		if len(body) > maxBody/2 {
			return
		}
		text := bytes.ReplaceAll(body, []byte(own), []byte(shown.Digest))
		r := httptest.NewRequest(http.MethodPost, "/approvals/"+shown.ID+"/approve", bytes.NewReader(text))
		w := httptest.NewRecorder()
		b.acts = nil
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, os.Getuid())))
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q is answered %d %q", text, w.Code, w.Body)
		}
		now, err := b.Approvals.Show(shown.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State == approval.Pending {
			if w.Code != http.StatusBadRequest && w.Code != http.StatusConflict {
				t.Errorf("%q is answered %d %s, and the call waits", text, w.Code, w.Body)
			}
			return
		}
		if w.Code != http.StatusOK || !bytes.Contains(text, []byte(shown.Digest)) || len(b.acts) != 1 || b.acts[0].Subject != shown.ID {
			t.Errorf("%q is answered %d %s, recorded as %+v, and the call is %v", text, w.Code, w.Body, b.acts, now.State)
		}
		shown = another(b, shown.ID)
	})
}

// another is a call that waits, in the place of one that has been answered.
func another(b *bench, before string) approval.Shown {
	b.Approvals.Forget("laptop", "default")
	b.Grants.RevokeAll()
	return b.waiting(fmt.Sprintf(`{"to":"a","after":%q}`, before))
}

// FuzzAccept: whatever the operator's request says, nothing is accepted that it does not name, nothing at all of one
// that is refused, and what is accepted is recorded before.
func FuzzAccept(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"names":["a"]}`, `{"names":["a@DIGEST"]}`, `{"names":["b","a"]}`, `{"all":true}`, `{"all":true,"names":[]}`, `{"names":[]}`, `{"names":null}`, `{"names":["a","nothing"]}`,
		`{"names":["tool:a","prompt:c"]}`, `{"name":["a"]}`, `{"names":["a"]}{}`, `{"Names":["a"]}`, `{"names":["a@"]}`, `{"names":["*"]}`, `{"names":[""]}`, `{"all":false}`,
	} {
		f.Add([]byte(seed))
	}
	b := newBench(f)
	h := b.handler(f.Context())
	offer := offered(tool("a", "x"), tool("b", "x"), pins.Definition{Kind: pins.Prompt, Name: "c", Raw: []byte(`{"name":"c"}`)})
	offer.TrustFirst = false
	digests := map[string]string{}
	review := func(t testing.TB) {
		for _, v := range b.Pins.Review(offer).Verdicts {
			if v.State != pins.New {
				t.Fatalf("the store begins with %+v", v)
			}
			digests[v.Name] = v.Digest
		}
	}
	review(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		text := bytes.ReplaceAll(body, []byte("DIGEST"), []byte(digests["a"]))
		r := httptest.NewRequest(http.MethodPost, "/pins/s/accept", bytes.NewReader(text))
		w := httptest.NewRecorder()
		b.acts = nil
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, os.Getuid())))
		var answer struct{ Accepted []string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%q is answered %d %q", text, w.Code, w.Body)
		}
		st, err := b.Pins.Show("s")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(answer.Accepted); n > 0 && (w.Code != http.StatusOK || len(b.acts) != 1) || st.Accepted != n || len(st.Held) != 3-n {
			t.Fatalf("%q is answered %d %s, recorded as %+v; %d are accepted, %d wait", text, w.Code, w.Body, b.acts, st.Accepted, len(st.Held))
		}
		var said struct {
			Names []string
			All   bool
		}
		_ = json.Unmarshal(text, &said)
		for _, title := range answer.Accepted {
			name := strings.TrimPrefix(title, "prompt:")
			named := slices.ContainsFunc(said.Names, func(n string) bool {
				n, seen, _ := strings.Cut(n, "@")
				return (n == title || n == "tool:"+name && title == name) && strings.HasPrefix(digests[name], seen)
			})
			if !said.All && !named {
				t.Errorf("%q accepts %q", text, title)
			}
		}
		if len(answer.Accepted) > 0 {
			if err := b.Pins.Forget(pins.By{}, "s"); err != nil {
				t.Fatal(err)
			}
			review(t)
		}
	})
}
