package enforce

import (
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestTold: a URL does not carry secret data to a named host whose text the session may have read, or if it repeats
// what the session has read.
func TestTold(t *testing.T) {
	lax, strict := gate.Facts{Audience: gate.Sensitive}, gate.Facts{Audience: gate.Public}
	named := resolved{facts: lax, opens: strict, addresses: []string{"url"}}
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	clean := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	open := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	from := func(server string, l gate.Label) []gate.Source { return []gate.Source{{Server: server, Label: l}} }
	const url = `{"url":"https://shop.example/?q=x"}`
	for name, tt := range map[string]struct {
		arguments string
		session   gate.Label
		sources   []gate.Source
		repeats   bool
		want      gate.Facts
	}{
		"read from there":            {url, raw, from("browser", raw), false, strict},
		"read from nobody knows":     {url, raw, from("", raw), false, strict},
		"sources not known":          {url, raw, nil, false, strict},
		"sources that are not all":   {url, raw, from("notes", clean), false, strict},
		"arguments that are no JSON": {`{`, raw, from("browser", raw), false, strict},
		"read from elsewhere":        {url, raw, from("mail", raw), false, lax},
		"private data from there":    {url, raw, append(from("mail", raw), from("browser", clean)...), false, lax},
		"repeated":                   {url, raw, from("mail", raw), true, strict},
		"repeated, no URL":           {`{}`, raw, from("mail", raw), true, lax},
		"repeated, all may see it":   {url, open, from("mail", open), true, lax},
		"repeated, clean":            {url, clean, from("mail", clean), true, lax},
		"clean":                      {url, clean, from("browser", clean), false, lax},
		"no URL":                     {`{}`, raw, from("browser", raw), false, lax},
		"null":                       {`{"url":null}`, raw, from("browser", raw), false, lax},
		"a URL that is not text":     {`{"url":7}`, raw, from("browser", raw), false, strict},
		"the name in escapes":        {`{"\u0075rl":"https://shop.example"}`, raw, from("browser", raw), false, strict},
	} {
		repeats := func() bool { return tt.repeats }
		if got := named.told("browser", &sent{text: []byte(tt.arguments)}, tt.session, tt.sources, repeats); got != tt.want {
			t.Errorf("%s: the audience is %s, want %s", name, got.Audience, tt.want.Audience)
		}
	}
}
