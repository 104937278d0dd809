package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
)

const clockServers = "calm hog bomb out"

// clockJumps sets the clock under servers that run.
func clockJumps() (string, error) {
	names := strings.Fields(clockServers)
	before := launchers(names...)
	for _, jump := range []string{"1 year", "2 years ago", "1 year"} {
		if out, err := output("date", "--set="+jump); err != nil {
			return "", fmt.Errorf("date: %w: %s", err, out)
		}
		time.Sleep(time.Second) // for whoever would act on it
		r, err := status()
		if err != nil {
			return "", err
		}
		for _, s := range r.Servers {
			if age := time.Since(s.Since); s.State != control.Running || age < -time.Second || age > time.Hour {
				return "", fmt.Errorf("after a jump of %q, %s is %s since %s, which is %s", jump, s.Name, s.State, s.Since, age)
			}
		}
		if out, err := output("pfar", "call", "calm.echo", "--message", "after "+jump); err != nil || !strings.Contains(out, "after "+jump) {
			return "", fmt.Errorf("after a jump of %q: %w: %s", jump, err, out)
		}
	}
	if after := launchers(names...); after != before {
		return "", fmt.Errorf("they were %s and are %s", before, after)
	}
	return "", nil
}

// clockInBackOff sets the clock back by a year between each crash of a server and its next start.
func clockInBackOff() (string, error) {
	const dropIn = "/etc/systemd/system/pfar-mcp@crash.service.d"
	before := launchers("calm")
	if err := errors.Join(os.MkdirAll(dropIn, 0o755), os.WriteFile(dropIn+"/clock.conf", []byte("[Service]\nExecStartPre=+date --set=\"1 year ago\"\n"), 0o644)); err != nil {
		return "", err
	}
	if out, err := shell("systemctl daemon-reload"); err != nil {
		return "", fmt.Errorf("systemctl: %w: %s", err, out)
	}
	begin := time.Now() // what has passed since then the clock does not change
	text := fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n  args = [\"-crash\"]\n}\n", programs+"/echo")
	if err := declare("crash", text); err != nil {
		return "", err
	}
	if err := becomes("crash", func(s control.Server) error {
		if s.Crashes < 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}); err != nil {
		return "", err
	}
	// A launcher that waits until a time of the clock waits a year.
	took := time.Since(begin).Round(time.Millisecond)
	err := logged("crash", "back-off 1s after crash 1 of 3", "back-off 5s after crash 2 of 3")
	if took < time.Second {
		err = errors.Join(err, fmt.Errorf("it crashed for the second time after %s", took))
	}
	if after := launchers("calm"); after != before {
		err = errors.Join(err, fmt.Errorf("it was %s and is %s", before, after))
	}
	_, derr := output("date", fmt.Sprintf("--set=@%d", begin.Add(time.Since(begin)).Unix()))
	return took.String(), errors.Join(err, derr, os.RemoveAll(dropIn), os.Remove(declarations+"/crash.hcl"))
}
