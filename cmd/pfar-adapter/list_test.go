package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/drift"
)

// actsVariable has the test's own binary be a server that behaves so.
const actsVariable = "PFAR_TEST_ACTS"

func TestMain(m *testing.M) {
	if act := os.Getenv(actsVariable); act != "" {
		acts[act](script{bufio.NewReader(os.Stdin)})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// script is a server's side of a conversation.
type script struct{ in *bufio.Reader }

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor string         `json:"cursor"`
		Meta   map[string]any `json:"_meta"`
	} `json:"params"`
}

// next waits for a request. It ends the server where none comes any more.
func (s script) next() (r request) {
	for {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		if r = (request{}); json.Unmarshal(line, &r) == nil && len(r.ID) > 0 {
			return r
		}
	}
}

func (s script) answer(r request, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
}

func (s script) refuse(r request, code int) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`+"\n", r.ID, code)
}

// begins answers until a list is asked for, as a server of the older generation.
func (s script) begins() request {
	for {
		switch r := s.next(); r.Method {
		case "initialize":
			s.answer(r, `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},`+
				`"capabilities":{"tools":{},"prompts":{},"resources":{}}}`)
		case "server/discover":
			s.refuse(r, -32601)
		default:
			return r
		}
	}
}

const lists = `{"tools":[{"name":"a","x":1.0},{"name":"a","x":2},{"no":"name"},7],"nextCursor":"2"}`

// acts are ways in which servers behave.
var acts = map[string]func(script){
	"good": func(s script) {
		for r := s.begins(); ; r = s.next() {
			switch {
			case r.Method == "tools/list" && r.Params.Cursor == "":
				fmt.Println(`not JSON`)
				fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
				fmt.Println(`{"jsonrpc":"2.0","id":77,"method":"roots/list"}`)
				s.answer(r, lists)
			case r.Method == "tools/list":
				s.answer(r, `{"tools":[{"name":"b","inputSchema":{"type":"object"}}]}`)
			case r.Method == "prompts/list":
				s.answer(r, `{"prompts":[{"name":"a"}]}`)
			case r.Method == "resources/list":
				s.answer(r, `{"resources":[{"uri":"x://y","name":"n"}],"nextCursor":null}`)
			default:
				s.refuse(r, -32601)
			}
		}
	},
	"modern": func(s script) {
		for {
			r := s.next()
			if r.Params.Meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" {
				s.refuse(r, -32600)
				continue
			}
			switch r.Method {
			case "server/discover":
				s.answer(r, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
			case "tools/list":
				s.answer(r, `{"tools":[{"name":"m"}]}`)
			default:
				s.refuse(r, -32601)
			}
		}
	},
	"ends when probed": func(s script) {
		r := s.next()
		if r.Method == "server/discover" {
			os.Exit(4)
		}
		s.answer(r, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`)
		s.answer(s.next(), `{"tools":[{"name":"old"}]}`)
	},
	"half": func(s script) { // its prompts cannot be listed
		for r := s.begins(); ; r = s.next() {
			if r.Method == "tools/list" {
				s.answer(r, `{"tools":[]}`)
			} else {
				s.refuse(r, -32603)
			}
		}
	},
	"ends at once": func(script) { os.Exit(3) },
	"is silent":    func(s script) { s.in.ReadString(0) },
	"wrong ids": func(s script) {
		for {
			r := s.next()
			r.ID = json.RawMessage(`"x"`)
			s.answer(r, `{}`)
		}
	},
	"endless pages": func(s script) {
		r := s.begins()
		for n := 0; ; n++ {
			s.answer(r, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"nextCursor":"%d"}`, n, n))
			r = s.next()
		}
	},
	"the same page": func(s script) {
		for r := s.begins(); ; r = s.next() {
			s.answer(r, `{"tools":[],"nextCursor":"x"}`)
		}
	},
	"many items": func(s script) {
		s.answer(s.begins(), `{"tools":[`+strings.Repeat(`{},`, 9999)+`{}]}`)
		s.next()
	},
	"endless line": func(s script) {
		s.begins()
		for b := bytes.Repeat([]byte("x"), 1<<16); ; {
			if _, err := os.Stdout.Write(b); err != nil {
				os.Exit(0)
			}
		}
	},
	"100 MB": func(s script) {
		s.answer(s.begins(), `{"tools":[{"name":"`+strings.Repeat("x", 100<<20)+`"}]}`)
		s.next()
	},
	"no object": func(s script) { s.answer(s.begins(), `[]`); s.next() },
	"null":      func(s script) { s.answer(s.begins(), `null`); s.next() },
	"no list":   func(s script) { s.answer(s.begins(), `{"tools":{}}`); s.next() },
	"a long cursor": func(s script) {
		s.answer(s.begins(), `{"tools":[],"nextCursor":"`+strings.Repeat("x", 5000)+`"}`)
		s.next()
	},
	"an error":      func(s script) { s.refuse(s.begins(), -32000); s.next() },
	"closes stdout": func(s script) { s.begins(); os.Stdout.Close(); s.in.ReadString(0) },
	"asks for ever": func(s script) { // and reads no answer
		for {
			fmt.Println(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1000) + `"}`)
		}
	},
	"other protocol": func(s script) {
		for {
			if r := s.next(); r.Method == "initialize" {
				s.answer(r, `{"protocolVersion":"1999-01-01","capabilities":{}}`)
			} else {
				s.refuse(r, -32601)
			}
		}
	},
}

