package systemd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// talkers are the HTTP clients of testdata/talk.py, which call the server hello all the time over connections that they
// keep.
type talkers struct {
	stdin io.Closer
	ended func() error
	mu    sync.Mutex
	lines []string // name, what happened, and more
}

// Write takes what the program prints.
func (k *talkers) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, string(b))
	return len(b), nil
}

// heard returns what was printed, a line each.
func (k *talkers) heard() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := strings.Join(k.lines, "")
	return slices.Collect(strings.Lines(text[:strings.LastIndex(text, "\n")+1]))
}

// talk starts the clients, and returns when each has had answers.
func talk(t *testing.T, m *bed.Machine) *talkers {
	t.Helper()
	m.PutFile(t, packages+"/talk.py", "testdata/talk.py", 0o644)
	k := &talkers{}
	cmd := m.Command(t.Context(), "python3", packages+"/talk.py")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = k, k
	m.Go(t, cmd)
	k.stdin, k.ended = stdin, cmd.Wait
	k.more(t)
	return k
}

// more waits until each client has had two right answers more.
func (k *talkers) more(t *testing.T) {
	t.Helper()
	before := len(k.heard())
	bed.Eventually(t, soon, func() error {
		right := map[string]int{}
		for _, line := range k.heard()[before:] {
			if name, ok := strings.CutSuffix(line, " right\n"); ok {
				right[name]++
			}
		}
		for _, name := range talking() {
			if right[name] < 2 {
				return fmt.Errorf("%s: %d answers; in the end\n%s", name, right[name], strings.Join(last(k.heard(), 10), ""))
			}
		}
		return nil
	})
}

func talking() []string { return []string{"session", "alone"} }

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// hold ends the clients. No answer was wrong, and each client lost at most one connection.
func (k *talkers) hold(t *testing.T, when string) {
	t.Helper()
	if err := k.stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := k.ended(); err != nil {
		t.Errorf("%s: the clients: %v\n%s", when, err, strings.Join(last(k.heard(), 10), ""))
	}
	counts := map[string]int{}
	for _, line := range k.heard() {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		what, more, _ := strings.Cut(what, " ")
		if counts[what]++; what != "right" {
			counts[name+" "+what]++
		}
		if more != "" {
			t.Logf("%s: %s", when, line)
		}
	}
	for _, name := range talking() {
		if counts["WRONG"] > 0 || counts[name+" broken"] > 1 || counts[name+" connects"] > 2 {
			t.Errorf("%s: %s: %v", when, name, counts)
		}
	}
	t.Logf("%s: %v", when, counts)
}

// TestANewerState: pfard and the gateway refuse what a newer pfar has written. They rest before they end, and run again
// when the state is theirs.
func TestANewerState(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	m.Shell(t, `cd /var/lib/pfar; mv format.json mine.json
echo '{"format":99,"pfar":"9.0.0"}' >format.json; chmod 644 format.json
systemctl restart --no-block pfard.service pfar-gateway.service`)
	for _, unit := range []string{"pfard", "pfar-gateway"} {
		const refused = `journalctl --quiet --output=json --output-fields=_PID,MESSAGE -u %[1]s |
grep "install pfar 9.0.0" | tail -1 | grep -q "\"_PID\":\"$(systemctl show -P MainPID %[1]s)\""`
		bed.Eventually(t, soon, func() error {
			if r := m.Try("sh", "-c", fmt.Sprintf(refused, unit)); r.Code != 0 {
				return fmt.Errorf("%s: no process that has refused the state rests", unit)
			}
			return nil
		})
	}
	m.Run(t, "mv", "/var/lib/pfar/mine.json", "/var/lib/pfar/format.json")
	becomes(t, m, "hello", control.Running)
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "call", "hello.echo", "--message", "again"); !strings.Contains(r.Stdout, "again") {
			return errors.New(r.String())
		}
		return nil
	})
}
