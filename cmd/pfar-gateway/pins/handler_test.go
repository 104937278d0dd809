package pins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestAcceptOnly: what may not be accepted is not, and nothing else is in the same breath.
func TestAcceptOnly(t *testing.T) {
	s := fresh(t)
	s.Review(offered(tool("known", "x")))
	if _, err := s.Accept(By{}, "s", "known"); err != nil {
		t.Fatal(err)
	}
	odd := Definition{Tool, "odd", []byte(`{"name":"odd","name":"even"}`)}
	r := s.Review(offered(tool("known", "x"), tool("a", "1"), tool("b", "1"), odd, prompt("a", "p"), tool("instructions", "t"), tool("prompt:a", "t")))
	seen := r.Verdicts[1].Digest
	// The server changes between what the owner sees and what the owner says, and offers a tool with a cunning name.
	s.Review(offered(tool("known", "x"), tool("a", "2"), tool("b", "1"), odd, tool("a@"+seen, "2"), prompt("a", "p"), tool("instructions", "t"), tool("prompt:a", "t")))
	for _, c := range []struct {
		names []string
		is    error
		text  string
	}{
		{[]string{"b", "a@" + seen}, ErrRefused, `"a" has changed since it was shown`},
		{[]string{"b", "a@" + seen[:16]}, ErrRefused, `"a" has changed since it was shown`},
		{[]string{"a@" + seen[:15]}, ErrUnknown, "is not known among what is held"},
		{[]string{"b", "nothing"}, ErrUnknown, `"nothing" is not known among what is held: "prompt:a", "a", "tool:a@` + seen + `", "b", "tool:instructions", "odd", "tool:prompt:a"`},
		{[]string{"known"}, ErrUnknown, "not known"},
		{[]string{"instructions"}, ErrUnknown, "not known"},
		{[]string{"b", "odd"}, ErrRefused, `member "name" comes twice`},
		{[]string{"b", "odd@" + seen}, ErrRefused, "has changed"},
		{[]string{""}, ErrUnknown, "not known"},
		{[]string{"\x1b[2J"}, ErrUnknown, `"\x1b[2J" is not known`},
	} {
		_, err := s.Accept(By{}, "s", c.names...)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v, want %s", c.names, err, c.text)
		}
	}
	if st := s.Status()[0]; st.Accepted != 1 || len(st.Held) != 7 {
		t.Errorf("something was accepted: %+v", st)
	}
	if _, err := s.Accept(By{}, "other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("another server: %v", err)
	}
	told := 0
	s.Watch(func(server string) {
		if told++; server != "s" {
			t.Errorf("told of %q", server)
		}
	})
	now, _ := s.Show("s", "a")
	done, err := s.Accept(By{}, "s", "a@"+now.Held[0].Digest, "a", "prompt:a", "tool:instructions", "tool:prompt:a@"+r.Verdicts[6].Digest[:16])
	if err != nil || len(done) != 4 || told != 1 {
		t.Errorf("%+v, told %d times, %v", done, told, err)
	}
	if done, err = s.Accept(By{}, "s"); err != nil || len(done) != 2 {
		t.Errorf("all: %+v, %v", done, err)
	}
	if st := s.Status()[0]; len(st.Held) != 1 || st.Held[0].Name != "odd" || st.Accepted != 7 {
		t.Errorf("%+v", st)
	}
	if done, err = s.Accept(By{}, "s"); err != nil || len(done) != 0 || told != 2 {
		t.Errorf("again: %+v, told %d times, %v", done, told, err)
	}
}

