package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// watched is a stage of which all that is said and read passes inspectors of the owner's.
type watched struct {
	*stage
	text     string // file with what the stranger has written
	policies string // directory
}

// newWatched brings one up, with a file of policies and more variables.
func newWatched(t *testing.T, policy string, env ...string) *watched {
	t.Helper()
	w := &watched{text: filepath.Join(directory(t, ""), "text")}
	w.stage = &stage{log: directory(t, ""), profile: "balanced", http: http.DefaultClient, patience: soon}
	if err := os.Chmod(w.log, 0o777); err != nil {
		t.Fatal(err)
	}
	w.stage.pfar = prepare(t, map[string]string{"tracker.hcl": declare(program(t, "tracker"), []string{"-text", w.text, "-received", filepath.Join(w.log, "tracker")}, fmt.Sprintf(`
pins  = "trust-first"
label = "public"
sandbox {
  read_only = [%s]
  writable  = [%s]
}
trust {
  public_source    = true
  secret_data      = false
  public_sink      = true
  dangerous_writes = false
}`, quote(filepath.Dir(w.text)), quote(w.log)))})
	w.env = append(w.env, env...)
	w.policies = filepath.Join(w.home, "policies.d")
	if err := os.Mkdir(w.policies, 0o755); err != nil {
		t.Fatal(err)
	}
	w.writes("hello")
	w.policy(policy)
	w.declareClients()
	w.up()
	w.awaitRunning("tracker")
	return w
}

func (w *watched) writes(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.text, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) policy(text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.policies, "local.hcl"), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// reads has a new agent read what the stranger has written, and reports whether it got it.
func (w *watched) reads() bool {
	w.t.Helper()
	b, err := os.ReadFile(w.text)
	if err != nil {
		w.t.Fatal(err)
	}
	got := w.agent(false).call("tracker__read_issue", map[string]any{})
	changed := strings.Contains(got, "has not run: the policy, or what the client may do, has changed meanwhile")
	if there := strings.Contains(got, string(b)); there || changed || strings.Contains(got, "pfar has withheld") {
		return there
	}
	w.t.Fatalf("neither read nor withheld: %s", got)
	return false
}

// inspectorScript writes a program that every user may run.
func inspectorScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func findings(s *stage) string {
	return s.operate(0, "audit", "--json")
}

