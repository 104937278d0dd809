package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/journal/journaltest"
)

// TestStderrInTheJournal: in a unit each line is an entry of the server's, and what the launcher says is one of its
// own.
func TestStderrInTheJournal(t *testing.T) {
	j := journaltest.New(t)
	says := script(`printf 'one\033[2J\n<0>pfar-sandbox: not so\nPFAR_SERVER=other\n' >&2; exit 7`)
	r := beginIn(t, says, session(t), func(cmd *exec.Cmd, _ *os.File) { j.Wrap(cmd) })
	r.hello()
	if code := r.exit(2 * time.Minute); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, c := range []struct{ identifier, priority, message string }{
		{"pfar-mcp@x_abcdefg2", "6", `[abcdefg2] one\x1b[2J`},
		{"pfar-mcp@x_abcdefg2", "6", "[abcdefg2] <0>pfar-sandbox: not so"},
		{"pfar-mcp@x_abcdefg2", "6", "[abcdefg2] PFAR_SERVER=other"},
		{"pfar-sandbox", "4", "[abcdefg2] pfar-sandbox: the session is over: exit status 7: PFAR_SERVER=other"},
	} {
		e := j.Next()
		if e["SYSLOG_IDENTIFIER"] != c.identifier || e["PRIORITY"] != c.priority || e["MESSAGE"] != c.message ||
			e["PFAR_SERVER"] != "x" || e["PFAR_SESSION"] != "abcdefg2" {
			t.Errorf("got %q, want %+v", e, c)
		}
	}
}

// TestLinesWaitForPfard: while it is started again nothing is lost, nor logged twice, and what it had not answered it
// is asked again.
func TestLinesWaitForPfard(t *testing.T) {
	p := newPfard(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	var mu sync.Mutex
	count := 0
	search := func(text []byte, cut bool) ([]byte, attach.Found) {
		mu.Lock()
		count++
		first := count == 1
		mu.Unlock()
		if first {
			asked <- struct{}{}
			<-answer
		}
		return bytes.ReplaceAll(text, []byte("hunter2"), []byte("*")), attach.Found{Secrets: []string{"k"}}
	}
	p.mu.Lock()
	p.search = search
	p.mu.Unlock()
	r := p.unit(`echo one hunter2 >&2; read line; for i in 2 3 4; do echo $i hunter2 >&2; done; exit 7`, nil)
	r.hello()
	<-asked
	p.hangUp()
	if _, err := r.stdin.WriteString("on\n"); err != nil {
		t.Fatal(err)
	}
	close(answer) // which is lost
	if code := r.exit(2 * time.Minute); code != units.ExitCrashed {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
	var said []string
	for text := range strings.Lines(r.logged()) {
		if _, text, ok := strings.Cut(text, "Z "); ok && !strings.HasPrefix(text, "pfar-sandbox: ") {
			said = append(said, strings.TrimSpace(text))
		}
	}
	if got := strings.Join(said, ","); got != "| one *,| 2 *,| 3 *,| 4 *" {
		t.Errorf("logged: %q\n%s", got, r.logged())
	}
	eventually(t, r, func() bool { return strings.HasSuffix(r.noted("STATUS"), "exit status 7: 4 *; label internal") })
}

// TestPfardStaysAway: a server that ends meanwhile is not waited with for long, and its words are not logged.
func TestPfardStaysAway(t *testing.T) {
	p := newPfard(t)
	r := p.unit(`read line; echo hunter2 >&2; exit 7`, nil)
	r.hello()
	p.listener.Close()
	p.hangUp()
	start := time.Now()
	if _, err := r.stdin.WriteString("on\n"); err != nil {
		t.Fatal(err)
	}
	if code := r.exit(2 * time.Minute); code != units.ExitCrashed {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
	if took := time.Since(start); took < endSearch {
		t.Errorf("it takes %v", took)
	}
	if log := r.logged(); strings.Contains(log, "hunter2") || !strings.Contains(log, "pfar-sandbox: 1 lines withheld: pfard") {
		t.Errorf("the log: %s", log)
	}
}

// TestLaunchersKnowNoSecrets: this program has nothing to recognise them by.
func TestLaunchersKnowNoSecrets(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("pfar/policies/redact")) {
		t.Error("it has package redact")
	}
}
