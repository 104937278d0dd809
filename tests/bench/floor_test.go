package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestIDOf(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":7,"method":"x"}`, `7`},
		{`{"id":"a,b\"}c","method":"x"}`, `"a,b\"}c"`},
		{`{"params":{"id":1,"list":[{"id":2},"id"],"s":"\\"},"id": 3 }`, `3`},
		{`{"s":"id","t":"\"id\":9","id":-4}`, `-4`},
		{`{"result":{"id":1}}`, ``},
		{`{"s":"never ends`, ``},
		{``, ``},
	} {
		start, end := idOf([]byte(tt.text))
		if got := tt.text[start:end]; got != tt.want {
			t.Errorf("idOf(%s) is %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestFloor has two answers come in the other order: each goes where its question came from, under its own id.
func TestFloor(t *testing.T) {
	childIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut := io.Pipe()
	f := &floor{in: in, waiting: make(map[int64]chan []byte)}
	go f.read(out)
	defer childOut.Close()
	go func() {
		lines := json.NewDecoder(childIn)
		var asked []map[string]any
		for range 2 {
			var m map[string]any
			if lines.Decode(&m) != nil {
				return
			}
			asked = append(asked, m)
		}
		for _, m := range []map[string]any{asked[1], asked[0]} {
			b, _ := json.Marshal(map[string]any{"id": m["id"], "result": m["params"]})
			childOut.Write(append([]byte("{\"method\":\"notifications/message\"}\n"), append(b, '\n')...))
		}
	}()
	answers := make(chan string, 2)
	for _, id := range []string{`"one"`, `2`} {
		go func() {
			w := httptest.NewRecorder()
			f.ServeHTTP(w, httptest.NewRequest("POST", "/mcp", strings.NewReader(`{"id":`+id+`,"params":"of `+strings.Trim(id, `"`)+`"}`)))
			answers <- w.Body.String()
		}()
	}
	got := []byte(<-answers + <-answers)
	for _, want := range []string{`{"id":"one","result":"of one"}`, `{"id":2,"result":"of 2"}`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
