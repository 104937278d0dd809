package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
)

// writing is a server that is in learning mode by a command line, and whose declaration is a file.
func writing(t *testing.T, declared string, args ...string) (b *bench, p *teacher, r *running, file string) {
	t.Helper()
	b = newBench(t, "")
	b.now = fixedNow
	file = declareIn(t, b, "notion.hcl", declared)
	p = b.teacher(t, control.Running, nil)
	p.report.Servers[0].Domains = []string{"api.example.com"}
	table := monitor.NewTable("")
	b.bridge(t, "notion", table)
	r = b.lessonOf(t, args...)
	for i, host := range []string{"cdn.example.com:443", "db.example.com:5432"} {
		table.Refuse(denied(learnedAt(1+i), monitor.Redirect, "tls", host, egress.NameNotDeclared))
		next(t, r.err)
	}
	return b, p, r, file
}

// TestLearnWrites: what was learned is added to the declaration as pfar allow adds it, and to nothing else of the file;
// nothing is, if the owner has blocked it.
func TestLearnWrites(t *testing.T) {
	const hosts = `["api.example.com", "cdn.example.com", "db.example.com:5432"]`
	blocked := strings.Replace(allowing, "bad.example.com", "cdn.example.com", 1)
	for name, c := range map[string]struct {
		declared, want string
		args           []string
		code           int
		out, err       string
	}{
		"written": {allowing, strings.Replace(allowing, `["api.example.com"]`, hosts, 1), nil, exitOK,
			"- allowed_domains = [\"api.example.com\"] # of the service\n+ allowed_domains = " + hosts, "pfar: wrote "},
		"JSON": {allowing, strings.Replace(allowing, `["api.example.com"]`, hosts, 1), []string{"--json"}, exitOK,
			`"cdn.example.com",`, ""},
		"blocked": {blocked, blocked, nil, exitFailed, "", "blocked_domains names cdn.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p, r, file := writing(t, c.declared, append([]string{"--write", "--yes"}, c.args...)...)
			if got := text(t, file); got != c.declared {
				t.Fatalf("it is written before the end:\n%s", got)
			}
			r.interrupt()
			<-p.gone
			p.set(func(r *control.Report) { // pfard follows the file
				r.Servers[0].Domains = []string{"api.example.com", "cdn.example.com", "db.example.com:5432"}
			})
			out, said, code := r.finish()
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(said, c.err) || c.err == "" && said != "" {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, c.code, out, said)
			}
			if got := text(t, file); got != c.want {
				t.Errorf("the file is\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestLearnAsksBefore: if nobody can be asked in the end, the server is not restarted to learn.
func TestLearnAsksBefore(t *testing.T) {
	for line, want := range map[string]string{
		"learn notion --write":      "pfar: not a terminal, so pfar cannot ask\nhint: use --yes to confirm",
		"learn notion --yes":        "pfar: --yes goes with --write",
		"learn notion --write=no x": "pfar: ",
	} {
		first := newBench(t, "")
		file := declareIn(t, first, "notion.hcl", allowing)
		p := first.teacher(t, control.Running, nil)
		b := first.again("y\n")
		ctx, cancel := context.WithCancel(t.Context())
		learned := make(chan bool, 1)
		go func() {
			select {
			case <-p.learners: // it would go on until Ctrl-C
				learned <- true
				cancel()
			case <-ctx.Done():
				learned <- false
			}
		}()
		code := b.run(ctx, strings.Fields(line))
		cancel()
		if code != exitUsage || !strings.HasPrefix(b.err.String(), want) || b.out.Len() > 0 {
			t.Errorf("%s: exit %d\nstdout: %s\nstderr: %s", line, code, b.out, b.err)
		}
		if got := text(t, file); <-learned || got != allowing {
			t.Errorf("%s: it learns, or the file is another one:\n%s", line, got)
		}
	}
}

// text is that of a file.
func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
