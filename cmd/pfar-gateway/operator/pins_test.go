package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/policies/audit"
)

func tool(name, text string) pins.Definition {
	raw, _ := json.Marshal(map[string]string{"name": name, "description": text})
	return pins.Definition{Kind: pins.Tool, Name: name, Raw: raw}
}

func offered(list ...pins.Definition) pins.Offer {
	return pins.Offer{Server: "s", Version: "x 1.2.0", TrustFirst: true, Definitions: list}
}

// pinned is a bench where a has changed, b is new, and c is as it was.
func pinned(t *testing.T) *bench {
	b := newBench(t)
	b.Pins.Review(offered(tool("a", "adds"), tool("c", "z")))
	b.Pins.Review(offered(tool("a", "adds\x1b[2J"), tool("b", "<begins>"), tool("c", "z")))
	return b
}

// TestPinsRefused: what is not meant is not accepted.
func TestPinsRefused(t *testing.T) {
	b := pinned(t)
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
		{"POST", "/pins/s/accept", "", 400, `{\"names\": [\"search\"]} or {\"all\": true}`},
		{"POST", "/pins/s/accept", "{}", 400, `{\"names\": [\"search\"]} or {\"all\": true}`},
		{"POST", "/pins/s/accept", "null", 400, "want"},
		{"POST", "/pins/s/accept", `{"all":false}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"name":["a"]}`, 400, "unknown field"},
		{"POST", "/pins/s/accept", `{"names":null}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"names":["a"],"all":true}`, 400, "want"},
		{"POST", "/pins/s/accept", `{"all":true}{}`, 400, "behind it"},
		{"POST", "/pins/s/accept", `{"names":["` + strings.Repeat("x", maxNames) + `"]}`, 400, "too large"},
		{"POST", "/pins/s/accept", `{"names":["a","d"]}`, 404, "not known"},
		{"POST", "/pins/s/accept", `{"all":true,"pure":true}`, 400, "name the tools that are pure"},
		{"POST", "/pins/s/accept", `{"names":[],"pure":true}`, 400, "name the tools that are pure"},
		{"POST", "/pins/s/accept", `{"names":["a"],"pure":true}`, 409, "does not claim to only read"},
		{"POST", "/pins/s/accept", `{"names":["a@0123456789abcdef"]}`, 409, "has changed"},
		{"POST", "/pins/nobody/accept", `{"all":true}`, 404, "never been up"},
		{"POST", "/pins/nobody/accept", `{"names":[]}`, 404, "never been up"},
		{"POST", "/pins/nobody/forget", "", 404, "not known"},
	} {
		if status, body := b.do(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s %s %.40s: %d %s, want %d %s", c.method, c.path, c.body, status, body, c.status, c.text)
		}
	}
	if st := b.Pins.Status()[0]; st.Accepted != 1 || len(st.Held) != 2 {
		t.Errorf("something was accepted: %+v", st)
	}
}

func TestPins(t *testing.T) {
	b := pinned(t)
	var all []pins.ServerStatus
	if status, body := b.do("GET", "/pins", ""); status != 200 || json.Unmarshal([]byte(body), &all) != nil || len(all) != 1 || len(all[0].Held) != 2 || all[0].Held[0].Diff != "" || all[0].Descriptors != nil {
		t.Fatalf("%d %s", status, body)
	}
	var one pins.ServerStatus
	status, body := b.do("GET", "/pins/s", "")
	if status != 200 || json.Unmarshal([]byte(body), &one) != nil || len(one.Held) != 2 || len(one.Descriptors) != 2 || one.Accepted != 1 {
		t.Fatalf("%d %s", status, body)
	}
	if !strings.Contains(one.Held[0].Diff, `"adds\x1b[2J"`) || string(one.Held[1].Raw) != string(tool("b", "<begins>").Raw) || strings.Contains(body, "\x1b") {
		t.Errorf("%+v", one.Held)
	}
	one = pins.ServerStatus{}
	if _, body = b.do("GET", "/pins/s?name=c&name=tool:b", ""); json.Unmarshal([]byte(body), &one) != nil || len(one.Held) != 1 || len(one.Descriptors) != 1 {
		t.Fatal(body)
	}
	if d := one.Descriptors[0]; d.By == "" || d.Version != "x 1.2.0" || !strings.Contains(d.Text, `"description": "z"`) || d.Digest == "" || d.At.IsZero() || d.Seen.IsZero() {
		t.Errorf("%+v", d)
	}
	request, _ := json.Marshal(map[string][]string{"names": {"b@" + one.Held[0].Digest}})
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/pins/s/accept", string(request), 200, `{"accepted":["b"]}` + "\n"}, {"/pins/s/accept", `{"names":[]}`, 200, `{"accepted":[]}` + "\n"},
		{"/pins/s/accept", `{"all":true}`, 200, `{"accepted":["a"]}` + "\n"}, {"/pins/s/forget", "", 200, `{"forgotten":true}` + "\n"},
	} {
		if status, body := b.do("POST", c.path, c.body); status != c.status || body != c.want {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
	}
	if status, body := b.do("GET", "/pins", ""); body != "[]\n" {
		t.Errorf("after that: %d %s", status, body)
	}
	if status, _ := b.do("POST", "/pins/s/forget", ""); status != 404 {
		t.Errorf("forget twice: %d", status)
	}
}

// TestPinsAreRecorded: who accepts definitions is recorded before it is done, and without a record it is not.
func TestPinsAreRecorded(t *testing.T) {
	b := pinned(t)
	var stored []audit.Record
	b.Pins.Record(func(records ...audit.Record) error { stored = append(stored, records...); return nil })
	who := fmt.Sprintf("uid %d", os.Getuid())
	if status, body := b.do("POST", "/pins/s/accept", `{"names":["b"]}`); status != http.StatusOK || len(b.acts) != 1 || b.acts[0].Verb != "accept-pins" || b.acts[0].Subject != "s" || b.acts[0].By.UID != os.Getuid() {
		t.Errorf("%d %s, %+v", status, body, b.acts)
	}
	if len(stored) != 1 || stored[0].User != who || stored[0].Channel != channel {
		t.Errorf("the store's record: %+v", stored)
	}
	b.do("GET", "/pins", "")
	if status, _ := b.do("POST", "/pins/s/accept", `{"names":["d"]}`); status != 404 || len(b.acts) != 3 || b.acts[1].Failed != "" || !strings.Contains(b.acts[2].Failed, "not known") || b.acts[2].By.UID != os.Getuid() {
		t.Errorf("%d, %+v", status, b.acts)
	}
	b.broken = errors.New("the disk is full")
	for path, body := range map[string]string{"/pins/s/accept": `{"all":true}`, "/pins/s/forget": ""} {
		if status, body := b.do("POST", path, body); status != 500 || !strings.Contains(body, "the disk is full") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if st := b.Pins.Status(); len(st) != 1 || st[0].Accepted != 2 || len(st[0].Held) != 1 {
		t.Errorf("done without a record: %+v", st)
	}
}
