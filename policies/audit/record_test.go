package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/gate"
)

// texts are what strangers choose.
var texts = []string{
	"notion", "a\nb", `{"seq":1}`, "\x00", "\x1b[2J", "\u202e", "\u2028", "\xff\xfe", "é漢", "\U000e0041", "\u009b31m", `"}` + "\n" + `{"seq":2,"prev":"`, "\\", "\t", "<&>", "\ufffd",
}

// fill gives every member of a record a value, the ones that will be added to it as well.
func fill(v reflect.Value, r *rand.Rand) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<33), r.Int64N(1e9)).UTC()))
		return
	case gate.Verdict:
		v.Set(reflect.ValueOf(gate.Verdict(r.IntN(4))))
		return
	case gate.Confidentiality, gate.Integrity, gate.Effect:
		v.SetUint(1 + r.Uint64N(3))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), r)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), r)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			fill(v.Index(i), r)
		}
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(1e12))
	case reflect.Uint64:
		v.SetUint(1 + r.Uint64())
	default:
		panic("a record has a " + v.Kind().String())
	}
}

func encode(r Record) []byte {
	prev, _ := hex.DecodeString(r.Prev)
	return Line(nil, r.Seq, [32]byte(append(prev, make([]byte, 32)...)), r.Time, r.Body(nil))
}

// TestEncoding compares what is written with what encoding/json writes, for records in which everything is set.
func TestEncoding(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var r Record
		fill(reflect.ValueOf(&r).Elem(), random)
		r.Prev = fmt.Sprintf("%x", sha256.Sum256([]byte(r.Reason)))
		line := encode(r)
		if bytes.ContainsAny(line, "\n\x00\x1b\x7f") || !utf8.Valid(line) || !json.Valid(line) || bytes.Contains(line, []byte("\u202e")) || bytes.Contains(line, []byte("\u009b")) {
			t.Fatalf("not one line that may be looked at: %q", line)
		}
		theirs, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(theirs, &b); err != nil {
			t.Fatal(err)
		}
		decision := b["decision"].(map[string]any) // what it was decided by stands beside it
		delete(decision, "facts")
		delete(decision, "policy")
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("ours %s\njson %s", line, theirs)
		}
		got, err := Parse(line)
		if err != nil || !bytes.Equal(encode(got), line) {
			t.Fatalf("read back, it is another: %v\n%s\n%s", err, line, encode(got))
		}
	}
}

// TestZero has nothing written that is not set.
func TestZero(t *testing.T) {
	line := string(encode(Record{Seq: 1, Writer: "gateway", Kind: Open, Time: time.Unix(0, 5)}))
	want := `{"seq":1,"prev":"` + Zero + `","time":"1970-01-01T00:00:00.000000005Z","writer":"gateway","kind":"open"}`
	if line != want {
		t.Errorf("%s, want %s", line, want)
	}
	if r, err := Parse([]byte(line)); err != nil || r.Decision != nil || r.Seq != 1 || r.Prev != Zero {
		t.Errorf("%+v, %v", r, err)
	}
	line = string(encode(Record{Seq: 1, Kind: Open, Decision: &gate.Decision{Facts: gate.Worst, Policy: "the digest"}}))
	if r, err := Parse([]byte(line)); err != nil || r.Facts == nil || *r.Facts != gate.Worst || r.Policy != "the digest" {
		t.Errorf("facts and policy of the decision: %s, %v", line, err)
	}
	line = string(encode(Record{Seq: 1, Kind: Open, Decision: &gate.Decision{}, Facts: &gate.Facts{}, Arguments: &Arguments{}}))
	for _, has := range []string{`"verdict":"deny"`, `"audience":"unknown"`, `"arguments":{"bytes":0,"sha256":""}`} {
		if !strings.Contains(line, has) {
			t.Errorf("no %s in %s", has, line)
		}
	}
}

