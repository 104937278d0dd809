package reply

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/pfar/pfar/units/jsonrpc"
)

// TestEdited: what is added to a result and what is changed in it come out as one, whatever members it has.
func TestEdited(t *testing.T) {
	meta := []jsonrpc.Edit{{Start: 1, End: 1, Text: []byte(`"_meta":{}`)}}
	for _, one := range []struct {
		result, added string
		edits         []jsonrpc.Edit
		want          string
		size          int
	}{
		{`{}`, ``, nil, `{}`, 2},
		{`{ }`, `"a":1,`, nil, `{"a":1 }`, 3},
		{`{"b":2}`, `"a":1,`, nil, `{"a":1,"b":2}`, 7},
		{`{}`, ``, meta, `{"_meta":{}}`, 12},
		{`{}`, `"a":1,`, meta, `{"a":1,"_meta":{}}`, 12},
		{` { "b" : "x" } `, `"a":1,`, []jsonrpc.Edit{{Start: 2, End: 2, Text: []byte(`"_meta":{},`)}, {Start: 9, End: 12, Text: []byte(`"yz"`)}}, ` {"a":1,"_meta":{}, "b" : "yz" } `, 27},
	} {
		re := Reply{Result: []byte(one.result), Added: []byte(one.added), Edits: one.edits}
		w := httptest.NewRecorder()
		re.Write(w, []byte("7"))
		if got, want := w.Body.String(), `{"jsonrpc":"2.0","id":7,"result":`+one.want+`}`; got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: got %s, want %s", one.result, got, want)
		}
		if re.Size() != one.size {
			t.Errorf("%s: %d bytes, want %d", one.result, re.Size(), one.size)
		}
	}
}
