package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/units/control"
)

const (
	vaultDir = "/var/lib/pfar/vault"
	pinsDir  = "/var/lib/pfar/pins"
	safeFile = "/var/safe"
	lostFile = "/var/lost"
)

// atBoot are the servers that are to run when the power is back. The declaration of half is broken by then, and its
// last good version runs.
var atBoot = []string{"calm", "changing", "half", "one", "three", "two"}

// slowNetwork has the machine's network take its time at boot.
const slowNetwork = `[Unit]
Before=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=sleep 2
[Install]
WantedBy=network-online.target
`

// half is a declaration as far as its author's editor has come.
const half = "label = \"internal\"\nserver {\n  command = \"/usr/loc"

// writeUntilPowerOff keeps on storing secrets, accepting tools and writing declarations, and says what of it the
// programs have confirmed. The word "now" is for whoever cuts the power.
func writeUntilPowerOff() error {
	if err := beforePowerOff(); err != nil {
		return err
	}
	w := &writers{}
	go w.every(w.secret)
	go w.every(w.pin)
	go w.every(w.declaration)
	if err := eventually(w.wroteEnough); err != nil {
		return err
	}
	if err := os.WriteFile(lostFile, []byte("lost\n"), 0o644); err != nil {
		return err
	}
	w.say("now")
	select {}
}

// beforePowerOff leaves files as a write that was cut short leaves them.
func beforePowerOff() error {
	for _, name := range []string{"hog", "bomb", "out"} {
		if err := os.Remove(filepath.Join(declarations, name+".hcl")); err != nil {
			return err
		}
	}
	for _, name := range atBoot {
		if err := declare(name, echoServer("", "")); err != nil {
			return err
		}
	}
	if err := allRun(atBoot...); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"/etc/systemd/system/slow-network.service": slowNetwork,
		safeFile:                     "safe\n",
		vaultDir + "/.new-123":       "age-encryption.org/v1\n-> X255",
		pinsDir + "/.new-123":        `{"format":1,"server":"calm","pi`,
		declarations + "/half.hcl":   half,
		declarations + "/.torn.hcl~": half,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	err := becomes("half", func(s control.Server) error {
		if !s.Stale || s.State != control.Running {
			return fmt.Errorf("with half of a declaration: %+v", s)
		}
		return nil
	})
	report("power/half of a declaration changes nothing that runs", err, "")
	if out, err := shell("systemctl enable --quiet slow-network; sync"); err != nil {
		return fmt.Errorf("systemctl: %w: %s", err, out)
	}
	return nil
}

// writers write at the same time, each one thing after the other.
type writers struct {
	mu                sync.Mutex
	confirmed, pinned int
	failed            error
}

func (w *writers) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	os.Stdout.WriteString(line + "\n")
}

func (w *writers) every(f func(i int) error) {
	for i := 0; ; i++ {
		if err := f(i); err != nil {
			w.mu.Lock()
			w.failed = err
			w.mu.Unlock()
			return
		}
	}
}

func (w *writers) wroteEnough() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil && w.confirmed >= 4 && w.pinned >= 2 {
		return nil
	}
	return fmt.Errorf("%d secrets and %d pins: %v", w.confirmed, w.pinned, w.failed)
}

// secretValue is longer than a block of the disk.
func secretValue(i int) string { return fmt.Sprintf("value-%d-%s", i, strings.Repeat("x", 5000)) }

// secret stores a new secret, and replaces the value of one that there is. Only what pfar has confirmed counts.
func (w *writers) secret(i int) error {
	for _, key := range []string{fmt.Sprintf("secret_%d", i), "rotating"} {
		cmd := exec.Command("pfar", "vault", "set", key)
		cmd.Stdin = strings.NewReader(secretValue(i))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pfar vault set: %w: %s", err, out)
		}
	}
	w.say(fmt.Sprintf("confirmed %d", i))
	w.mu.Lock()
	w.confirmed++
	w.mu.Unlock()
	return nil
}

