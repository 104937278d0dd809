package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// given has pfard's answer be s instead of the one token.
func given(t *testing.T, s units.Secrets) func(runtime string) {
	return func(runtime string) {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(runtime), "credentials", units.CredentialSecrets), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// withFile adds a credential as a file, and the variable with its path.
func withFile(s sandbox.Sandbox, name string) sandbox.Sandbox {
	path := "/run/secrets/" + name
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Data, Dest: path, Perms: 0o400, Credential: name})
	s.Env = append(s.Env, sandbox.Env{Name: name, Value: path})
	return s
}

// lines reads what a server says, so many lines of it.
func (r *run) lines(n int) (all []string) {
	r.t.Helper()
	out := bufio.NewScanner(r.stdout)
	for range n {
		if !out.Scan() {
			r.t.Fatalf("it said %q and no more: %v\n%s", all, out.Err(), r.logged())
		}
		all = append(all, out.Text())
	}
	return all
}

func digest(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }

// A file has the value byte for byte, in memory, for the server's eyes, and nobody changes it.
func TestCredentialAsAFile(t *testing.T) {
	pem := []byte("-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----\n\x00\xff --bind / /\x00")
	s := withFile(script(`echo $KEY; sha256sum < $KEY; stat -c '%a %u' $KEY; findmnt -no FSTYPE,OPTIONS $KEY | tr ',' ' '
		(echo x > $KEY) 2>/dev/null || echo kept; (rm -f $KEY) 2>/dev/null || echo there; ls /run/secrets; cat`), "KEY")
	r := begin(t, s, given(t, units.Secrets{Values: map[string][]byte{"TOKEN": []byte("hunter2-secret"), "KEY": pem}}))
	r.hello()
	got := r.lines(7)
	want := []string{"/run/secrets/KEY", digest(pem) + "  -", "400 1000", "", "kept", "there", "KEY"}
	if mount := strings.Fields(got[3]); len(mount) < 2 || mount[0] != "tmpfs" || !slices.Contains(mount, "ro") {
		t.Errorf("the file is on %q, want a tmpfs, read-only", got[3])
	}
	got[3] = ""
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What is missing keeps the server from starting, and no word about it holds what is there.
func TestSecretsThatAreNot(t *testing.T) {
	const canary = "canary-of-these-secrets"
	full := map[string][]byte{"TOKEN": []byte(canary), "KEY": []byte(canary)}
	brokered := func(s *sandbox.Sandbox) {
		s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Data, Dest: "/run/ssl/authority.pem", Authority: true})
	}
	bundle := func(source string) func(*sandbox.Sandbox) {
		return func(s *sandbox.Sandbox) {
			s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Data, Source: source, Dest: "/run/ssl/bundle.pem", Authority: true})
		}
	}
	link := filepath.Join(open(t), "link.pem")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(open(t), "huge.pem")
	if err := os.WriteFile(huge, make([]byte, 8<<20+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		secrets units.Secrets
		change  func(*sandbox.Sandbox)
		status  string
	}{
		"an empty variable":     {units.Secrets{Values: map[string][]byte{"KEY": []byte(canary)}}, func(*sandbox.Sandbox) {}, `"TOKEN" is empty`},
		"no file":               {units.Secrets{Values: map[string][]byte{"TOKEN": []byte(canary)}}, func(*sandbox.Sandbox) {}, `credential "KEY" is missing`},
		"NUL in a variable":     {units.Secrets{Values: map[string][]byte{"TOKEN": []byte(canary + "\x00x"), "KEY": []byte(canary)}}, func(*sandbox.Sandbox) {}, `deliver = "file"`},
		"no authority":          {units.Secrets{Values: full}, brokered, "the certificate of the bridge's authority is missing"},
		"a bundle that is gone": {units.Secrets{Values: full, Authority: []byte("x")}, bundle("/etc/ssl/certs/nowhere.pem"), "no such file"},
		"a bundle by a link":    {units.Secrets{Values: full, Authority: []byte("x")}, bundle(link), "symbolic link"},
		"a bundle too large":    {units.Secrets{Values: full, Authority: []byte("x")}, bundle(huge), "more than 8388608 bytes"},
		"a folder as a bundle":  {units.Secrets{Values: full, Authority: []byte("x")}, bundle("/etc/ssl"), "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withFile(script("echo started; cat"), "KEY")
			c.change(&s)
			r := begin(t, s, given(t, c.secrets))
			if code := r.exit(2 * time.Minute); code != units.ExitDisabled {
				t.Errorf("exit code %d, want %d", code, units.ExitDisabled)
			}
			eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), c.status) })
			if all := r.logged() + r.noted("STATUS"); strings.Contains(all, canary) {
				t.Errorf("the secret is in %s", all)
			}
		})
	}
}

