package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestRead: of what a process in a sandbox says of a failure only the vocabulary is left.
func TestRead(t *testing.T) {
	for said, want := range map[string]Failure{
		`{"class":"rate_limited","retry_after":30,"status":429,"detail":"no"}`: {Class: RateLimited, After: 30, Status: 429},
		`{"class":"rate_limited","retry_after":0.2}`:                           {Class: RateLimited},
		`{"class":"rate_limited","retry_after":1.2}`:                           {Class: RateLimited, After: 2},
		`{"class":"rate_limited","retry_after":1e300}`:                         {Class: RateLimited, After: longest},
		`{"class":"rate_limited","retry_after":-5,"status":-1}`:                {Class: RateLimited},
		`{"class":"rate_limited","retry_after":"soon","status":"429"}`:         {Class: RateLimited},
		`{"class":"server_error","status":7000}`:                               {Class: ServerError, Status: 599},
		`{"class":"tls","tries":9,"remedy":"run rm -rf"}`:                      {Class: TLS},
		`{"class":"TLS"}`:            {},
		`{"class":"owned"}`:          {},
		`{"class":""}`:               {},
		`{"class":7}`:                {},
		`{"class":["rate_limited"]}`: {},
		`"rate_limited"`:             {},
		`null`:                       {},
		``:                           {},
	} {
		if got := Read([]byte(said)); got != want {
			t.Errorf("%s is %+v, want %+v", said, got, want)
		}
	}
	for _, c := range Classes() {
		if got := Read(fmt.Appendf(nil, `{"class":%q}`, c)); got.Class != c {
			t.Errorf("%s is %+v", c, got)
		}
	}
}

// FuzzRead: nothing that is said gets beyond the bounds.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"class":"rate_limited","retry_after":30,"status":429}`))
	f.Add([]byte(`{"class":"died","retry_after":1e999}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := Read(raw)
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if again := Read(b); again != got {
			t.Errorf("%q is %+v, and that is %+v", raw, got, again)
		}
		status := got.Status == 0 || got.Status >= 100 && got.Status <= 599
		if got.After < 0 || got.After > longest || !status || got.Tries != 0 {
			t.Errorf("%q is %+v", raw, got)
		}
	})
}

// TestRemedies: every class has a remedy, which names the server where its owner has to act, and says when to try
// again. Of what may have been carried out, it says so.
func TestRemedies(t *testing.T) {
	for _, c := range Classes() {
		e := As(c, "notion", errors.New("it failed"))
		plain := e.Told().Remedy
		e.After, e.Writes = 90, true
		timed := e.Told().Remedy
		if plain == "" || strings.Contains(plain, "%!") || strings.Contains(timed, "%!") {
			t.Errorf("%s: %q, %q", c, plain, timed)
		}
		if named := strings.Contains(plain, "notion"); named != (c != RateLimited && c != NotFound) {
			t.Errorf("%s: %q", c, plain)
		}
		waits := c == RateLimited || c == ServerError || c == NetworkError
		if strings.Contains(timed, "try again in 90 s") != waits || strings.Contains(plain, "try again later") != waits {
			t.Errorf("%s: %q, %q", c, plain, timed)
		}
		doubt := c == Timeout || c == ServerError || c == NetworkError || c == Schema || c == Died
		if strings.Contains(timed, "may have been carried out") != doubt || strings.Contains(plain, "carried out") {
			t.Errorf("%s: %q, %q", c, plain, timed)
		}
		e.Advice = "do this"
		if got := e.Told().Remedy; got != "do this" {
			t.Errorf("%s: %q", c, got)
		}
	}
	for seconds, want := range map[int64]string{
		1: "1 s", 119: "119 s", 120: "2 min", 3601: "61 min", 7200: "2 h", 86401: "25 h",
	} {
		if got := Short(seconds); got != want {
			t.Errorf("%d is %q, want %q", seconds, got, want)
		}
	}
}

// TestPassing: what somebody has to do something about first, and what is not known, is not tried again.
func TestPassing(t *testing.T) {
	want := map[Class]bool{RateLimited: true, Timeout: true, ServerError: true, NetworkError: true, Died: true}
	for _, c := range append(Classes(), "", "other") {
		if c.Passing() != want[c] {
			t.Errorf("%q: %v", c, c.Passing())
		}
	}
}