// TestInspectorProgram has a program of the owner's look at what passes: what it flags does not, in either direction,
// nor does anything when it hangs, fails, talks nonsense, is killed or is not there. Without it all is as before.
func TestInspectorProgram(t *testing.T) {
	t.Parallel()
	dir := directory(t, "")
	examples := cmp.Or(os.Getenv(examplesVariable), filepath.Join("..", "..", "examples"))
	example, err := os.ReadFile(filepath.Join(examples, "inspectors", "words"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "words")
	if err := os.WriteFile(path, example, 0o755); err != nil {
		t.Fatal(err)
	}
	declared := fmt.Sprintf("inspector \"words\" {\n  exec = [%s, \"project[ -]?falcon\"]\n  timeout = \"20s\"\n}\nprofile \"balanced\" { inspectors = [\"words\"] }\n", quote(path))
	w := newWatched(t, declared)
	socket := filepath.Join(w.run, "inspect", "words.sock")
	if !w.reads() {
		t.Fatal("what is harmless is withheld")
	}
	w.writes("We meet about Project Falcon")
	if w.reads() {
		t.Error("a result that is flagged passes")
	}
	w.writes(strings.Repeat("x ", 200_000) + "Project Falcon")
	if w.reads() {
		t.Error("what is flagged at the end of a long result passes")
	}
	if all := findings(w.stage); !strings.Contains(all, `"inspector":"words"`) || !strings.Contains(all, "the owner looks for") {
		t.Errorf("the record does not say what was found: %s", all)
	}
	w.writes("hello")
	a := w.agent(false)
	a.call("tracker__read_issue", map[string]any{})
	if got := a.call("tracker__comment", map[string]any{"body": "a harmless comment"}); !strings.Contains(got, ran) {
		t.Errorf("a write that is clean does not pass: %s", got)
	}
	c := a.send("tracker__comment", map[string]any{"body": "about project-falcon"})
	one := w.awaitPending(a)
	if shown := w.operate(0, "approvals", "show", one.ID); !strings.Contains(shown, "words: flagged") {
		t.Errorf("who decides is not shown what was found: %s", shown)
	}
	w.operate(0, "approvals", "deny", one.ID)
	if got := <-c.answer; strings.Contains(got, ran) || strings.Contains(w.received(), "falcon") {
		t.Errorf("it was sent: %s", got)
	}
	for name, text := range map[string]string{
		"garbage": "cat >/dev/null; echo 'all is well'", "nothing": "cat >/dev/null", "failure": `cat >/dev/null; echo '{"verdict":"clean"}'; exit 3`, "hangs": "sleep 600", "two": `echo '{"verdict":"clean"}{"verdict":"clean"}'`,
	} {
		inspectorScript(t, path, text)
		begun := time.Now()
		if w.reads() {
			t.Errorf("%s: it passes", name)
		}
		if took := time.Since(begun); took > soon {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	inspectorScript(t, path, "sleep 600")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		until(t, "the inspector is killed while it looks", func() (looks bool) {
			for _, p := range find("inspect") {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
				if !strings.HasSuffix(string(b), "pfar-sandbox\x00inspect\x00") || !descends(p, w.cmd.Process.Pid) {
					continue
				}
				looks = slices.ContainsFunc(descendants(p.pid), func(d process) bool { return d.name == "sleep" })
				if looks {
					_ = syscall.Kill(p.pid, syscall.SIGKILL)
				}
			}
			return looks
		})
	}()
	if w.reads() {
		t.Error("it passes though the inspector was killed")
	}
	<-killed
	inspectorScript(t, path, `cat >/dev/null; echo '{"verdict":"clean"}'`)
	until(t, "it is there again", w.reads)
	w.policy("profile \"balanced\" { inspectors = [\"words\"] }\n") // a mistake: the last good version stays
	w.await("the mistake is shown", soon, func(r control.Report) bool {
		return diagnosed(r, "local.hcl:1:35", "declared nowhere")
	})
	inspectorScript(t, path, `echo '{"verdict":"flagged"}'`)
	if w.reads() {
		t.Error("it passes by a policy with a mistake")
	}
	w.policy(strings.ReplaceAll(declared, path, path+"-none"))
	w.await("the program is missing", soon, func(r control.Report) bool {
		return diagnosed(r, "local.hcl:1:11", "words-none")
	})
	if w.reads() {
		t.Error("it passes without the program that is declared")
	}
	w.policy("")
	until(t, "nothing is inspected any more", w.reads)
	until(t, "its socket is gone", func() bool { _, err := os.Stat(socket); return os.IsNotExist(err) })
}

// diagnosed reports whether a diagnostic stands at a place and has these words.
func diagnosed(r control.Report, place, words string) bool {
	return slices.ContainsFunc(r.Diagnostics, func(d control.Diagnostic) bool {
		return strings.HasSuffix(fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column), place) && strings.Contains(d.Text, words)
	})
}

// descends reports whether a process comes from another.
func descends(p process, from int) bool {
	for _, d := range descendants(from) {
		if d.pid == p.pid {
			return true
		}
	}
	return false
}

// TestInspectorModel has a model look, behind an API like OpenAI's, which wants a key of the vault's.
func TestInspectorModel(t *testing.T) {
	t.Parallel()
	const key = "sesame-0123456789-open"
	var says atomic.Value
	var asked atomic.Int32
	says.Store(`{"verdict":"clean"}`)
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer "+key {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch content := says.Load().(string); {
		case content == "slow":
			select {
			case <-time.After(soon):
			case <-r.Context().Done():
			}
		case content == "error":
			rw.WriteHeader(http.StatusInternalServerError)
		case strings.Contains(string(body), "the evil part"):
			content = `{"verdict":"flagged","kind":"evil part","reason":"It is evil."}`
			fallthrough
		default:
			text, _ := json.Marshal(content)
			fmt.Fprintf(rw, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%s}}]}`, text)
		}
	}))
	defer api.Close()
	w := newWatched(t, fmt.Sprintf("inspector \"llm\" {\n  url = \"%s/v1/chat/completions\"\n  model = \"m\"\n  key = \"vault:llm\"\n  timeout = \"20s\"\n}\nprofile \"balanced\" { inspectors = [\"llm\"] }\n", api.URL))
	if w.reads() || asked.Load() != 0 {
		t.Errorf("without the key it passes, or is asked: %d times", asked.Load())
	}
	w.await("the key is missing", soon, func(r control.Report) bool {
		return strings.Contains(strings.Join(r.Notes, "\n"), `inspector "llm" has no key`) && strings.Contains(strings.Join(r.Notes, "\n"), "pfar vault set llm")
	})
	w.stdin = key
	w.operate(0, "vault", "set", "llm")
	w.await("the key is there", soon, func(r control.Report) bool { return !strings.Contains(strings.Join(r.Notes, "\n"), "has no key") })
	if !w.reads() {
		t.Fatal("what is clean is withheld")
	}
	w.writes("this is the evil part")
	if w.reads() {
		t.Error("what is flagged passes")
	}
	if all := findings(w.stage); !strings.Contains(all, `"inspector":"llm","kind":"evil part"`) {
		t.Errorf("the record does not say what was found: %s", all)
	}
	w.writes("hello")
	for _, no := range []string{"slow", "error", "clean", `{"verdict":"clean"} as asked`, ""} {
		says.Store(no)
		if w.reads() {
			t.Errorf("%q passes", no)
		}
	}
	says.Store(`{"verdict":"clean"}`)
	if !w.reads() {
		t.Error("it does not come back")
	}
	for _, p := range descendants(w.cmd.Process.Pid) {
		for _, file := range []string{"cmdline", "environ"} {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, file)); strings.Contains(string(b), key) {
				t.Errorf("the key is in %s of process %d", file, p.pid)
			}
		}
	}
	w.operate(0, "vault", "rotate", "llm") // to what stdin has
	w.stdin = "another-key-0123456789"
	w.operate(0, "vault", "rotate", "llm")
	until(t, "the new key is used, and is the wrong one", func() bool { return !w.reads() })
	api.Close()
	if w.reads() {
		t.Error("it passes though nobody is there")
	}
	logs, err := filepath.Glob(filepath.Join(w.state(), "log", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, file := range append(logs, filepath.Join(w.run, "inspect")) {
		if b, _ := os.ReadFile(file); strings.Contains(string(b), key) {
			t.Errorf("the key is in %s", file)
		}
	}
	if strings.Contains(w.stderr.String(), key) {
		t.Error("the key is in pfard's log")
	}
}