// TestConfirm: what was accepted as the first of its name is a person's once one has named it, as it was shown, and not when it has
// changed or gone since.
func TestConfirm(t *testing.T) {
	s := fresh(t)
	all := []Definition{tool("a", "1"), tool("b", "1"), tool("c", "1"), says("x")}
	first := s.Review(offered(all...))
	digest := first.Verdicts[0].Digest
	for _, v := range first.Verdicts {
		if v.State != Accepted || v.Person {
			t.Errorf("%+v", v)
		}
	}
	s.Review(offered(tool("a", "1"), tool("b", "2"), says("x"))) // b has changed, c has gone
	for _, names := range [][]string{nil, {"c"}, {"b@" + first.Verdicts[1].Digest}, {"a", "c"}, {"a@" + strings.Repeat("0", 16)}} {
		if names == nil {
			if done, err := s.Accept(By{}, "s"); err != nil || len(done) != 1 || done[0].Name != "b" {
				t.Errorf("all that is held: %+v, %v", done, err)
			}
			s.Review(offered(tool("a", "1"), tool("b", "3"), says("x")))
		} else if done, err := s.Accept(By{}, "s", names...); err == nil {
			t.Errorf("%q: %+v", names, done)
		}
	}
	done, err := s.Accept(By{}, "s", "a@"+digest[:16], "instructions")
	if err != nil || len(done) != 2 || done[0].Digest != digest {
		t.Fatalf("%+v, %v", done, err)
	}
	s = opened(t, s.dir)
	for _, v := range s.Review(offered(tool("a", "1"), tool("b", "3"), says("x"))).Verdicts {
		if want := v.Name != "b"; v.Person != want || (v.State == Accepted) != want {
			t.Errorf("%+v", v)
		}
	}
	if _, err := s.Accept(By{}, "s", "a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("again: %v", err)
	}
}

func TestManyAreNamed(t *testing.T) {
	s := fresh(t)
	s.Review(offered())
	var list []Definition
	for i := range 500 {
		list = append(list, tool(fmt.Sprint("\x1b", strings.Repeat("n", 1000), i), "x"))
	}
	s.Review(offered(list...))
	_, err := s.Accept(By{}, "s", strings.Repeat("x", 1000))
	if err == nil || len(err.Error()) > 5000 || !strings.HasSuffix(err.Error(), "and 480 more") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}

// served is a handler over a store in which a has changed, b is new, and c is as it was.
func served(t *testing.T) (*Store, func(method, path, body string) (int, string)) {
	s := fresh(t)
	s.Review(offered(tool("a", "adds"), tool("c", "z")))
	s.Review(offered(tool("a", "adds\x1b[2J"), tool("b", "<begins>"), tool("c", "z")))
	h := Handler(s, nil)
	return s, func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if w.Code != http.StatusMethodNotAllowed && !strings.HasPrefix(path, "/other") && w.Header().Get("Content-Type") != "application/json" && w.Code < 500 && w.Code != 301 && w.Code != 307 {
			t.Errorf("%s %s answers %q", method, path, w.Header().Get("Content-Type"))
		}
		return w.Code, w.Body.String()
	}
}

func TestHandlerRefuses(t *testing.T) {
	s, do := served(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"GET", "/pins/nobody", "", 404, "it has never been up"},
		{"GET", "/pins/..%2Fs", "", 404, `\"../s\" is not known`},
		{"GET", "/pins/s?name=d", "", 404, `\"d\" is not known`},
		{"DELETE", "/pins/s", "", 405, ""},
		{"GET", "/pins/s/accept", "", 405, ""},
		{"GET", "/pins/s/forget", "", 405, ""},
		{"POST", "/pins/s/accept", "", 400, "EOF"},
		{"POST", "/pins/s/accept", "{}", 400, `{\"names\": [\"search\"]} or {\"all\": true}`},
		{"POST", "/pins/s/accept", "null", 400, "want"},
		{"POST", "/pins/s/accept", `{"all":false}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"name":["a"]}`, 400, "unknown field"},
		{"POST", "/pins/s/accept", `{"names":null}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"names":["a"],"all":true}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"all":true}{}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"names":["` + strings.Repeat("x", maxRequest) + `"]}`, 400, "too large"},
		{"POST", "/pins/s/accept", `{"names":["a","d"]}`, 404, "not known"},
		{"POST", "/pins/s/accept", `{"names":["a@0123456789abcdef"]}`, 409, "has changed"},
		{"POST", "/pins/nobody/accept", `{"all":true}`, 404, "never been up"},
		{"POST", "/pins/nobody/accept", `{"names":[]}`, 404, "never been up"},
		{"POST", "/pins/nobody/forget", "", 404, "not known"},
	} {
		status, body := do(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s %s %.40s: %d %s, want %d %s", c.method, c.path, c.body, status, body, c.status, c.text)
		}
	}
	if st := s.Status()[0]; st.Accepted != 1 || len(st.Held) != 2 {
		t.Errorf("something was accepted: %+v", st)
	}
	s.disk = &failing{}
	if status, body := do("POST", "/pins/s/accept", `{"all":true}`); status != 500 || !strings.Contains(body, errDisk.Error()) {
		t.Errorf("with a failing disk: %d %s", status, body)
	}
}

