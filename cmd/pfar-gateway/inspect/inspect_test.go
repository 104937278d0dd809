package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
)

var about = fence.Meta{Server: "notion", Tool: "search", Label: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}}

func value(text string) []byte {
	b, _ := json.Marshal(map[string]string{"text": text})
	return b
}

func request(text string) Request { return Request{about, inspector.Inbound, value(text)} }

const (
	clean   = `{"verdict":"clean"}`
	flagged = `{"verdict":"flagged","kind":"evil"}`
)

// listen answers each connection with what f makes of it, on a socket in a directory.
func listen(t *testing.T, dir, name string, f func(conn net.Conn)) string {
	t.Helper()
	socket := filepath.Join(dir, name+".sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn)
			}()
		}
	}()
	return socket
}

// answering is an inspector that says of each part what f does.
func answering(t *testing.T, e inspector.External, f func(q inspector.Question) string) *Inspector {
	t.Helper()
	e.Name, e.Exec = "scan", []string{"/usr/bin/scan"}
	i, err := New(e, listen(t, t.TempDir(), e.Name, func(c net.Conn) {
		var q inspector.Question
		if err := json.NewDecoder(c).Decode(&q); err == nil {
			fmt.Fprint(c, f(q))
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestNoAnswer has all that is not an answer: none of it is ever clean.
func TestNoAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing": "", "no JSON": "clean", "half": `{"verdict":"cle`, "prose": "The text is clean.", "in a fence": "```json\n{\"verdict\":\"clean\"}\n```", "before": "Sure: " + clean, "behind": clean + " as asked", "two": clean + clean, "two lines": clean + "\n" + clean,
		"twice": `{"verdict":"flagged","verdict":"clean"}`, "escaped twice": `{"verdict":"flagged","verd\u0069ct":"clean"}`, "other member": `{"verdict":"clean","confidence":1}`, "capital": `{"Verdict":"clean"}`, "other verdict": `{"verdict":"CLEAN"}`, "maybe": `{"verdict":"clean?"}`,
		"bool": `{"verdict":true}`, "null": `{"verdict":null}`, "no verdict": `{}`, "array": `["clean"]`, "clean with a kind": `{"verdict":"clean","kind":"injection"}`, "number": `{"verdict":"clean","reason":1}`, "long": strings.Repeat(" ", maxAnswer) + clean,
	} {
		i := answering(t, inspector.External{}, func(inspector.Question) string { return answer })
		if r := i.Inspect(t.Context(), request("hello")); r.Outcome != inspect.Missing || r.Reason == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAnswers(t *testing.T) {
	for answer, want := range map[string]inspect.Outcome{
		clean: inspect.Clean, " {\n\"verdict\" : \"clean\", \"reason\":\"\" }\n": inspect.Clean, `{"verdict":"flagged"}`: inspect.Flagged, `{"verdict":"flagged","kind":"inj\u001b[31mection","reason":"it says\nso"}`: inspect.Flagged,
	} {
		i := answering(t, inspector.External{}, func(q inspector.Question) string {
			if want := (inspector.Question{Version: 1, Direction: "results", Server: "notion", Tool: "search", Label: "internal raw", Part: 1, Parts: 1, Text: "/text: hello\n"}); q != want {
				t.Errorf("asked %+v, want %+v", q, want)
			}
			return answer
		})
		r := i.Inspect(t.Context(), request("hello"))
		if r.Outcome != want {
			t.Errorf("%s: %+v", answer, r)
		}
		if all, _ := json.Marshal(r); strings.Contains(string(all), "\\u001b") || strings.Contains(string(all), "\x1b") {
			t.Errorf("%s: %s", answer, all)
		}
	}
}

// TestConnections has those that do not come to an end.
func TestConnections(t *testing.T) {
	for name, f := range map[string]func(net.Conn){
		"hangs up": func(net.Conn) {}, "does not answer": func(c net.Conn) { _, _ = io.Copy(io.Discard, c); <-t.Context().Done() },
		"no end": func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			fmt.Fprint(c, clean)
			<-t.Context().Done()
		},
		"endless": func(c net.Conn) {
			for {
				if _, err := c.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		},
	} {
		i, err := New(inspector.External{Name: "scan", Exec: []string{"/x"}, Timeout: 300 * time.Millisecond}, listen(t, t.TempDir(), "scan", f))
		if err != nil {
			t.Fatal(err)
		}
		if r := i.Inspect(t.Context(), request("hello")); r.Outcome != inspect.Missing {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := New(inspector.External{Name: "scan"}, ""); err == nil {
		t.Error("one that is nothing")
	}
}

// TestWhole has what is bad at the end of a long text and at the border of two parts: it is seen.
func TestWhole(t *testing.T) {
	var asked atomic.Int32
	sees := func(q inspector.Question) string {
		asked.Add(1)
		if strings.Contains(q.Text, "this is the evil part") {
			return flagged
		}
		return clean
	}
	e := inspector.External{Chunk: 1000, Overlap: 100, Parallel: 2}
	i := answering(t, e, sees)
	for at := range 60 {
		text := strings.Repeat("€", 300+at) + "this is the evil part" + strings.Repeat("x", 500)
		if r := i.Inspect(t.Context(), request(text)); r.Outcome != inspect.Flagged || r.Findings[0].Inspector != "scan" || r.Findings[0].Kind != "evil" {
			t.Fatalf("at %d: %+v", at, r)
		}
	}
	if r := i.Inspect(t.Context(), request(strings.Repeat("x", 20000)+"this is the ev\u0069l part")); r.Outcome != inspect.Flagged {
		t.Errorf("at the end: %+v", r)
	}
	before := asked.Load()
	if r := i.Inspect(t.Context(), request(strings.Repeat("x", 9000))); r.Outcome != inspect.Clean || asked.Load()-before < 10 {
		t.Errorf("clean: %+v, asked %d times", r, asked.Load()-before)
	}
	e.Size = 1000
	if r := answering(t, e, sees).Inspect(t.Context(), request(strings.Repeat("x", 1001))); r.Outcome != inspect.Missing {
		t.Errorf("too long: %+v", r)
	}
	var n atomic.Int32
	if r := answering(t, inspector.External{Chunk: 1000, Overlap: 100}, func(inspector.Question) string {
		if n.Add(1) == 3 {
			return ""
		}
		return clean
	}).Inspect(t.Context(), request(strings.Repeat("x", 9000))); r.Outcome != inspect.Missing {
		t.Errorf("one of many has no answer: %+v", r)
	}
}

// TestBounds has one that does not answer: questions at once are bounded, time is, and who gives up is let go.
func TestBounds(t *testing.T) {
	var now, most atomic.Int32
	release := make(chan struct{})
	defer close(release)
	i := answering(t, inspector.External{Chunk: 300, Overlap: 100, Parallel: 3, Timeout: 300 * time.Millisecond}, func(inspector.Question) string {
		<-release
		return clean
	})
	ask := i.ask
	i.ask = func(ctx context.Context, p part) (verdict, error) {
		for k := now.Add(1); ; {
			m := most.Load()
			if k <= m || most.CompareAndSwap(m, k) {
				break
			}
		}
		defer now.Add(-1)
		return ask(ctx, p)
	}
	var wait sync.WaitGroup
	start := time.Now()
	for range 10 {
		wait.Go(func() {
			if r := i.Inspect(t.Context(), request(strings.Repeat("x", 5000))); r.Outcome != inspect.Missing {
				t.Errorf("%+v", r)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if r := i.Inspect(ctx, request("x")); r.Outcome != inspect.Missing {
		t.Errorf("cancelled: %+v", r)
	}
	wait.Wait()
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("it took %v", took)
	}
	if most.Load() != 3 {
		t.Errorf("%d at once, want 3", most.Load())
	}
}

// TestPanel is as strict as the strictest of those that are named, and as one that is not there.
func TestPanel(t *testing.T) {
	dir := t.TempDir()
	var said sync.Map // by inspector
	var asked atomic.Int32
	for _, name := range []string{"one", "two", "out"} {
		listen(t, dir, name, func(c net.Conn) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, c)
			if answer, ok := said.Load(name); ok {
				fmt.Fprint(c, answer)
			}
		})
	}
	p := &Panel{Dir: dir}
	look := func(names ...string) inspect.Outcome {
		return p.Inspect(t.Context(), names, inspector.Inbound, about, value("hello")).Outcome
	}
	if got := look("one"); got != inspect.Missing {
		t.Errorf("of none that is declared: %s", got)
	}
	declared := []inspector.External{{Name: "one", Exec: []string{"/x"}}, {Name: "two", URL: "https://a.example/", Model: "m"}, {Name: "out", Exec: []string{"/x"}, Direction: inspector.Outbound}, {Name: "odd"}}
	for i := range declared {
		declared[i], _ = declared[i].Declared()
	}
	p.Learn(declared)
	for _, c := range []struct {
		one, two string
		names    string
		want     inspect.Outcome
	}{
		{clean, clean, "one two", inspect.Clean}, {clean, flagged, "one two", inspect.Flagged}, {flagged, clean, "one two", inspect.Flagged}, {clean, "what", "one two", inspect.Missing}, {"", flagged, "one two", inspect.Flagged},
		{clean, flagged, "one", inspect.Clean}, {clean, clean, "one two three", inspect.Missing}, {clean, clean, "odd", inspect.Missing}, {clean, clean, "one out", inspect.Clean}, {flagged, "what", "", inspect.Clean},
	} {
		said.Store("one", c.one)
		said.Store("two", c.two)
		said.Store("out", flagged)
		if got := look(strings.Fields(c.names)...); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := p.Inspect(t.Context(), []string{"out"}, inspector.Outbound, about, value("hello")).Outcome; got != inspect.Flagged {
		t.Errorf("its direction: %s", got)
	}
	before := p.all["one"]
	declared[1].Timeout++
	two := p.all["two"]
	p.Learn(declared[:2])
	if p.all["one"] != before || p.all["two"] == two || p.all["out"] != nil || look("out") != inspect.Missing {
		t.Error("those that have not changed are others, or those that have are the same, or one that is declared no more is asked")
	}
	if names := slices.Sorted(func(yield func(string) bool) {
		for n := range p.all {
			if !yield(n) {
				return
			}
		}
	}); !slices.Equal(names, []string{"one", "two"}) {
		t.Errorf("there are %q", names)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{clean, flagged, `{"verdict":"flagged","verdict":"clean"}`, "x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := read(b); err == nil && !v.flagged {
			var said map[string]string
			if json.Unmarshal(b, &said) != nil || said["verdict"] != "clean" {
				t.Errorf("%s is taken for clean", b)
			}
		}
	})
}
