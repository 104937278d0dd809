package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/attach/attachtest"
)

// secretsIn is a redaction with these values, and what launchers ask.
func secretsIn(values map[string]string) (*redaction, attach.Searcher) {
	r := newRedaction()
	for name, value := range values {
		r.put(name, []byte(value))
	}
	return r, r.searcher(slog.New(slog.DiscardHandler))
}

// TestSearchedLines: however a value is written, it is not logged.
func TestSearchedLines(t *testing.T) {
	const value = `ntn_4mYq81"RzLc0pXvWbT7uKd2`
	long := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 300)
	_, search := secretsIn(map[string]string{"k": value, "long": long})
	quoted, _ := json.Marshal(value)
	twice, _ := json.Marshal(string(quoted))
	for name, c := range map[string]struct{ in, want string }{
		"alone":                 {value, "[redacted: k]"},
		"within text":           {"panic: " + value + " is wrong", "panic: [redacted: k] is wrong"},
		"in a URL":              {"GET /?t=" + url.QueryEscape(value), "GET /?t=[redacted: k]"},
		"in Base64":             {base64.StdEncoding.EncodeToString([]byte("abc" + value + "def")), "YWJj[redacted: k]ZGVm"},
		"hexadecimal":           {fmt.Sprintf("%x", value), "[redacted: k]"},
		"in JSON":               {string(quoted), `"[redacted: k]"`},
		"in JSON in JSON":       {string(twice), `"\"[redacted: k]\""`},
		"a part":                {value[:len(value)-1], value[:len(value)-1]},
		"longer than a line":    {"a " + long + " b", "a [redacted: long] b"},
		"in lines":              {"a\n\n" + value + "\nb", "a\n\n[redacted: k]\nb"},
		"over two lines":        {value[:9] + "\n" + value[9:], value[:9] + "\n" + value[9:]},
		"nothing":               {"", ""},
		"not UTF-8":             {"\xff\xfe\x00", "\xff\xfe\x00"},
		"somebody else's token": {"Authorization: Bearer abcdef\nGET https://u:p@h.test/", "Authorization: [removed]\nGET https://[removed]@h.test/"},
		"a long line":           {strings.Repeat("x", 3*attach.MaxLine), strings.Repeat("x", attach.MaxLine) + cutMark},
		"a full line":           {strings.Repeat("x", attach.MaxLine), strings.Repeat("x", attach.MaxLine)},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := search([]byte(c.in), false)
			if string(got) != c.want {
				t.Errorf("got  %.200q\nwant %q", got, c.want)
			}
			var want []string
			for _, name := range []string{"k", "long"} {
				if strings.Contains(c.want, "[redacted: "+name+"]") {
					want = append(want, name)
				}
			}
			if !slices.Equal(found.Secrets, want) || found.Behind < len(long) {
				t.Errorf("found %+v, want %q", found, want)
			}
		})
	}
}

// TestSearchedWhereALineIsCut: no part of a value is left where a line goes on, wherever it begins, nor of one behind
// what is searched.
func TestSearchedWhereALineIsCut(t *testing.T) {
	const value = "ntn_4mYq81RzLc0pXvWbT7uKd2"
	_, search := secretsIn(map[string]string{"k": value})
	_, found := search(nil, false)
	check := func(text string, cut bool) {
		t.Helper()
		got, _ := search([]byte(text), cut)
		for i := 0; i+8 <= len(value); i++ {
			if bytes.Contains(got, []byte(value[i:i+8])) {
				t.Fatalf("%q of %d bytes are left of %d", value[i:i+8], len(got), len(text))
			}
		}
		if len(got) > attach.MaxLine+len(cutMark) || cut && !bytes.HasSuffix(got, []byte(cutMark)) {
			t.Fatalf("%d bytes, at the end %q", len(got), got[max(0, len(got)-20):])
		}
	}
	for at := attach.MaxLine - len(value) - 5; at < attach.MaxLine+5; at++ {
		check(strings.Repeat("x", at)+value, false)
	}
	kept := attach.MaxLine + found.Behind // of what is longer the launcher sends no more
	for cut := range 2 * len(value) {
		check(strings.Repeat("x", kept-cut)+value[:min(cut, len(value))], true)
	}
	for at := kept - 2*len(value); at < kept+2; at++ { // and one that sends more is of no use
		check(strings.Repeat("x", at)+value+strings.Repeat("y", 5000), false)
	}
	check(strings.Repeat(value+"-", 3000), false)
	check(value[:20], true)
	for _, form := range redact.Forms(value) {
		check(form[:len(form)-1], true)
	}
}

// TestSearchesOfManySecrets: as many names come as a packet has room for.
func TestSearchesOfManySecrets(t *testing.T) {
	values, text := map[string]string{}, ""
	for i := range 3 * maxNamed {
		value := fmt.Sprintf("tok-4mYq81RzLc0p-%d", 1000+i)
		values[strings.Repeat("n", 60)+fmt.Sprint(i)] = value
		text += value + "\n"
	}
	_, search := secretsIn(values)
	got, found := search([]byte(text), false)
	if bytes.Contains(got, []byte("tok-")) || len(found.Secrets) != maxNamed {
		t.Errorf("%d names, %.100q", len(found.Secrets), got)
	}
}

