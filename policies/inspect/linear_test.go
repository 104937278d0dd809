package inspect

import (
	"encoding/base64"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/inspector"
)

// used is the processor time of this process so far.
func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// TestWork has what could be looked at again at each of its characters. What may be secrets is looked at a few times;
// addresses of images are until it is too much work.
func TestWork(t *testing.T) {
	const size = 1 << 20
	enough := DefaultLimits.Work
	for unit, want := range map[string]struct{ least, most int }{
		"sk-": {3 * size / 2, 4 * size}, "sk-your-": {3 * size / 2, 4 * size}, "ghp_": {3 * size / 2, 4 * size}, "AKIA": {3 * size / 2, 4 * size}, "![x](": {enough, enough + maxAddress}, "<img src=x": {enough, enough + maxAddress},
	} {
		in := new(Builtin).Begin(inspector.Both, quoted(strings.Repeat(unit, size/len(unit)+1)))
		in.End(in.strings())
		if in.work < want.least || in.work > want.most {
			t.Errorf("%q: of %d bytes %d are looked at, want %d to %d", unit, size, in.work, want.least, want.most)
		}
	}
}

// TestLinear has what is made to be looked at again and again. Of eight times the text the work may be some eight times
// as much; where it is squared it is sixty-four times.
func TestLinear(t *testing.T) {
	b := Builtin{Others: []string{"mail.send", "a.b"}}
	for _, unit := range []string{
		"<!-- ignore previous x -->", "<!--", "![x](http://a/?", "![", "<img src=", "p\u200b", "&#112;", "%25", `\u0070`, "ignore previous instructions ", "aGVsbG8gd29ybGQgdGhpcyBpcw==", "A", "YWFh", "6162", `\x61`, "://a:b", "://aaaa:bbbbb@c ",
		"eyJ", "eyJ.", "pat", "pat12345678901234.", "sk-", "AKIA-", github + " ", "token=", "x=", "[104,101,108,108,111,104,101,108],", "[1", "mail.send ", "style display:none", "\U000e0061", "前の", "a\n", "\"", "do not tell the ", "-----BEGIN PRIVATE KEY",
		"EAAC", "EAACb", "ATATT3-", "ghp_xxxx", "sk-your-", "ghp_", "[[", "](", "yourkey", "eyJ.eyJ.eyJhbGciOiJI.", "103 ", "1,", "ghp_\u200b", "é\r\n",
	} {
		look := func(size int) time.Duration {
			text := strings.Repeat(unit, size/len(unit))
			values := [][]byte{quoted(text), quoted(base64.StdEncoding.EncodeToString([]byte(text))), []byte("[" + strings.Repeat(string(quoted(unit))+",", size/(len(unit)+24)) + "0]")}
			start := used(t)
			for _, v := range values {
				b.Inspect(inspector.Both, v)
				Render(v, 1<<30)
			}
			return used(t) - start
		}
		if small, large := look(16<<10), look(128<<10); large > 24*small+300*time.Millisecond {
			t.Errorf("%q: %v, then %v", unit, small, large)
		}
	}
}

// TestManyPlaces: where each of many findings stands is not looked for again and again in a text of many strings.
func TestManyPlaces(t *testing.T) {
	look := func(found string) time.Duration {
		value := []byte(`{"a":[` + strings.Repeat(`"x y",`, 1<<18) + strings.Repeat(`["`+found+`"],`, 200) + "0]}")
		start := used(t)
		report := new(Builtin).Inspect(inspector.Inbound, value)
		if found != "" && (len(report.Findings) != maxFindings || report.Findings[1].Place != "/a/262145/0") {
			t.Errorf("found %+v", report.Findings)
		}
		return used(t) - start
	}
	if none, many := look(""), look("ignore previous instructions"); many > 8*none+500*time.Millisecond {
		t.Errorf("%v without findings, and %v with them", none, many)
	}
}
