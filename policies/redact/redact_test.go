package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// samples are values of the kinds that there are.
var samples = map[string]string{
	"notion":   "ntn_4mYq81RzLc0pXvWbT7uKd2",
	"short":    "aB3$xy9!",
	"eleven":   "q1w2e3r4t5y",
	"fourteen": "Z9x8c7v6b5n4m3",
	"aws":      "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
	"quoted":   "pa\"ss\\wo\trd<>&'12",
	"unicode":  "pässwörd-日本語-12345",
	"uuid":     "b0a6de0c-55ad-4b6b-9d5e-d9d7a45ef6b1",
	"slash":    `tail-ends-in-backslash\`,
	"number":   "4929123456781234",
	"long":     strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 200),
	"binary":   "\x01\x02\u0080\u00ffabcdef\x7f\x00z",
}

func setOf(t testing.TB, values map[string]string) *Set {
	t.Helper()
	m := map[string][]byte{}
	for name, v := range values {
		m[name] = []byte(v)
	}
	b, err := New(m).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := new(Set)
	if err := s.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryFormIsFound puts every form of every value at every alignment, alone and between other texts.
func TestEveryFormIsFound(t *testing.T) {
	s := setOf(t, samples)
	for name, value := range samples {
		for i, form := range Forms(value) {
			for before := range 17 {
				text := strings.Repeat(".", before) + form + strings.Repeat("~", before%4)
				out, hits := s.Replace([]byte(text))
				want := strings.Repeat(".", before) + "[redacted: " + name + "]" + strings.Repeat("~", before%4)
				if len(form) >= MinLength && (string(out) != want || len(hits) != 1 || hits[0].Name != name) {
					t.Fatalf("form %d of %q behind %d bytes: got %.80q, hits %v", i, name, before, out, hits)
				}
			}
		}
	}
}

// TestEncodersAreFound has the encoders of others write the value within longer texts.
func TestEncodersAreFound(t *testing.T) {
	s := setOf(t, samples)
	for name, value := range samples {
		for before := range 5 {
			for after := range 5 {
				text := strings.Repeat("x", before) + value + strings.Repeat("y", after)
				quoted, _ := json.Marshal(text)
				twice, _ := json.Marshal(string(quoted))
				for kind, encoded := range map[string]string{
					"base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64url": base64.RawURLEncoding.EncodeToString([]byte(text)),
					"hex": hex.EncodeToString([]byte(text)), "HEX": fmt.Sprintf("%X", text), "JSON": string(quoted), "JSON twice": string(twice),
				} {
					out, hits := s.Replace([]byte(encoded))
					if len(hits) == 0 || hits[0].Name != name {
						t.Fatalf("%s of %q within %d and %d bytes is not found: %.60q", kind, name, before, after, encoded)
					}
					if most := 14 + len(name) + 6*(before+after) + 24; len(out) > most {
						t.Errorf("%s of %q: %q is left", kind, name, out)
					}
				}
			}
		}
	}
}

// TestNothingOfBase64IsLeft wants the characters gone that have some bits of the value.
func TestNothingOfBase64IsLeft(t *testing.T) {
	value := "ntn_4mYq81RzLc0pXvWbT7uKd2"
	s := setOf(t, map[string]string{"k": value})
	for before := range 3 {
		for after := range 3 {
			plain := strings.Repeat("a", before) + value + strings.Repeat("b", after)
			other := strings.Repeat("a", before) + strings.Repeat("\xff", len(value)) + strings.Repeat("b", after)
			out, _ := s.Replace([]byte(base64.StdEncoding.EncodeToString([]byte(plain))))
			head, tail, ok := strings.Cut(string(out), "[redacted: k]")
			same := base64.StdEncoding.EncodeToString([]byte(other))
			if !ok || !strings.HasPrefix(same, head) || !strings.HasSuffix(same, tail) {
				t.Errorf("behind %d and before %d bytes: %q is left, which is not the same for another value", before, after, out)
			}
		}
	}
}

// TestNothingElseIsChanged searches random texts, and texts that have all but one byte of a value.
func TestNothingElseIsChanged(t *testing.T) {
	s := setOf(t, samples)
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		text := randomText(random, 1+random.IntN(3000))
		if out, hits := s.Replace(text); len(hits) > 0 || &out[0] != &text[0] {
			t.Fatalf("%q has hits: %v", text, hits)
		}
	}
	for name, value := range samples {
		if len(value) >= 1000 { // it is found by its parts
			continue
		}
		for i := range value {
			near := []byte(value)
			near[i] ^= 1
			if _, hits := s.Replace(near); len(hits) > 0 {
				t.Errorf("%q with another byte at %d is a hit", name, i)
			}
		}
	}
}

func randomText(random *rand.Rand, n int) []byte {
	const letters = `abcdefghijklmnopqrstuvwxyzABCDEF0123456789 "\{}[]:,/+-_%u`
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[random.IntN(len(letters))]
	}
	return b
}