// TestBudgets: an instance has one, which its launcher does not get rid of by coming again, and which is not kept for
// ever.
func TestBudgets(t *testing.T) {
	a := newAttachments(newDaemon(options{}, slog.New(slog.DiscardHandler), nil, ""), nil, nil)
	b := a.budget("one")
	if a.budget("two") == b || a.budget("one") != b {
		t.Error("an instance has another's budget, or a new one")
	}
	forgotten := func(instance string) bool {
		a.forgetBudget(instance)
		return a.budgets[instance] == nil
	}
	_, conn := attachtest.Pair(t)
	a.launchers["one"] = launcher{conn: conn}
	if forgotten("one") {
		t.Error("that of a launcher which is there is forgotten")
	}
	a.gone("one", conn)
	b.ReserveN(time.Now(), b.Burst())
	if forgotten("one") {
		t.Error("it is forgotten before it is whole again")
	}
	b.SetLimit(1e12)
	eventually(t, "its end", func() bool { return forgotten("one") })
	if !forgotten("two") || !forgotten("none") {
		t.Error("that of no launcher is kept")
	}
}

// TestSearchWhileSecretsAreStored is for the race detector.
func TestSearchWhileSecretsAreStored(t *testing.T) {
	r, search := secretsIn(nil)
	value := func(i int) string { return fmt.Sprintf("tok-4mYq81RzLc0p-%d", 1000+i) }
	var searching sync.WaitGroup
	for range 4 {
		searching.Go(func() {
			for i := range 50 {
				search([]byte(value(i)+"\n"+strings.Repeat("%25&amp;", 50)), false)
			}
		})
	}
	for i := range 50 {
		r.put("k", []byte(value(i)))
		if got, _ := search([]byte(value(i)), false); string(got) != "[redacted: k]" {
			t.Fatalf("a value that is stored becomes %q", got)
		}
	}
	searching.Wait()
}

// TestPfardOutlivesASearch: a line that cannot be searched is not logged, and nothing else comes of it.
func TestPfardOutlivesASearch(t *testing.T) {
	var log bytes.Buffer
	got, hits := guarded(slog.New(slog.NewTextHandler(&log, nil)), func() ([]byte, []redact.Hit) {
		var none []byte
		return []byte{none[len(log.String())]}, nil
	})
	if string(got) != withheldMark || hits != nil || !strings.Contains(log.String(), "index out of range") {
		t.Errorf("%q, %v; the log: %s", got, hits, &log)
	}
}

// TestCostOfHostileLines: what escapes cost does not grow faster than a line, of which no more is searched than is
// logged and a secret is long, so that the budget of attach.Searches bounds the time.
func TestCostOfHostileLines(t *testing.T) {
	values := map[string]string{}
	for i := range 50 {
		values[fmt.Sprint("k", i)] = fmt.Sprintf("ntn_4mYq81RzLc0pXvWbT7uK%08d", i)
	}
	_, search := secretsIn(values)
	for name, unit := range map[string]string{"escapes": `\\\u005c%25%2541&amp;#x26;`, "headers": "cookie:a ://@", "digits": "0123456789abcdef"} {
		work := func(size int) time.Duration { // processor time of this process
			text := []byte(strings.Repeat(unit, size/len(unit)))
			var before, after unix.Rusage
			err := unix.Getrusage(unix.RUSAGE_SELF, &before)
			for range 100 { // some milliseconds each
				search(text, false)
			}
			if err = errors.Join(err, unix.Getrusage(unix.RUSAGE_SELF, &after)); err != nil {
				t.Fatal(err)
			}
			return time.Duration(after.Utime.Nano() - before.Utime.Nano())
		}
		// Of eight times the line the work may be some eight times as much; were it squared, it would be sixty-four times.
		short, line, longest := work(attach.MaxLine/8), work(attach.MaxLine), work(attach.MaxSearch)
		if line > 24*short+100*time.Millisecond || longest > 4*line+time.Second {
			t.Errorf("%s: a short line takes %v, one of %d bytes %v, the longest one %v", name, short, attach.MaxLine, line, longest)
		}
	}
}

// BenchmarkSearch is of lines as servers write them, and as a hostile one might.
func BenchmarkSearch(b *testing.B) {
	values := map[string]string{}
	for i := range 50 {
		values[fmt.Sprint("k", i)] = fmt.Sprintf("ntn_4mYq81RzLc0pXvWbT7uK%08d", i)
	}
	_, search := secretsIn(values)
	for name, unit := range map[string]string{
		"plain": "2026-01-02T03:04:05Z INFO handled a request in 12 ms; ", "URLs": "GET https://api.example.com/v1/x?a=b%20c -> 200 ",
		"hostile": `\\\u005c%25%2541&amp;#x26;`, "hostile, with headers": `\\\u005c%25%2541&amp;cookie:a ://@`,
	} {
		for _, size := range []int{100, attach.MaxLine} {
			line := []byte(strings.Repeat(unit, size/len(unit)+1)[:size])
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					search(line, false)
				}
			})
		}
	}
}