// TestLimits: a record is a line of bounded length, whatever it holds, and says what the whole was.
func TestLimits(t *testing.T) {
	huge := strings.Repeat("\x01\xff", 5<<20)
	list := make([]string, 1000)
	findings := make([]Finding, 1000)
	for i := range list {
		list[i] = huge[:1<<16]
		findings[i] = Finding{huge[:1<<12], huge[:1<<12], huge[:1<<12], huge[:1<<12]}
	}
	f := gate.Worst
	f.Forbidden, f.Tier, f.From = huge, huge, gate.From{Confidentiality: huge, Integrity: huge, Audience: huge, Effect: huge}
	r := Record{
		Seq: 1<<64 - 1, Writer: huge, Boot: huge, Kind: Kind(huge), ID: huge, Client: huge, Session: huge, Server: huge, Tool: huge, Method: huge, Arguments: &Arguments{1 << 40, huge, huge},
		Before: &Label{gate.Start, list}, After: &Label{gate.Start, list}, Output: &Label{gate.Start, list}, Withheld: &Arguments{1 << 40, huge, huge}, To: huge, Facts: &f, Decision: &gate.Decision{Reason: huge, Rule: huge, Fired: list, Flows: list, Profile: huge}, Findings: findings,
		Approver: huge, Channel: huge, Pin: huge, Policy: huge, Outcome: huge, Subject: huge, Old: huge, New: huge, User: huge, Reason: huge, Gap: Gap{&Damage{1, huge}, make([]Anchor, 100)},
	}
	line := encode(r)
	if len(line) > MaxLine {
		t.Errorf("a line of %d bytes, more than %d", len(line), MaxLine)
	}
	got, err := Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("(%d bytes, sha256 %x)", len(huge), sha256.Sum256([]byte(huge))); !strings.HasSuffix(got.Tool, want) || len(got.Tool) > 4*maxWord {
		t.Errorf("the tool is %q", got.Tool)
	}
	if n := len(got.Findings); n != maxList || !strings.HasPrefix(got.Findings[n-1].Detail, "969 more, sha256 ") {
		t.Errorf("%d findings, the last %+v", n, got.Findings[n-1])
	}
	if n := len(got.Decision.Fired); n != maxList || !strings.HasPrefix(got.Decision.Fired[n-1], "969 more, sha256 ") {
		t.Errorf("%d rules, the last %.80q", n, got.Decision.Fired[n-1])
	}
	if cut("aé"+huge, 2)[:1] != "a" || strings.Contains(cut("aéé", 2), "\xc3…") {
		t.Error("a letter is cut in two")
	}
}

// TestBounded: what is cut already is not cut once more.
func TestBounded(t *testing.T) {
	for n, want := range map[int]int{0: 0, maxValue: maxValue, maxValue + 1: maxValue, 1 << 24: maxValue} {
		text := strings.Repeat("x", n)
		got := Bounded(text)
		if len(got) > want || (got == text) != (n <= maxValue) || n > maxValue && !strings.HasSuffix(got, fmt.Sprintf("… (%d bytes, sha256 %x)", n, sha256.Sum256([]byte(text)))) {
			t.Errorf("of %d bytes are kept %d: %.40q … %q", n, len(got), got, got[max(0, len(got)-120):])
		}
	}
}

func TestID(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for i := range 1000 {
		id := newID(time.Unix(1_700_000_000+int64(i)*1000, 0))
		if !IsID(id) || len(id) != idLength || seen[id] || id <= last || id[0] < '0' || id[0] > '9' {
			t.Fatalf("%q after %q", id, last)
		}
		seen[id], last = true, id
	}
	for _, s := range []string{"", "notion", "1234567", "1abc/def9", "1ABCDEFGH", "123456789012345678901", "-23456789"} {
		if IsID(s) {
			t.Errorf("%q is taken for one", s)
		}
	}
	if !IsID(NewID()[:8]) {
		t.Error("nor is the beginning of one")
	}
}

func FuzzRecord(f *testing.F) {
	for _, s := range texts {
		f.Add(s, s, int64(1))
	}
	f.Fuzz(func(t *testing.T, a, b string, n int64) {
		r := Record{Seq: 1, Writer: "gateway", Kind: Open, Tool: a, Reason: b, Client: b, Bytes: n, Findings: []Finding{{a, b, a, b}}, Before: &Label{Sources: []string{a, b}}, Arguments: &Arguments{Text: b}}
		line := encode(r)
		got, err := Parse(line)
		if err != nil || bytes.ContainsAny(line, "\n\x1b") || !utf8.Valid(line) {
			t.Fatalf("%v: %q", err, line)
		}
		if len(a) <= maxWord && got.Tool != strings.ToValidUTF8(a, "\ufffd") && got.Tool != string([]rune(a)) {
			t.Fatalf("%q became %q", a, got.Tool)
		}
	})
}
