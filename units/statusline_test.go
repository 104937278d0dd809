package units

import "testing"

func TestStatusLine(t *testing.T) {
	if got := ParseStatusLine("needs-login: pfar login x; label public"); got != (StatusLine{State: StateWaiting,
		Detail: "pfar login x"}) {
		t.Errorf("%+v", got)
	}
	for want, s := range map[string]StatusLine{
		"":                       {},
		"stopping":               {State: StateStopping, Detail: StateStopping},
		"running: 7 tools":       {State: StateRunning, Detail: "7 tools"},
		"starting; label public": {State: StateStarting, Label: "public"},
		"failed: exit status 1: no such file; label internal; its file is broken; refused a.example (not-declared)": {
			StateFailed, "exit status 1: no such file", "internal", "its file is broken", "refused a.example (not-declared)",
		},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
		read := ParseStatusLine(want)
		if s.Detail == s.State {
			s.Detail = ""
		}
		if read != (StatusLine{State: s.State, Detail: s.Detail}) {
			t.Errorf("%q: %+v", want, read)
		}
	}
}