// TestAgainstOracle compares with a search for every form by itself.
func TestAgainstOracle(t *testing.T) {
	s := setOf(t, samples)
	random := rand.New(rand.NewPCG(3, 4))
	var all []string
	for _, v := range samples {
		all = append(all, Forms(v)...)
	}
	slices.Sort(all)
	for range 400 {
		var text []byte
		for range random.IntN(6) {
			text = append(text, randomText(random, random.IntN(40))...)
			if bytes.ContainsAny(text[max(0, len(text)-6):], `%\`) {
				text = append(text, "......"...) // else the form goes on with an escape, as no encoder writes it
			}
			form := all[random.IntN(len(all))]
			if cut := random.IntN(8); cut == 0 { // a near hit
				form = form[:random.IntN(len(form))]
			}
			text = append(text, form...)
		}
		out, _ := s.Replace(text)
		for _, form := range all {
			if len(form) >= MinLength && bytes.Contains(out, []byte(form)) {
				t.Fatalf("%.60q is left in %.300q", form, out)
			}
		}
	}
}

func TestJSONStaysJSON(t *testing.T) {
	value := `nabcdefg"\u0123`
	s := setOf(t, map[string]string{"k": value, "num": "4929123456781234", "doc": `{"a": 12345678, "b": "c"}`, "tail": `tail-ends-in-backslash\`, "cut": "u0041b0041c"})
	for text, want := range map[string]string{
		`{"a":"nabcdefg\"\\u0123"}`:               `{"a":"[redacted: k]"}`,
		`{"n":4929123456781234}`:                  `{"n":"[redacted: num]"}`,
		`{"n":[14929123456781234e5,1]}`:           `{"n":["[redacted: num]",1]}`,
		`{"4929123456781234":true}`:               `{"[redacted: num]":true}`,
		`{"a":"{\"a\": 12345678, \"b\": \"c\"}"}`: `{"a":"[redacted: doc]"}`,
		`{"a":"x tail-ends-in-backslash\\ y"}`:    `{"a":"x [redacted: tail] y"}`,
		`{"a":"x tail-ends-in-backslash\n y"}`:    `{"a":"x [redacted: tail] y"}`,
		`{"a":"x\u0041b0041c y"}`:                 `{"a":"x[redacted: cut] y"}`,
		`{"a":"\ud83d\ude004929123456781234"}`:    `{"a":"\ud83d\ude00[redacted: num]"}`,
		`{"a":"日4929123456781234本"}`:              `{"a":"日[redacted: num]本"}`,
	} {
		out, hits := s.ReplaceJSON([]byte(text))
		if string(out) != want || len(hits) == 0 {
			t.Errorf("%s becomes %s, want %s", text, out, want)
		}
	}
}

// TestProtocolStays: nobody who chooses a secret, as a token endpoint does, can take what MCP needs from all servers.
func TestProtocolStays(t *testing.T) {
	line := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"protocolVersion":"2025-06-18","content":[{"type":"text","text":"x"}]}}`
	for _, value := range []string{
		"notifications/tools/list_changed", "tools/list_changed", "2025-06-18", "025-06-18", `{"jsonrpc":"2.0",`, `"2.0","method":"notifications/`,
		`,"content":[{"type":"text","text":"`, "protocolVersion", "text", "object", line,
	} {
		s := setOf(t, map[string]string{"k": value})
		if out, hits := s.ReplaceJSON([]byte(line)); string(out) != line || len(hits) > 0 {
			t.Errorf("a secret %q: %s", value, out)
		}
	}
	s := setOf(t, map[string]string{"k": `{"jsonrpc":"2.0",`, "inner": "hunter2-hunter2"})
	line = `{"jsonrpc":"2.0","text":"it is {\"jsonrpc\":\"2.0\", and hunter2-hunter2"}`
	if out, _ := s.ReplaceJSON([]byte(line)); string(out) != `{"jsonrpc":"2.0","text":"it is [redacted: k] and [redacted: inner]"}` {
		t.Errorf("within a string: %s", out)
	}
	if out, _ := s.ReplaceJSON([]byte("no JSON: hunter2-hunter2")); string(out) != "no JSON: [redacted: inner]" {
		t.Errorf("of no JSON: %s", out)
	}
}

// TestNamesOfMembersStay: nobody who chooses a secret takes a name of the protocol away, and what cannot be one is
// replaced.
func TestNamesOfMembersStay(t *testing.T) {
	s := setOf(t, map[string]string{
		"schema": "inputSchema", "content": "structuredContent", "pin": "hunter2hunter2", "long": "ntn_4mYq81RzLc0pXvWbT7uKd2", "card": "4929123456781234",
	})
	for text, want := range map[string]string{
		`{"result":{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}}`: "",
		`{"structuredContent" : 1}`:            "",
		`{"hunter2hunter2":1}`:                 "",
		`{"a":"inputSchema"}`:                  `{"a":"[redacted: schema]"}`,
		`{"inputSchema":"inputSchema"}`:        `{"inputSchema":"[redacted: schema]"}`,
		`["inputSchema",{"b":":"}]`:            `["[redacted: schema]",{"b":":"}]`,
		`{"x\":inputSchema":"hunter2hunter2"}`: `{"x\":inputSchema":"[redacted: pin]"}`,
		`{"ntn_4mYq81RzLc0pXvWbT7uKd2":1}`:     `{"[redacted: long]":1}`,
		`{"4929123456781234":1}`:               `{"[redacted: card]":1}`,
		`"inputSchema`:                         `"[redacted: schema]`,
	} {
		out, hits := s.ReplaceJSON([]byte(text))
		if want == "" && (string(out) != text || len(hits) != 0) || want != "" && (string(out) != want || len(hits) != 1) {
			t.Errorf("%s becomes %s with hits %v, want %s", text, out, hits, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":"b"}`), "ntn_4mYq81RzLc0", 0, 3)
	f.Add([]byte(`{"a":["\u00e4\n",1e5,null]}`), "\\u00e4\\n\",1e5,n", 3, 9)
	f.Add([]byte(`"\ud83d\ude00abcdefghij"`), "ude00abcdefgh", 1, 1)
	f.Fuzz(func(t *testing.T, text []byte, value string, at, form int) {
		var parts any
		if json.Unmarshal(text, &parts) != nil {
			return
		}
		all := Forms(value)
		quoted, _ := json.Marshal(all[uint(form)%uint(len(all))])
		doc := slices.Concat([]byte("["), text, []byte(","), quoted, []byte(","), text, []byte("]"))
		if len(text) > 8 { // a value that begins and ends anywhere in a document
			from := int(uint(at) % uint(len(text)-8))
			value = string(text[from:min(len(text), from+8+int(uint(form)%32))])
		}
		for _, v := range []string{value, all[0]} {
			s := New(map[string][]byte{"k": []byte(v)})
			out, hits := s.ReplaceJSON(doc)
			if !json.Valid(out) {
				t.Fatalf("%q without %q is %q", doc, v, out)
			}
			if len(hits) == 0 && !bytes.Equal(out, doc) {
				t.Fatalf("%q without a hit became %q", doc, out)
			}
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	b, _ := New(map[string][]byte{"a": []byte("ntn_4mYq81RzLc0"), "b": []byte("aB3$xy9!")}).MarshalBinary()
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		s := new(Set)
		if s.UnmarshalBinary(b) == nil {
			s.Replace([]byte("a text with ntn_4mYq81RzLc0 in it, and aB3$xy9!"))
		}
	})
}

// TestWhoeverHoldsASet plays one who has taken the gateway over and works a value out from its middle, byte after byte,
// as could be done with the former sets, which had windows of 4 and of 8: no part of less than a window is told from
// anything else, wherever in the value it is and in whatever the set is asked by. Of a whole window the filter tells
// ten bits.
func TestWhoeverHoldsASet(t *testing.T) {
	const value = "ntn_4mYq81RzLc0pXvWbT7uKd2aB3cD4eF5gH6iJ7kL8mN9"
	s := setOf(t, map[string]string{"k": value})
	filters := func(guess []byte) bool { // reports whether the filter lets it through, as if some window were in it
		for k, tier := range s.tiers {
			width := k + MinLength
			for i := 0; tier.filter != nil && i+width <= len(guess); i++ {
				if tier.filter[hashOf(guess[i:], guess[i+width/2-4:], guess[i+width-8:], s.keys)>>tier.shift] != 0 {
					return true
				}
			}
		}
		return false
	}
	tells := func(guess []byte) bool { // that some window or some part of what is sealed may be in it
		if filters(guess) {
			return true
		}
		for i := range guess {
			for end := i + 1; end <= min(len(guess), i+maxCore); end++ {
				if len(s.entries[s.seal(guess[i:end])]) > 0 {
					return true
				}
			}
		}
		return false
	}
	if !tells([]byte(value)) {
		t.Fatal("the value itself is not told: nothing is tried")
	}
	for from := range len(value) {
		for known := 7; known < maxWidth-1 && from+known < len(value); known++ {
			right := []byte(value[from : from+known+1])
			if tells(right) {
				t.Fatalf("%q is told from what is none", right)
			}
		}
	}
	passed, tried := 0, 0
	for range 20 {
		s = setOf(t, map[string]string{"k": value})
		window := []byte(value[(len(value)-maxWidth)/2:][:maxWidth])
		for i := range window {
			for c := range 256 {
				if guess := slices.Clone(window); guess[i] != byte(c) {
					guess[i] = byte(c)
					tried++
					if filters(guess) { // and is asked about with what is sealed, which tells nothing of it
						passed++
					}
				}
			}
		}
	}
	if rate := float64(tried) / float64(passed); rate > 1<<10 {
		t.Errorf("one of %.0f wrong guesses at a window passes: the filter tells more than ten bits", rate)
	}
}

// TestFilterTellsNotWhose: the stored filter is the same in whatever order values came, and has a bit for each window
// at most.
func TestFilterTellsNotWhose(t *testing.T) {
	s := New(map[string][]byte{"a": []byte("first-value-of-a-with-1"), "b": []byte("the-other-value-of-b-2")})
	before := s.tiers
	s.secrets[0], s.secrets[1] = s.secrets[1], s.secrets[0]
	s.fill()
	for i := range before {
		if !bytes.Equal(before[i].filter, s.tiers[i].filter) {
			t.Error("the order shows")
		}
	}
}

// TestSetHoldsNoValue looks for eight bytes in a row of any form in what is stored.
func TestSetHoldsNoValue(t *testing.T) {
	m := map[string][]byte{}
	for name, v := range samples {
		m[name] = []byte(v)
	}
	b, err := New(m).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range samples {
		for _, form := range Forms(v) {
			for i := 0; i+6 <= len(form); i++ {
				if bytes.Contains(b, []byte(form[i:i+6])) {
					t.Fatalf("%q of %q is in the set", form[i:i+6], name)
				}
			}
		}
	}
}

func TestZeroSetChangesNothing(t *testing.T) {
	text := []byte("any text")
	for _, s := range []*Set{nil, {}, New(nil)} {
		if out, hits := s.Replace(text); len(hits) != 0 || &out[0] != &text[0] || s != nil && s.Longest() != 0 {
			t.Error("an empty set changes a text")
		}
	}
}

func TestUnsearched(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "1234567": false, "production": false, "Production": false, "PRODUCTION": false, "12345678": false, "********": false,
		"/home/anna/token": false, "https://api.example.com": false, "https://api.example.com/": false, "  short  ": false,
		"0000-0000-0000": false, "2026-07-28": false, "resources/templates/list": false, "application/json": false, "tools/list_": false,
		"tools/list/my-own-1": true, "1234-5678-9012": true,
		"password1234": true, "production1": true, "qWeRtYuIoP": true, "1234567890123": true, "https://hooks.example.com/T000/B000/x": true,
		"postgres://u:p@db.lan/x": true, "correcthorsebatterystaple": true, "/K7MDENGbPxRfiCY": true, "aB3$xy9!": true,
	} {
		if why := Unsearched([]byte(value)); (why == "") != want {
			t.Errorf("%q is searched for: %v (%s)", value, !want, why)
		}
	}
}

// TestPieces finds what programs take out of a value.
func TestPieces(t *testing.T) {
	pem := "-----BEGIN PRIVATE KEY-----\nMIIEvgIBADANBgkqhkiG9w0BAQEFAASC\r\nbz5J8kq0Zz1hV0m3PpQx\nAA==\n-----END PRIVATE KEY-----\n"
	document, _ := json.Marshal(map[string]any{"type": "service_account", "private_key": pem, "auth_uri": "https://accounts.example.com/o/oauth2/auth", "access_token": "ya29.a0AfB_byC1234567890"})
	s := setOf(t, map[string]string{"pem": pem, "dsn": "postgres://anna:s3cr3t-pw@db.lan/shop", "doc": string(document), "line": "0123456789-abc\n"})
	for text, want := range map[string]string{
		"key MIIEvgIBADANBgkqhkiG9w0BAQEFAASC":        "key [redacted: pem]",
		"of s3cr3t-pw.":                               "of [redacted: dsn].",
		"token ya29.a0AfB_byC1234567890":              "token [redacted: doc]",
		"0123456789-abc":                              "[redacted: line]",
		"-----BEGIN PRIVATE KEY-----":                 "-----BEGIN PRIVATE KEY-----",
		"https://accounts.example.com/o/oauth2/auth":  "https://accounts.example.com/o/oauth2/auth",
		"service_account":                             "service_account",
		"postgres://anna:s3cr3t-pw@db.lan/shop is up": "[redacted: dsn] is up",
	} {
		out := strings.ReplaceAll(s.String(text), "[redacted: doc]IIE", "")
		if strings.HasPrefix(text, "key ") {
			out = strings.ReplaceAll(out, "doc", "pem") // both have it
		}
		if out != want {
			t.Errorf("%q becomes %q, want %q", text, out, want)
		}
	}
}

// TestFormerValues are recognised, the last few of them.
func TestFormerValues(t *testing.T) {
	s := New(nil)
	before := s.Serial()
	value := func(i int) string { return fmt.Sprintf("%d-rotated-%d", i, 1000+i) }
	for i := range 6 {
		for _, want := range []bool{true, false} { // once more is nothing new
			var added bool
			if s, added = s.With(map[string][]byte{"k": []byte(value(i))}); added != want {
				t.Errorf("value %d is new: %v", i, added)
			}
		}
	}
	for i := range 6 {
		if got, want := s.String(value(i)) != value(i), i >= 6-maxFormers; got != want {
			t.Errorf("value %d is recognised: %v", i, got)
		}
	}
	read := new(Set)
	if b, err := s.MarshalBinary(); err != nil || read.UnmarshalBinary(b) != nil || s.Serial() <= before || read.Serial() != s.Serial() {
		t.Errorf("the serials are %d, %d and %d, %v", before, s.Serial(), read.Serial(), err)
	}
	if len(s.secrets) != maxFormers {
		t.Errorf("%d values are kept", len(s.secrets))
	}
}

// TestOnly: a part recognises what it is asked for, former values with it, and has nothing of the others.
func TestOnly(t *testing.T) {
	s := New(map[string][]byte{"a": []byte("first-of-a-1"), "b": []byte("value-of-b-3")})
	first := s
	s, _ = s.With(map[string][]byte{"a": []byte("second-of-a-2"), "a.1": []byte("refresh-of-a-4")})
	if first.String("second-of-a-2") != "second-of-a-2" || len(first.secrets) != 2 {
		t.Error("a set changes with what is made of it")
	}
	b, err := s.Only([]string{"a", "none"}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	part := new(Set)
	if err := part.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"first-of-a-1": true, "second-of-a-2": true, "value-of-b-3": false, "refresh-of-a-4": false} {
		if got := part.String(value) != value; got != want {
			t.Errorf("%q is recognised: %v", value, got)
		}
	}
	for _, one := range s.secrets {
		for _, p := range one.prints {
			if seal := binary.LittleEndian.AppendUint64(nil, p.Core); one.name != "a" && bytes.Contains(b, seal) {
				t.Errorf("something of %q is in it", one.name)
			}
		}
	}
	if len(part.secrets) != 2 || part.Serial() != 0 {
		t.Errorf("it has %d values and the serial %d", len(part.secrets), part.Serial())
	}
}

// TestParts has values found wherever in a long text without a blank they stand, in any form.
func TestParts(t *testing.T) {
	const value = "ntn_4mYq81/zLc0pXvWbT7uKd2"
	s := setOf(t, map[string]string{"k": value})
	forms := []string{value, percent(value, "", "%%25%02X"), escapeUnits(value, 0, `\\u%04x`), hex.EncodeToString([]byte(value)), base64.RawStdEncoding.EncodeToString([]byte(value))}
	random := rand.New(rand.NewPCG(7, 8))
	for i := range 60 {
		text := []byte("%41" + strings.Repeat("~", maxPart-8<<10))
		want := slices.Clone(text)
		for range 12 {
			between := strings.Repeat(".", random.IntN(3000))
			text = append(append(text, between...), forms[i%len(forms)]...)
			want = append(append(want, between...), "[redacted: k]"...)
		}
		tail := strings.Repeat("~", random.IntN(maxPart))
		if got, _ := s.Replace(append(text, tail...)); string(got) != string(want)+tail {
			t.Fatalf("form %d: %d bytes are left, want %d", i%len(forms), len(got), len(want)+len(tail))
		}
	}
}

// TestMemory: a text that is all escapes, or all secrets between them, takes no memory without measure.
func TestMemory(t *testing.T) {
	const value = "ntn_4mYq81RzLc0pXvWbT7uKd2"
	s := setOf(t, map[string]string{"k": value})
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	used := func() uint64 {
		metrics.Read(heap)
		return heap[0].Value.Uint64()
	}
	for name, text := range map[string][]byte{
		"escapes": bytes.Repeat([]byte("%25252541"), 1<<20),
		"secrets": bytes.Repeat([]byte(value+`%41\\u0041&#65;`), 25<<10),
	} {
		runtime.GC()
		before, over, most := used(), make(chan bool), uint64(0)
		go func() {
			defer close(over)
			s.Replace(text)
		}()
		for running := true; running; {
			select {
			case <-over:
				running = false
			case <-time.After(time.Millisecond):
				most = max(most, used())
			}
		}
		if most > before+60<<20 {
			t.Errorf("%s: a text of %d bytes takes %d", name, len(text), most-before)
		}
	}
}

// processor is the processor time of this process so far.
func processor(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// TestLinearTime searches texts that are made to look like secrets: twice the text takes about twice the time.
func TestLinearTime(t *testing.T) {
	long := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 200)
	periodic := strings.Repeat("abcdefgh", 1000)
	values := map[string]string{"long": long, "periodic": periodic}
	for i := range 50 {
		values[fmt.Sprint("k", i)] = fmt.Sprintf("%d-the-same-middle-of-them-all-%d", 100+i, 100+i)
	}
	s := setOf(t, values)
	for name, unit := range map[string]string{
		"middle": long[len(long)/2-16 : len(long)/2+16], "periodic": "abcdefgh", "shared": "-the-same-middle-of-them-all-", "all of one": long, "escapes": `%252525\\\\u0041&amp;amp;#65;+`,
	} {
		small, big := []byte(strings.Repeat(unit, 1+1<<16/len(unit))), []byte(strings.Repeat(unit, 1+1<<19/len(unit)))
		best := func(text []byte) time.Duration {
			least := time.Hour
			for range 3 {
				began := processor(t)
				s.Replace(text)
				least = min(least, processor(t)-began)
			}
			return least
		}
		a, b := best(small), best(big)
		t.Logf("%s: %v for 64 KiB, %v for 512 KiB", name, a, b)
		if b > 40*a+100*time.Millisecond {
			t.Errorf("%s: %v for 64 KiB, and %v for eight times that", name, a, b)
		}
	}
}

func TestStrip(t *testing.T) {
	for text, want := range map[string]string{
		"fetch https://anna:pw@git.example.com/x failed":   "fetch https://[removed]@git.example.com/x failed",
		"fetch https://ghp_abc@git.example.com/x":          "fetch https://[removed]@git.example.com/x",
		"postgres://u:p@ss@db.lan/x":                       "postgres://[removed]@db.lan/x",
		"Authorization: Bearer abc.def":                    "Authorization: [removed]",
		`{"Authorization":"Bearer abc","x":1}`:             `{"Authorization":"[removed]","x":1}`,
		`headers: { authorization: 'Bearer abc', x: 'y' }`: `headers: { authorization: '[removed]', x: 'y' }`,
		"Set-Cookie: sid=1; HttpOnly":                      "Set-Cookie: [removed]",
		"mail anna@example.com about https://example.com/": "mail anna@example.com about https://example.com/",
		"PROXY-AUTHORIZATION = x":                          "PROXY-AUTHORIZATION = [removed]",
		"coo\u212aie: sid=1":                               "coo\u212aie: [removed]", // which folds to a k
		"authorization failed":                             "authorization failed",
		"see https://example.com/@anna":                    "see https://example.com/@anna",
	} {
		if got := Strip(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func BenchmarkReplace(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, secrets := range []int{0, 1, 50, 500} {
		for _, kind := range []string{"tokens", "with short"} {
			values := map[string]string{}
			for i := range secrets {
				values[fmt.Sprint("k", i)] = "ntn_" + token(random, 40)
			}
			if kind != "tokens" && secrets > 0 {
				values["short"] = "aB3$xy9!"
			} else if kind != "tokens" {
				continue
			}
			s := setOf(b, values)
			for _, size := range []int{1 << 10, 64 << 10} {
				var prose strings.Builder
				for prose.Len() < size {
					prose.WriteString(strings.ToLower(token(random, 1+random.IntN(9))) + " ")
				}
				text, _ := json.Marshal(map[string]any{"content": prose.String()[:size-14]})
				b.Run(fmt.Sprintf("%d %s/%d KiB", secrets, kind, size>>10), func(b *testing.B) {
					b.SetBytes(int64(len(text)))
					b.ReportAllocs()
					for b.Loop() {
						if _, hits := s.ReplaceJSON(text); hits != nil {
							b.Fatal("a hit")
						}
					}
				})
			}
		}
	}
}

func token(random *rand.Rand, n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[random.IntN(len(letters))]
	}
	return string(b)
}

// BenchmarkDense searches what has no white space: Base64, as pictures come in.
func BenchmarkDense(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	values := map[string]string{}
	for i := range 50 {
		values[fmt.Sprint("k", i)] = "ntn_" + token(random, 40)
	}
	s := setOf(b, values)
	text := []byte(`{"data":"` + token(random, 64<<10-11) + `"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.ReplaceJSON(text)
	}
}
