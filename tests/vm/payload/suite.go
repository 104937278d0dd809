package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// result is one check's outcome, a line of JSON on stdout.
type result struct {
	Name   string `json:"name"`
	Error  string `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func report(name string, err error, detail string) {
	r := result{Name: name, Detail: detail}
	if err != nil {
		r.Error = err.Error()
	}
	b, err := json.Marshal(r)
	if err != nil {
		b = []byte(err.Error()) // not JSON: the test fails on it
	}
	os.Stdout.Write(append(b, '\n'))
}

const user = 1000 // the image's ordinary user, who lingers

// suite runs every way of holding limits, each in processes of its own.
func suite([]string) error {
	// Under linger logind starts it; this waits until it is up.
	if out, err := exec.Command("systemctl", "start", fmt.Sprintf("user@%d.service", user)).CombinedOutput(); err != nil {
		return fmt.Errorf("waiting for the user's systemd: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtimeDir := fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", user)
	var errs []error
	for _, c := range []struct {
		uid  int
		env  []string
		args []string
	}{
		{user, []string{runtimeDir}, []string{self, "limits", "user, scope", "/pfar-mcp-"}},
		{user, []string{runtimeDir}, []string{"systemd-run", "--user", "--scope", "-q", "-p", "Delegate=yes", self, "limits", "user, delegated", "/mcp-"}},
		{0, nil, []string{self, "limits", "root, scope", "/system.slice/pfar-mcp-"}},
		{0, nil, []string{"systemd-run", "--scope", "-q", "-p", "Delegate=yes", self, "limits", "root, delegated", "/mcp-"}},
		{0, nil, []string{"unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && exec \"$@\"", "sh", self, "limits", "root, no systemd", "/pfar/mcp-"}},
		{65534, nil, []string{self, "limits", "no systemd of one's own", "none"}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		cmd := command(ctx, c.args[0], c.args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Env = append(c.env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}}
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("running %q: %w", c.args, err))
		}
		cancel()
	}
	held, err := processLimit()
	report("user, RLIMIT_NPROC in the user namespace", err, held)
	return errors.Join(errs...)
}

// processLimit runs a bomb under RLIMIT_NPROC while its user has more processes outside than the limit.
func processLimit() (string, error) {
	const tasks, outside = 30, 40
	credential := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	for range outside {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = credential
		if err := cmd.Start(); err != nil {
			return "", err
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
	}
	p, err := prepare("nproc", strconv.Itoa(tasks))
	if err != nil {
		return "", err
	}
	p.cmd.SysProcAttr = credential
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	p.stdin.Write([]byte{1})
	err = p.wait()
	n, nerr := strconv.Atoi(p.output())
	if err == nil && (nerr != nil || n < 1 || n >= tasks) {
		err = errors.Join(nerr, fmt.Errorf("it forked %d times", n))
	}
	return fmt.Sprintf("%d forks under a limit of %d, with %d processes outside", n, tasks, outside), err
}
