package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// chain makes a chain of n records, a line each.
func chain(n int) [][]byte {
	var lines [][]byte
	var prev [32]byte
	for i := range n {
		r := Record{Writer: "gateway", Kind: Open, ID: fmt.Sprint("id", i/2), Tool: fmt.Sprint("tool", i)}
		if i%2 == 1 {
			r.Kind = Close
		}
		line := Line(nil, uint64(i+1), prev, time.Unix(int64(i), 0), r.Body(nil))
		lines, prev = append(lines, line), Hash(line)
	}
	return lines
}

func join(lines ...[]byte) []byte {
	var b []byte
	for _, l := range lines {
		b = append(append(b, l...), '\n')
	}
	return b
}

func anchorOf(lines [][]byte, seq int) Anchor {
	h := Hash(lines[seq-1])
	return Anchor{"gateway", uint64(seq), hex.EncodeToString(h[:])}
}

func check(t *testing.T, base *Anchor, anchors []Anchor, files ...[]byte) Report {
	t.Helper()
	var list []File
	for i, b := range files {
		list = append(list, File{fmt.Sprint("f", i), bytes.NewReader(b)})
	}
	var bases []Anchor
	if base != nil {
		bases = []Anchor{*base}
	}
	r, err := Verify("gateway", list, bases, anchors)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerify(t *testing.T) {
	c := chain(10)
	other := chain(12)
	forged := bytes.Replace(c[4], []byte("tool4"), []byte("toolX"), 1)
	var prev [32]byte
	copy(prev[:], func() []byte { h := Hash(c[4]); return h[:] }())
	inserted := Line(nil, 6, prev, time.Unix(9, 0), (&Record{Writer: "gateway", Kind: Open, Tool: "forged"}).Body(nil))
	foreign := Line(nil, 11, Hash(c[9]), time.Unix(9, 0), (&Record{Writer: "pfard", Kind: Vault}).Body(nil))
	with := func(at int, l ...[]byte) []byte {
		return join(append(append(append([][]byte{}, c[:at]...), l...), c[at:]...)...)
	}
	anchors := []Anchor{anchorOf(c, 3), anchorOf(c, 10)}
	base := anchorOf(c, 4)
	for name, test := range map[string]struct {
		base  *Anchor
		files [][]byte
		want  []string // place and what
	}{
		"whole":                   {nil, [][]byte{join(c...)}, nil},
		"two files":               {nil, [][]byte{join(c[:4]...), join(c[4:]...)}, nil},
		"an empty file":           {nil, [][]byte{join(c[:4]...), join(c[4:]...), nil}, nil},
		"older files deleted":     {&base, [][]byte{join(c[4:]...)}, nil},
		"edited":                  {nil, [][]byte{with(4, forged)[:0], join(append(append(append([][]byte{}, c[:4]...), forged), c[5:]...)...)}, []string{"f1:5 edited"}},
		"deleted":                 {nil, [][]byte{join(append(append([][]byte{}, c[:4]...), c[6:]...)...)}, []string{"f0:5 deleted"}},
		"inserted":                {nil, [][]byte{with(5, inserted)}, []string{"f0:7 inserted"}},
		"duplicated":              {nil, [][]byte{with(5, c[4])}, []string{"f0:6 duplicated"}},
		"an older one duplicated": {nil, [][]byte{with(5, c[1])}, []string{"f0:6 duplicated"}},
		"reordered":               {nil, [][]byte{join(c[0], c[1], c[3], c[2], c[4], c[5], c[6], c[7], c[8], c[9])}, []string{"f0:4 reordered"}},
		"garbage":                 {nil, [][]byte{with(5, []byte("garbage"))}, []string{"f0:6 no record"}},
		"cut":                     {nil, [][]byte{join(c[:8]...)}, []string{"f0:8 cut"}},
		"cut within a line":       {nil, [][]byte{join(c...)[:len(join(c[:9]...))+9]}, []string{"f0:10 cut"}},
		"all deleted":             {nil, nil, []string{":0 cut"}},
		"beginning cut":           {nil, [][]byte{join(c[2:]...)}, []string{"f0:1 begins elsewhere"}},
		"a file deleted":          {nil, [][]byte{join(c[:4]...), join(c[6:]...)}, []string{"f1:1 deleted"}},
		"files swapped":           {nil, [][]byte{join(c[4:]...), join(c[:4]...)}, []string{"f0:1 begins elsewhere", "f1:1 duplicated", "f1:2 duplicated", "f1:3 duplicated", "f1:4 duplicated"}},
		"wrong link at rotation":  {nil, [][]byte{join(append(append([][]byte{}, c[:3]...), bytes.Replace(c[3], []byte("tool3"), []byte("toolX"), 1))...), join(c[4:]...)}, []string{"f1:1 edited"}},
		"another chain's":         {nil, [][]byte{join(append(c[:10:10], foreign)...)}, []string{"f0:11 inserted"}},
		"another chain":           {nil, [][]byte{bytes.ReplaceAll(join(other[:1]...), []byte("tool0"), []byte("toolY"))}, []string{"f0:1 cut"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, test.base, anchors, test.files...)
			var got []string
			for _, p := range r.Problems {
				got = append(got, fmt.Sprintf("%s:%d %s", p.File, p.Line, p.What))
			}
			if strings.Join(got, ", ") != strings.Join(test.want, ", ") {
				t.Errorf("got %q, want %q", r.Problems, test.want)
			}
		})
	}
	if r := check(t, nil, anchors, join(c...)); r.Anchors != 2 || r.Records != 10 || r.First != 1 || r.Last != 10 || len(r.Unmatched) != 0 {
		t.Errorf("%+v", r)
	}
	if r := check(t, nil, nil, join(c[:9]...)); len(r.Unmatched) != 1 || r.Unmatched[0] != (Unmatched{"id4", 9}) {
		t.Errorf("a call that was never closed: %+v", r)
	}
}

