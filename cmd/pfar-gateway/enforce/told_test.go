package enforce

import (
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestTold: a URL does not carry secret data to a named host whose text the session may have read.
func TestTold(t *testing.T) {
	lax, strict := gate.Facts{Audience: gate.Sensitive}, gate.Facts{Audience: gate.Public}
	named := resolved{facts: lax, opens: strict, addresses: []string{"url"}}
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	clean := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	from := func(server string, l gate.Label) []gate.Source { return []gate.Source{{Server: server, Label: l}} }
	const url = `{"url":"https://shop.example/?q=x"}`
	for name, tt := range map[string]struct {
		arguments string
		session   gate.Label
		sources   []gate.Source
		want      gate.Facts
	}{
		"read from there":             {url, raw, from("browser", raw), strict},
		"read from nobody knows":      {url, raw, from("", raw), strict},
		"sources not known":           {url, raw, nil, strict},
		"sources that are not all":    {url, raw, from("notes", clean), strict},
		"arguments that are no JSON":  {`{`, raw, from("browser", raw), strict},
		"read from elsewhere":         {url, raw, from("mail", raw), lax},
		"private data from there":     {url, raw, append(from("mail", raw), from("browser", clean)...), lax},
		"clean":                       {url, clean, from("browser", clean), lax},
		"no URL":                      {`{}`, raw, from("browser", raw), lax},
		"null":                        {`{"url":null}`, raw, from("browser", raw), lax},
		"a URL that is not text":      {`{"url":7}`, raw, from("browser", raw), strict},
		"the name written by escapes": {`{"\u0075rl":"https://shop.example"}`, raw, from("browser", raw), strict},
	} {
		if got := named.told("browser", []byte(tt.arguments), tt.session, tt.sources); got != tt.want {
			t.Errorf("%s: the audience is %s, want %s", name, got.Audience, tt.want.Audience)
		}
	}
}
