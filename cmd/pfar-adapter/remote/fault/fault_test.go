package fault

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestStripLeavesTheRest: what has nothing to take out stays as it is, byte for byte.
func TestStripLeavesTheRest(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":"pfar/error", "b" : "x\/y\u0041"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1, "message":"pfar/error", "data":["pfar/error"]}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"x":{"pfar/error":1}}}}`,
		`{"jsonrpc":"2.0","id":1,"result":[{"_meta":{"pfar/error":1}}]}`,
		`{"jsonrpc":"2.0","id":1,"error":"pfar/error"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":"pfar/error"}}`,
	} {
		m, err := jsonrpc.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Strip([]byte(line), m); err != nil || string(got) != line {
			t.Errorf("%s became %s, %v", line, got, err)
		}
	}
}

// FuzzStrip: encoding/json, which does not tell capitals apart in names, finds nothing of pfar's in what a server says.
func FuzzStrip(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"pfar/error":{"class":"tls"},"x":1}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"a":1,"Pfar\/Error":{"class":"tls"}}}}`,
		`{"id":1,"result":{"_meta":{"pfa\u0072/error":{"class":"tls"}}},"error":{"data":{"pfar/error":{"class":"x"}}}}`,
		`{"id":1,"error":{"data":{},"Data":{"pfar/error":{"class":"x"}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := jsonrpc.Parse(line)
		if err != nil {
			return
		}
		got, err := Strip(line, m)
		if err != nil {
			return
		}
		var told struct {
			Error struct {
				Data struct {
					Ours *json.RawMessage `json:"pfar/error"`
				} `json:"data"`
			} `json:"error"`
			Result struct {
				Meta struct {
					Ours *json.RawMessage `json:"pfar/error"`
				} `json:"_meta"`
			} `json:"result"`
		}
		_ = json.Unmarshal(got, &told) // as far as it goes
		if told.Error.Data.Ours != nil || told.Result.Meta.Ours != nil {
			t.Errorf("%s still has it: %s", line, got)
		}
		if !json.Valid(got) {
			t.Errorf("%s became what is no JSON: %s", line, got)
		}
	})
}

// TestSaid: of an error's body, a person reads the sentence and no JSON.
func TestSaid(t *testing.T) {
	const ofAnother = `{"error":{"code":7,"message":"of another kind"}}`
	for _, test := range []struct{ kind, body, want string }{
		{"application/json", `{"error":"overloaded"}`, ": overloaded"},
		{"text/plain", `{"error":"overloaded"}`, ": overloaded"},
		{"application/json", ofAnother, ": of another kind"},
		{"application/json", `{"error":"busy","error_description":"come back later"}`,
			": come back later"},
		{"application/problem+json", `{"title":"Out","detail":"for lunch"}`, ": for lunch"},
		{"application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, ": m"},
		{"application/json", `{"error":{"a":[1]}}`, ""},
		{"application/json", `["x"]`, ""},
		{"text/html", "<p>x", ""},
		{"text/plain", "closed\nfor today", ": closed"},
	} {
		f := OfResponse(503, http.Header{"Content-Type": {test.kind}}, []byte(test.body), "s", time.Now())
		if want := "HTTP 503 Service Unavailable" + test.want; f.Detail != want {
			t.Errorf("%s: %q, want %q", test.body, f.Detail, want)
		}
	}
	body := `{"error":"\u001b[2J\u202e` + strings.Repeat("x", 10<<20) + `"}`
	long := OfResponse(503, http.Header{}, []byte(body), "s", time.Now())
	line := string(long.Answer(redact.New(nil), []byte("7")))
	if len(line) > 2000 || strings.ContainsAny(line, "\x1b\u202e") || strings.Contains(line, `\u001b`) {
		t.Errorf("%d bytes: %.300s", len(line), line)
	}
}

// TestAnswer: a fault is one line that no text can break, and has no secret in it.
func TestAnswer(t *testing.T) {
	set := redact.New(map[string][]byte{"TOKEN": []byte("s3cr3t-placeholder")})
	f := New(ServerError, "a\n\"b\"\u2028 s3cr3t-placeholder %s", strings.Repeat("x", 1000))
	f.Auth = oauth.Demand{Scopes: []string{"s3cr3t-placeholder"}, Metadata: "https://x/\n", Code: "\x00"}
	line := f.Answer(set, []byte("7"))
	m, err := jsonrpc.Parse(line[:len(line)-1])
	if err != nil || string(m.ID) != "7" || !jsonrpc.ValidError(m.Error) || strings.Count(string(line), "\n") != 1 {
		t.Errorf("%s: %v", line, err)
	}
	if strings.Contains(string(line), "s3cr3t") || len(line) > 2000 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}