// pin has a server change its tools, and accepts that.
func (w *writers) pin(int) error {
	if out, err := output("pfar", "call", "changing.change"); err != nil {
		return fmt.Errorf("pfar call: %w: %s", err, out)
	}
	if out, err := output("pfar", "pins", "accept", "changing", "--yes"); err != nil {
		return fmt.Errorf("pfar pins accept: %w: %s", err, out)
	}
	w.mu.Lock()
	w.pinned++
	w.mu.Unlock()
	return nil
}

// declaration writes a file in two steps, never synced, as simple programs do.
func (w *writers) declaration(i int) error {
	f, err := os.Create(declarations + "/torn.hcl")
	if err != nil {
		return err
	}
	defer f.Close()
	text := echoServer(fmt.Sprintf("description = %q", strings.Repeat("long ", 1+i%3000)), "")
	if _, err := f.WriteString(text[:len(text)/2]); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond)
	_, err = f.WriteString(text[len(text)/2:])
	return errors.Join(err, w.progress())
}

// progress waits until another writer has got on: each declaration starts a server anew, which alone would fill a slow
// machine.
func (w *writers) progress() error {
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.confirmed + w.pinned
	}
	before := count()
	return eventually(func() error {
		if count() == before {
			return errors.New("no secret and no pin since the last declaration")
		}
		return nil
	})
}

// again is the boot after the power cut: `payload again N`, where N is the last secret that was confirmed.
func again(args []string) error {
	if len(args) != 1 {
		return errors.New("want the number of the last secret")
	}
	last := number(args, 0)
	reportAll("boot", []check{
		{"all servers run", func() (string, error) { return "", allRun(atBoot...) }},
		{"after the network, all at once", bootOrder},
		{"pfar.target lists them", bootDependencies},
		{"no unit failed", nothingFailed},
	})
	reportAll("power", []check{
		{"the disk has what was synced, and the cut was real", func() (string, error) { return "", cutWasReal(lostFile) }},
		{"half of a declaration is reported", func() (string, error) { return brokenHalf() }},
		{"no secret that was confirmed is lost", func() (string, error) { return secretsAreThere(last) }},
		{"pins are whole", func() (string, error) { return "", pinsAreWhole(atBoot) }},
		{"nothing is left of writes that were cut short", func() (string, error) { return "", leftovers() }},
	})
	reportAll("seal", []check{{"the TPM opens the vault's key", keyOpens}})
	return nil
}

// elsewhere is the boot of the same disk beside another TPM.
func elsewhere([]string) error {
	reportAll("elsewhere", []check{
		{"another TPM does not open the vault's key", keyStaysShut},
		{"pfard does not start, and systemd says why", shutOut},
	})
	return nil
}

// cutWasReal wants nothing in a file that was written at the last moment and not synced.
func cutWasReal(lost string) error {
	if got := read(safeFile); got != "safe" {
		return fmt.Errorf("%s has %q", safeFile, got)
	}
	if b, err := os.ReadFile(lost); err == nil && len(b) > 0 {
		return fmt.Errorf("%s, which was not synced, has %q", lost, b)
	}
	return nil
}

// brokenHalf wants a diagnostic with its place while the last good version runs, and the new one once the file is
// whole.
func brokenHalf() (string, error) {
	out, _ := output("pfar", "status") // 1: that is what it reports
	if err := contains(out, declarations+"/half.hcl:3"); err != nil {
		return "", err
	}
	r, err := status()
	if err != nil {
		return "", err
	}
	for _, s := range r.Servers {
		if s.Name != "torn" && (!slices.Contains(atBoot, s.Name) || s.Stale != (s.Name == "half")) {
			return "", fmt.Errorf("pfar status has %+v", s)
		}
	}
	at := slices.IndexFunc(r.Diagnostics, func(d control.Diagnostic) bool { return d.File == declarations+"/half.hcl" && d.Severity == "error" })
	if at < 0 {
		return "", fmt.Errorf("pfar status --json has %+v", r.Diagnostics)
	}
	torn := read(declarations + "/torn.hcl")
	detail := fmt.Sprintf("%s; the other has %d bytes", r.Diagnostics[at].Summary, len(torn))
	err = errors.Join(declare("half", echoServer("", "")), declare("torn", echoServer("", "")), allRun("half", "torn"))
	return detail, errors.Join(err, becomes("half", func(s control.Server) error {
		if s.Stale {
			return fmt.Errorf("with a whole declaration: %+v", s)
		}
		return nil
	}))
}

