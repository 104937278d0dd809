package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestExamplesTyped runs the commands of pfar(1), EXAMPLES, as they stand there, in a directory with what they name.
// Those for the shell and for make are the test's own; the browsers of the examples have tests of their own. The blocks
// after the third belong to TestImport and TestAdd.
func TestExamplesTyped(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../packaging/man/pfar.1")
	check(t, err)
	_, section, _ := strings.Cut(strings.ReplaceAll(string(manual), `\-`, "-"), "\n.Sh EXAMPLES\n")
	section, _, _ = strings.Cut(section, "\n.Sh ")
	blocks := strings.Split(strings.ReplaceAll(section, "\n.Bd -literal -offset indent\n", "\n.Ed\n"), "\n.Ed\n")
	if len(blocks) != 11 {
		t.Fatalf("pfar(1) has %d texts and blocks of commands", len(blocks))
	}
	servers, err := npmServers()
	check(t, err)
	p, clone := prepare(t, nil), directory(t, "")
	check(t, exec.Command("cp", "-R", "../../examples", clone).Run())
	check(t, os.Mkdir(filepath.Join(clone, "build"), 0o755))
	check(t, os.Symlink(servers, filepath.Join(clone, "build", "servers")))
	browsers, err := filepath.Glob(filepath.Join(clone, "examples", "browser*"))
	check(t, err)
	for _, b := range browsers {
		check(t, os.Remove(b))
	}
	home := directory(t, "")
	check(t, os.Mkdir(filepath.Join(home, ".cursor"), 0o755))
	check(t, os.WriteFile(filepath.Join(home, ".cursor/mcp.json"), []byte("{}\n"), 0o644))
	check(t, os.WriteFile(filepath.Join(clone, "mcp.json"), []byte(`{"mcpServers": {"a": {"command": "true"}}}`), 0o644))
	p.env = append(p.env, "PATH="+filepath.Dir(program(t, "pfar"))+":"+os.Getenv("PATH"), "HOME="+home, "EDITOR=true")
	shell := func(line string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+line)
		cmd.Dir, cmd.Env, cmd.Stdin = clone, p.env, strings.NewReader("a secret")
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		return cmd
	}
	lines := 0
	typed := func(block string) {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "pfar ") || strings.HasPrefix(line, "pfar up ") {
				continue
			}
			lines++
			if out, err := shell(line).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	}
	typed(blocks[1])
	_, up, _ := strings.Cut(blocks[1], "\npfar up ")
	up, _, _ = strings.Cut(up, "#")
	cmd := shell("pfar up " + strings.TrimSpace(up) + " --listen 127.0.0.1:0") // another pfar may have the port
	log := &output{}
	cmd.Stdout, cmd.Stderr = log, log
	check(t, cmd.Start())
	defer func() {
		_ = cmd.Cancel()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("pfar up: %v\n%s", err, log)
		}
	}()
	running := func() bool {
		out, err := shell("pfar status everything --json").Output()
		return err == nil && strings.Contains(string(out), `"state": "`+string(control.Running)+`"`)
	}
	until(t, "the server everything runs", running)
	typed(blocks[3])
	if typed(blocks[5]); lines < 21 {
		t.Errorf("only %d commands were typed", lines)
	}
}