// TestRewritten: whoever can write a whole chain anew, digests and all, is found by what the journal was told.
func TestRewritten(t *testing.T) {
	c := chain(10)
	var lines [][]byte
	var prev [32]byte
	for i, line := range c {
		r, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			r.Tool = "harmless"
		}
		line = Line(nil, r.Seq, prev, r.Time, r.Body(nil))
		lines, prev = append(lines, line), Hash(line)
	}
	if r := check(t, nil, nil, join(lines...)); len(r.Problems) != 0 {
		t.Fatalf("a chain of its own: %v", r.Problems)
	}
	r := check(t, nil, []Anchor{anchorOf(c, 2), anchorOf(c, 7)}, join(lines...))
	if len(r.Problems) != 1 || r.Problems[0].Seq != 7 || r.Problems[0].What != "edited" {
		t.Errorf("%v", r.Problems)
	}
}

// TestEveryByte changes each byte of a chain in turn: whatever is changed before the last line is found.
func TestEveryByte(t *testing.T) {
	c := chain(4)
	whole := join(c...)
	last := anchorOf(c, 4)
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		r := check(t, nil, []Anchor{last}, b)
		if len(r.Problems) == 0 {
			t.Fatalf("byte %d is another, and nothing is found: %q", i, b[max(0, i-20):min(len(b), i+20)])
		}
	}
	for i := range whole { // and if the rest is gone, that is
		if r := check(t, nil, []Anchor{last}, whole[:i]); len(r.Problems) == 0 {
			t.Fatalf("cut at %d, and nothing is found", i)
		}
	}
}

