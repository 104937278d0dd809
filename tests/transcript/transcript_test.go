package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"
)

// before is a message of a version, and the others what became of it.
type before struct {
	Hello *struct {
		Name  string            `json:"name"`
		For   time.Duration     `json:"for"`
		Notes map[string]string `json:"notes,omitempty"`
	} `json:"hello,omitempty"`
	Ended bool            `json:"ended,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

type more struct {
	Hello *struct {
		Name  string            `json:"name"`
		For   time.Duration     `json:"for"`
		Notes map[string]string `json:"notes,omitempty"`
	} `json:"hello,omitempty"`
	Ended bool            `json:"ended,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Novel string          `json:"novel,omitempty"`
}

type renamed struct {
	Hello *struct {
		Name  string            `json:"server"`
		For   time.Duration     `json:"for"`
		Notes map[string]string `json:"notes,omitempty"`
	} `json:"hello,omitempty"`
	Ended bool            `json:"ended,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

type removed struct {
	Ended bool            `json:"ended,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

type retyped struct {
	Hello *struct {
		Name  string            `json:"name"`
		For   string            `json:"for"`
		Notes map[string]string `json:"notes,omitempty"`
	} `json:"hello,omitempty"`
	Ended bool            `json:"ended,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

func strictly[T any](b []byte) (any, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&v)
	return v, err
}

func TestCompare(t *testing.T) {
	_, recorded := Kind{Zero: before{}}.compare(nil)
	if len(recorded) != 3 {
		t.Fatalf("recorded are %q", recorded)
	}
	if whole := (Kind{Zero: struct{ A, B int }{}}).messages(); len(whole) != 1 || string(encode(whole[0])) != `{"A":1,"B":1}` {
		t.Fatalf("of what is never left out there is %s", encode(whole))
	}
	word := Kind{Zero: before{}, Also: []any{before{Raw: json.RawMessage(`"word"`)}}}
	_, worded := word.compare(nil)
	for name, c := range map[string]struct {
		kind     Kind
		recorded []any
		want     []error
		grows    int
	}{
		"the same":                             {Kind{Zero: before{}}, recorded, nil, 0},
		"a new message":                        {Kind{Zero: more{}}, recorded, []error{errNew}, 1},
		"a member by another name":             {Kind{Zero: renamed{}}, recorded, []error{errUnsaid, errUnread, errNew}, 1},
		"no such message any more":             {Kind{Zero: removed{}}, recorded, []error{errUnsaid, errUnread}, 0},
		"another type":                         {Kind{Zero: retyped{}}, recorded, []error{errUnsaid, errUnread, errNew}, 1},
		"a word that nobody says any more":     {Kind{Zero: before{}}, worded, []error{errUnsaid}, 0},
		"a reader that refuses":                {Kind{Zero: before{}, Read: strictly[before]}, recorded[:1], []error{errUnknown, errNew, errNew}, 2},
		"one that is to refuse":                {Kind{Zero: before{}, Read: strictly[before], Strict: true}, recorded, nil, 0},
		"one that is to refuse, and does not":  {Kind{Zero: before{}, Strict: true}, recorded[:1], []error{errUnknown, errNew, errNew}, 2},
		"a receiver with types of its own":     {Kind{Zero: before{}, Read: strictly[removed], Sent: true}, recorded, nil, 0},
		"a sender who says less, read by none": {Kind{Zero: removed{}, Sent: true}, recorded, []error{errUnsaid}, 0},
	} {
		faults, now := c.kind.compare(c.recorded)
		wrong := len(faults) != len(c.want) || len(now) != len(c.recorded)+c.grows
		for i := range min(len(faults), len(c.want)) {
			wrong = wrong || !errors.Is(faults[i], c.want[i])
		}
		if wrong {
			t.Errorf("%s: %q, want %q; the record grows by %d, want %d", name, faults, c.want, len(now)-len(c.recorded), c.grows)
		}
	}
}

// A member that is new in a message that is recorded takes the place of that, so that the record does not grow for
// ever.
func TestMemberIsAdded(t *testing.T) {
	type less struct {
		Hello struct {
			Name string `json:"name"`
		} `json:"hello,omitzero"`
	}
	type more struct {
		Hello struct {
			Name  string `json:"name"`
			Again bool   `json:"again,omitempty"`
		} `json:"hello,omitzero"`
	}
	_, recorded := Kind{Zero: less{}}.compare(nil)
	faults, now := Kind{Zero: more{}}.compare(recorded)
	if len(faults) != 1 || !errors.Is(faults[0], errNew) || len(now) != 1 || string(encode(now[0])) != `{"hello":{"again":true,"name":"text"}}` {
		t.Errorf("%q, %s", faults, encode(now))
	}
}