// listed runs a server that behaves as act says, lists it, and reads the file as pfar does.
func listed(t *testing.T, act string, l limits) (drift.Listing, time.Duration) {
	t.Helper()
	t.Setenv(actsVariable, act)
	begun := time.Now()
	found, err := listing{l, []byte("{}"), nil}.of(t.Context(), []string{os.Args[0]})
	took := time.Since(begun)
	out := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(out, []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := drift.Listing{Definitions: found}
	if err != nil {
		all = drift.Listing{Failed: err.Error()}
	}
	if err := write(out, all); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	read, err := drift.ReadListing(text)
	if err != nil {
		t.Fatal(err)
	}
	return read, took
}

// TestList: servers of both generations, with all pages and kinds, and definitions as they wrote them.
func TestList(t *testing.T) {
	for act, want := range map[string]string{
		"good": `tool a {"name":"a","x":1.0}; tool b {"name":"b","inputSchema":{"type":"object"}}; ` +
			`prompt a {"name":"a"}; resource x://y {"uri":"x://y","name":"n"}`,
		"modern":           `tool m {"name":"m"}`,
		"ends when probed": `tool old {"name":"old"}`,
		"half":             ``,
	} {
		l, _ := listed(t, act, defaultLimits())
		var list []string
		for _, d := range l.Definitions {
			list = append(list, d.Kind+" "+d.Name+" "+string(d.Raw))
		}
		if got := strings.Join(list, "; "); got != want || l.Failed != "" {
			t.Errorf("%s: %s %q, want %s", act, got, l.Failed, want)
		}
	}
}

// TestListRefuses: whatever a server does, the listing ends in bounded time, and says why.
func TestListRefuses(t *testing.T) {
	const late = "the server took longer than 2s"
	const floods = "the server wrote more than 16777216 bytes before it had answered "
	for act, want := range map[string][]string{ // how the reason begins
		"ends at once":  {"the server ended before it had answered initialize: exit status 3"},
		"is silent":     {"the server did not answer initialize: " + late},
		"wrong ids":     {"the server did not answer initialize: " + late},
		"endless pages": {"the server answered tools/list with more than 256 pages"},
		"the same page": {"the server answered tools/list with the same cursor twice"},
		"many items":    {"the server has more than 4096 tools"},
		"endless line":  {floods + "tools/list"},
		"100 MB":        {floods + "tools/list"},
		"no object":     {"the server answered tools/list with a result that is not an object"},
		"null":          {"the server answered tools/list with a result that is not an object"},
		"no list":       {"the server answered tools/list without tools"},
		"a long cursor": {"the server answered tools/list with a cursor that is not a string of at most 4096 bytes"},
		"an error":      {"the server answered tools/list with error -32000: no"},
		"closes stdout": {"the server closed its stdout before it had answered tools/list"},
		// It cannot, or can, be written to just then.
		"asks for ever":  {late, "the server did not answer initialize: " + late},
		"other protocol": {"the server speaks a protocol that pfar does not"},
	} {
		t.Run(act, func(t *testing.T) {
			l := defaultLimits()
			switch act {
			case "is silent", "wrong ids", "asks for ever":
				l.whole, l.probe = 2*time.Second, 100*time.Millisecond
			}
			got, took := listed(t, act, l)
			begins := func(with string) bool { return strings.HasPrefix(got.Failed, with) }
			if !slices.ContainsFunc(want, begins) || got.Definitions != nil {
				t.Errorf("%q, %d definitions, want %q", got.Failed, len(got.Definitions), want)
			}
			if took > l.whole+5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if err := list(t.Context(), []string{"--out", "/nowhere/out", "--", "/bin/true"}); err == nil {
		t.Error("a file was made that is not there")
	}
	for _, args := range [][]string{nil, {"--out", "x"}, {"--", "true"}, {"--else"}} {
		if list(t.Context(), args) == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