// TestTail looks at a file cut at every byte, with each kind of garbage behind it.
func TestTail(t *testing.T) {
	c := chain(4)
	whole := join(c...)
	for i := 0; i <= len(whole); i++ {
		for _, garbage := range []string{"", "x", "\n", "{\"seq\":5}\n", strings.Repeat("\x00", 5000), strings.Repeat("y", MaxLine+70000)} {
			if len(garbage) > 10000 && i%97 != 0 {
				continue
			}
			b := append(bytes.Clone(whole[:i]), garbage...)
			complete := bytes.Count(whole[:i], []byte("\n"))
			good := len(join(c[:complete]...))
			if garbage == "\n" && complete < 4 && i == len(join(c[:complete]...))+len(c[complete]) {
				complete, good = complete+1, len(b)
			}
			tail, err := TailOf(bytes.NewReader(b), int64(len(b)))
			if err != nil || tail.Seq != uint64(complete) {
				t.Fatalf("cut at %d, %.9q: %+v, %v, want record %d", i, garbage, tail, err, complete)
			}
			if rest := len(b) - good; rest == 0 != (tail.Torn == nil) || rest > 0 && tail.Torn.Bytes != int64(rest) {
				t.Fatalf("cut at %d, %.9q: %+v, want %d bytes", i, garbage, tail.Torn, rest)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	c := chain(6)
	f.Add(join(c...), join(c[3:]...))
	f.Add(join(c[:3]...), join(c[3:]...))
	f.Add([]byte("\n\n"), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		r := check(t, nil, []Anchor{anchorOf(c, 6)}, a, b)
		if len(r.Problems) == 0 && !bytes.Equal(append(bytes.Clone(a), b...), join(c...)) {
			// What lies behind the last record is noted only.
			if len(r.Notes) == 0 {
				t.Fatalf("%q and %q are taken for the chain", a, b)
			}
		}
		for _, x := range [][]byte{a, b} {
			if _, err := TailOf(bytes.NewReader(x), int64(len(x))); err != nil {
				t.Fatal(err)
			}
			_, _ = Since(bytes.NewReader(x), int64(len(x)))
			_, _ = BaseOf(bytes.NewReader(x), int64(len(x)))
		}
	})
}

func BenchmarkBody(b *testing.B) {
	r := typical()
	var buffer []byte
	for b.Loop() {
		buffer = r.Body(buffer[:0])
	}
	b.ReportMetric(float64(len(buffer)), "bytes")
}

// typical is a record of about 900 bytes.
func typical() *Record {
	f := gate.Worst
	return &Record{
		Time: time.Unix(1_700_000_000, 123456789), Writer: "gateway", Boot: "7c7f1d4c-8a0b-4f0e-9a51-1d2c3b4a5f60", Kind: Open, ID: "1nq8z7p4kd9w2m7x1fa", Client: "claude", Session: "default",
		Server: "notion", Tool: "search", Method: "tools/call", Arguments: &Arguments{Bytes: 1024, SHA256: Zero}, Before: &Label{gate.Start, nil}, After: &Label{gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}, []string{"notion.search"}},
		Facts: &f, Decision: &gate.Decision{Verdict: gate.Allow, Reason: "nothing leaves", Rule: "strict.hcl: clean, fits, none", Fired: []string{"strict.hcl: clean, fits, none"}, Data: gate.Start, Profile: "strict"},
		Pin: Zero, Policy: Zero[:16],
	}
}

// TestVerifyIsBounded: whatever a writer that was taken over writes, a verification keeps and tells a bounded part.
func TestVerifyIsBounded(t *testing.T) {
	written := func(n int, record func(i int) (seq uint64, r *Record)) []byte {
		var b bytes.Buffer
		var prev [32]byte
		for i := range n {
			seq, r := record(i)
			r.Writer = "gateway"
			line := Line(nil, seq, prev, time.Unix(int64(i), 0), r.Body(nil))
			b.Write(append(line, '\n'))
			prev = Hash(line)
		}
		return b.Bytes()
	}
	const many = 2*maxOpen + 7
	r := check(t, nil, nil, written(many, func(i int) (uint64, *Record) {
		return uint64(i + 1), &Record{Kind: Open, ID: fmt.Sprint("id", i)}
	}))
	want := fmt.Sprintf("more than %d calls are open at record %d", maxOpen, maxOpen+1)
	if len(r.Unmatched) != maxOpen || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], want) || len(r.Problems) > 0 {
		t.Errorf("calls that never end: %d, %q, %v", len(r.Unmatched), r.Notes, r.Problems)
	}
	r = check(t, nil, nil, written(4*maxTold, func(i int) (uint64, *Record) {
		return uint64(i + 1), &Record{Kind: Retention, Gap: Gap{Anchors: []Anchor{{"pfard", uint64(i + 1), Zero}}}}
	}))
	if n := len(r.Told); n > 2*maxTold || n < maxTold || r.Told[n-1].Seq != 4*maxTold {
		t.Errorf("%d beginnings of chains are kept", n)
	}
	r = check(t, nil, nil, written(2*maxGaps, func(i int) (uint64, *Record) {
		return uint64(2*i + 1), &Record{Kind: Close, ID: "x"}
	}))
	if len(r.Problems) != maxProblems || r.More < maxGaps {
		t.Errorf("gaps: %d problems and %d more", len(r.Problems), r.More)
	}
	torn := join([]byte("x"))
	var prev [32]byte
	var text []byte
	for i := range 2 * maxNotes {
		digest := sha256.Sum256(torn[:1])
		damage := Gap{Torn: &Damage{Bytes: 1, SHA256: hex.EncodeToString(digest[:])}}
		body := (&Record{Writer: "gateway", Kind: Torn, Gap: damage}).Body(nil)
		line := Line(nil, uint64(i+1), prev, time.Unix(int64(i), 0), body)
		text, prev = append(append(text, torn...), append(line, '\n')...), Hash(line)
	}
	if r = check(t, nil, nil, text); len(r.Notes) != maxNotes || r.MoreNotes != maxNotes || len(r.Problems) > 0 {
		t.Errorf("%d notes and %d more, %v", len(r.Notes), r.MoreNotes, r.Problems)
	}
}