// secretsAreThere looks into a server's environment as the kernel has it: in what the server says they are redacted.
func secretsAreThere(last int) (string, error) {
	auth := `auth = { ROTATING = "vault:rotating"`
	for i := range last + 1 {
		auth += fmt.Sprintf(`, SECRET_%d = "vault:secret_%d"`, i, i)
	}
	if err := declare("keyed", echoServer(auth+" }", "")); err != nil {
		return "", err
	}
	if err := allRun("keyed"); err != nil {
		return "", err
	}
	env, err := environmentOf("keyed")
	if err != nil {
		return "", err
	}
	for i := range last + 1 {
		if got := env[fmt.Sprintf("SECRET_%d", i)]; got != secretValue(i) {
			return "", fmt.Errorf("secret %d has %d bytes: %.30q", i, len(got), got)
		}
	}
	n, err := strconv.Atoi(strings.SplitN(env["ROTATING"]+"--", "-", 3)[1])
	if err != nil || n < last || env["ROTATING"] != secretValue(n) {
		return "", fmt.Errorf("the secret that was replaced has %.30q, and %d was confirmed", env["ROTATING"], last)
	}
	return fmt.Sprintf("%d secrets, and the one that was replaced has value %d", last+1, n), nil
}

// environmentOf is what the process of a server was started with.
func environmentOf(server string) (map[string]string, error) {
	pids, err := filepath.Glob("/sys/fs/cgroup/pfar.slice/pfar-mcp-" + server + ".scope/cgroup.procs")
	if err != nil || len(pids) != 1 {
		return nil, fmt.Errorf("the scopes of %q are %q, %v", server, pids, err)
	}
	for _, pid := range strings.Fields(read(pids[0])) {
		if strings.TrimSpace(read("/proc/"+pid+"/comm")) != "echo" {
			continue
		}
		env := map[string]string{}
		for variable := range strings.SplitSeq(read("/proc/"+pid+"/environ"), "\x00") {
			name, value, _ := strings.Cut(variable, "=")
			env[name] = value
		}
		return env, nil
	}
	return nil, fmt.Errorf("no process of %q is its program", server)
}

// pinsAreWhole wants accepted tools of each server.
func pinsAreWhole(servers []string) error {
	out, err := output("pfar", "pins", "--json")
	if err != nil {
		return fmt.Errorf("pfar pins: %w: %s", err, out)
	}
	var all []struct {
		Server   string `json:"server"`
		Accepted int    `json:"accepted"`
		Error    string `json:"error"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	seen := map[string]bool{}
	for _, p := range all {
		if p.Error != "" || p.Accepted == 0 {
			return fmt.Errorf("%+v", p)
		}
		seen[p.Server] = true
	}
	for _, name := range servers {
		if !seen[name] {
			return fmt.Errorf("there are no pins of %s: %s", name, out)
		}
	}
	out, err = output("pfar", "call", "changing.echo", "--message", "pinned")
	return errors.Join(err, contains(out, "pinned"))
}

// leftovers wants no file that pfar was writing.
func leftovers() error {
	var err error
	for _, pattern := range []string{vaultDir + "/.new-*", vaultDir + "/.commit", pinsDir + "/.*"} {
		if left, gerr := filepath.Glob(pattern); gerr != nil || len(left) > 0 {
			err = errors.Join(err, gerr, fmt.Errorf("there is %q", left))
		}
	}
	return err
}
