package units

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestRemedy: each act has words of its own, which name what it is done to, and is the same after JSON. An act that
// nobody knows is no remedy, and scopes that a shell would take apart are not asked for.
func TestRemedy(t *testing.T) {
	for want, r := range map[string]Remedy{
		"":                                        ToDo("run", "rm"),
		"pfar login crm":                          ToDo(SignIn, "crm"),
		"pfar login crm --scope a:b --scope c":    ToDo(SignIn, "crm", "a:b", "c"),
		"pfar login odd":                          ToDo(SignIn, "odd", "a", "b;c"),
		"pfar vault set key":                      ToDo(StoreSecret, "key"),
		"pfar vault set key --oauth":              ToDo(StoreTokens, "key"),
		"pfar vault give crm":                     ToDo(GiveSecrets, "crm"),
		"pfar pins accept crm":                    ToDo(AcceptPins, "crm"),
		"pfar pins show crm":                      ToDo(ShowPins, "crm"),
		"pfar edit crm":                           ToDo(EditFile, "crm"),
		"set the environment variable V for pfar": ToDo(SetVariable, "V"),
	} {
		if r.Command != want || (r == Remedy{}) != (want == "") {
			t.Errorf("%+v, want %q", r, want)
		}
		var again Remedy
		if b, err := json.Marshal(r); err != nil || json.Unmarshal(b, &again) != nil || again != r {
			t.Errorf("%+v: %s, read as %+v: %v", r, b, again, err)
		}
	}
}

// TestProbe: a probe is the same after its line. Any other text is none, and neither is one that took no time.
func TestProbe(t *testing.T) {
	want := Probe{Took: 3 * time.Millisecond, Shared: []string{`"/usr": something is mounted below it`}}
	if got, ok := ParseProbe(want.Line()); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", want.Line(), got, ok)
	}
	for _, text := range []string{"", "usage", "12.3", "{}", `{"took":0}`, `{"took":-1}`, `{"took":"3ms"}`} {
		if got, ok := ParseProbe(text); ok || got.Took != 0 {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestWordsAreNoRemedy: words alone never say what a server waits for, whatever command they begin with.
func TestWordsAreNoRemedy(t *testing.T) {
	text := `{"waits_for":"credentials","remedy":"pfar login crm"}`
	if w := parseWait(text); w.NeedsLogin() || IsForLogin(text) || w.Remedy.Act != "" {
		t.Errorf("%+v", w)
	}
	w := Wait{For: WaitCredentials, Remedy: ToDo(SignIn, "crm")}
	if !w.NeedsLogin() || !IsForLogin(w.Notification()) {
		t.Errorf("%+v", w)
	}
}