// open is a directory that any user may enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar-launch-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A server with a brokered credential has its placeholder, and trusts its bridge as well as the host's authorities.
func TestTrustInTheBridge(t *testing.T) {
	const authority = "-----BEGIN CERTIFICATE-----\nbridge\n-----END CERTIFICATE-----\n"
	const host = "-----BEGIN CERTIFICATE-----\nhost\n-----END CERTIFICATE-----" // without an end of line
	dir := open(t)
	bundle := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(bundle, []byte(host), 0o644); err != nil {
		t.Fatal(err)
	}
	s := script(`echo $TOKEN; sha256sum < /run/ssl/authority.pem; sha256sum < /run/ssl/bundle.pem; sha256sum < ` + bundle + `; stat -c %a ` + bundle + `; cat`)
	s.Mounts = append(s.Mounts, []sandbox.Mount{
		{Kind: sandbox.ROOverlay, Source: dir, Dest: dir},
		{Kind: sandbox.Data, Dest: "/run/ssl/authority.pem", Authority: true},
		{Kind: sandbox.Data, Source: bundle, Dest: "/run/ssl/bundle.pem", Authority: true},
		{Kind: sandbox.Data, Source: bundle, Dest: bundle, Authority: true},
	}...)
	r := begin(t, s, given(t, units.Secrets{Values: map[string][]byte{"TOKEN": []byte("ghp_placeholder0000")}, Authority: []byte(authority)}))
	r.hello()
	both := digest([]byte(host + "\n" + authority))
	want := []string{"ghp_placeholder0000", digest([]byte(authority)) + "  -", both + "  -", both + "  -", "444"}
	if got := r.lines(5); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if b, err := os.ReadFile(bundle); err != nil || string(b) != host {
		t.Errorf("the host's bundle is %q now, %v", b, err)
	}
}

// Once the server runs, its secrets are in no process but its own, in no argument, no descriptor, no file of the
// host's, and the launcher has forgotten them.
func TestSecretsAreNowhereElse(t *testing.T) {
	value, key := "canary-"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-of-a-variable", "canary-"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-of-a-file"
	s := withFile(script(`echo "$TOKEN $(cat $KEY)"; exec cat`), "KEY")
	r := begin(t, s, given(t, units.Secrets{Values: map[string][]byte{"TOKEN": []byte(value), "KEY": []byte(key)}}))
	r.hello()
	if got := r.lines(1)[0]; got != value+" "+key {
		t.Fatalf("the server has %q", got)
	}
	credentials := filepath.Join(filepath.Dir(r.runtime), "credentials")
	if err := os.RemoveAll(credentials); err != nil { // as its runner does in time, and a grep would find it
		t.Fatal(err)
	}
	var canaries [][]byte
	for _, v := range []string{value, key} {
		canaries = append(canaries, []byte(v), []byte(base64.StdEncoding.EncodeToString([]byte(v))))
	}
	inside := descendants(r.cmd.Process.Pid)
	launcher := strconv.Itoa(r.cmd.Process.Pid)
	for _, c := range canaries {
		for _, p := range processesWith(string(c)) {
			t.Errorf("a secret is in the arguments of %s", p)
		}
		for _, p := range environmentsWith(c, inside[len(inside)-1:]) {
			t.Errorf("a secret is in the environment of %s", p)
		}
		if strings.Contains(r.logged(), string(c)) {
			t.Error("a secret is in the log")
		}
		if out, _ := exec.Command("grep", "-rlF", "--", string(c), filepath.Dir(r.runtime)).Output(); len(out) > 0 {
			t.Errorf("a secret is in %s", out)
		}
	}
	for _, pid := range append([]int{r.cmd.Process.Pid}, inside...) { // with 0 bytes, a program may still get the core by a pipe
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 1 1 bytes") {
			t.Errorf("core files of process %d: %v\n%s", pid, err, limits)
		}
	}
	memory, err := memoryOf(launcher)
	if os.Getuid() != 0 {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("its own user reads the launcher's memory: %v", err)
		}
		return
	}
	if err != nil || len(memory) < 1<<20 {
		t.Fatalf("%d bytes of memory, %v", len(memory), err)
	}
	for i, c := range canaries {
		if bytes.Contains(memory, c) {
			t.Errorf("form %d of a secret is in the launcher's memory", i)
		}
	}
	if held, _ := memoryOf(strconv.Itoa(inside[len(inside)-1])); len(held) == 0 {
		t.Error("no memory of the server is found, so this looks in the wrong place")
	}
	for _, pid := range append(inside, r.cmd.Process.Pid) {
		if out := asStranger(t, pid); bytes.Contains(out, []byte(value)) || bytes.Contains(out, []byte(key)) {
			t.Errorf("another user finds a secret at process %d", pid)
		}
	}
}

// environmentsWith lists the processes, but for some, whose environment holds b.
func environmentsWith(b []byte, but []int) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range paths {
		pid, _ := strconv.Atoi(strings.Split(p, "/")[2])
		if text, err := os.ReadFile(p); err == nil && bytes.Contains(text, b) && !slices.Contains(but, pid) {
			found = append(found, p)
		}
	}
	return found
}

// memoryOf returns what a process may write to of its memory, one part after the other.
func memoryOf(pid string) ([]byte, error) {
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/" + pid + "/mem")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		part, _ := io.ReadAll(io.NewSectionReader(f, from, to-from))
		all = append(all, part...)
	}
	return all, nil
}

// asStranger returns whatever an ordinary user finds below /proc/PID.
func asStranger(t *testing.T, pid int) []byte {
	t.Helper()
	const look = `cd /proc/$0 2>/dev/null || exit 0
cat environ cmdline status stat maps limits mountinfo fd/* root/run/secrets/* cwd/* 2>/dev/null
ls -lR fd root/run 2>/dev/null
true`
	c := exec.Command("timeout", "10", "sh", "-c", look, strconv.Itoa(pid))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61182, Gid: 61182}}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("looking as another user: %v", err)
	}
	if !bytes.Contains(out, []byte("Uid:")) && unix.Kill(pid, 0) == nil {
		t.Errorf("another user found nothing at all of process %d", pid)
	}
	return out
}