func TestHandler(t *testing.T) {
	_, do := served(t)
	var all []ServerStatus
	if status, body := do("GET", "/pins", ""); status != 200 || json.Unmarshal([]byte(body), &all) != nil || len(all) != 1 || len(all[0].Held) != 2 || all[0].Held[0].Diff != "" || all[0].Descriptors != nil {
		t.Fatalf("%d %s", status, body)
	}
	var one ServerStatus
	status, body := do("GET", "/pins/s", "")
	if status != 200 || json.Unmarshal([]byte(body), &one) != nil || len(one.Held) != 2 || len(one.Descriptors) != 2 || one.Accepted != 1 {
		t.Fatalf("%d %s", status, body)
	}
	if !strings.Contains(one.Held[0].Diff, `"adds\x1b[2J"`) || !bytes.Equal(one.Held[1].Raw, tool("b", "<begins>").Raw) || strings.Contains(body, "\x1b") {
		t.Errorf("%+v", one.Held)
	}
	one = ServerStatus{}
	if _, body = do("GET", "/pins/s?name=c&name=tool:b", ""); json.Unmarshal([]byte(body), &one) != nil || len(one.Held) != 1 || len(one.Descriptors) != 1 {
		t.Fatal(body)
	}
	if d := one.Descriptors[0]; d.By != firstUse || d.Version != "x 1.2.0" || !strings.Contains(d.Text, `"description": "z"`) || d.Digest == "" || d.At.IsZero() || d.Seen.IsZero() {
		t.Errorf("%+v", d)
	}
	request, _ := json.Marshal(map[string][]string{"names": {"b@" + one.Held[0].Digest}})
	if status, body = do("POST", "/pins/s/accept", string(request)); status != 200 || body != `{"accepted":["b"]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body = do("POST", "/pins/s/accept", `{"names":[]}`); status != 200 || body != `{"accepted":[]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body = do("POST", "/pins/s/accept", `{"all":true}`); status != 200 || body != `{"accepted":["a"]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ = do("POST", "/pins/s/forget", ""); status != 200 {
		t.Errorf("forget: %d", status)
	}
	if status, body = do("GET", "/pins", ""); body != "[]\n" {
		t.Errorf("after that: %d %s", status, body)
	}
	if status, _ = do("POST", "/pins/s/forget", ""); status != 404 {
		t.Errorf("forget twice: %d", status)
	}
}

// TestAllDiffs: one answer is bounded, and what it lacks says so.
func TestAllDiffs(t *testing.T) {
	s := fresh(t)
	s.Review(offered())
	var list []Definition
	for i := range 100 {
		list = append(list, tool(fmt.Sprint("t", i), strings.Repeat("x", maxDiff)))
	}
	s.Review(offered(list...))
	st, err := s.Show("s")
	if err != nil || len(st.Held) != 100 {
		t.Fatal(err)
	}
	total := 0
	for _, h := range st.Held {
		if total += len(h.Diff); h.Cut == 0 {
			t.Errorf("%s is shown in full", h.Name)
		}
	}
	if total > maxDiffs+maxDiff+100 || total < maxDiffs || !slices.ContainsFunc(st.Held, func(h Held) bool { return h.Diff == "" }) {
		t.Errorf("%d bytes", total)
	}
	if st, _ = s.Show("s", "t99"); st.Held[0].Diff == "" {
		t.Error("named, it is not shown either")
	}
	Handler(s, nil).ServeHTTP(&hungUp{}, httptest.NewRequest("GET", "/pins/s", nil))
}

// hungUp is a client that does not wait for the answer.
type hungUp struct{}

func (*hungUp) Header() http.Header       { return http.Header{} }
func (*hungUp) WriteHeader(int)           {}
func (*hungUp) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
