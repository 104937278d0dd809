package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/operator"
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

const (
	acts = "/srv/desk/acts" // see tests/standin

	askPolicy = "ask \"writes\" {\n  reason = \"A person looks.\"\n  tools  = [\"write\"]\n}\n"
	anyClient = "servers = [\"*\"]\nprofile = \"balanced\"\nrelax = \"a test\"\n"
)

// declareDesk has a server whose writes wait for a person.
func declareDesk() error {
	if out, err := shell("mkdir -m 0777 /srv/desk; cd /srv/desk; touch acts acts.write acts.calls acts.written; " +
		"chmod 0666 acts*; mkdir -p /etc/pfar/policies.d /etc/pfar/clients.d"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return errors.Join(
		os.WriteFile("/etc/pfar/policies.d/writes.hcl", []byte(askPolicy), 0o644),
		os.WriteFile("/etc/pfar/clients.d/default.hcl", []byte(anyClient), 0o644),
		declare("desk", fmt.Sprintf("label = \"public\"\npins = \"trust-first\"\n"+
			"server {\n  command = %q\n  args = [\"-acts\", %q]\n}\n"+
			"tool \"look\" {\n  semantics = \"read\"\n}\ntool \"write\" {\n  semantics = \"write\"\n}\n"+
			"sandbox {\n  writable = [\"/srv/desk\"]\n}\n%s", programs+"/standin", acts, trust.Honest)),
		allRun("desk"),
	)
}

// flowWaits begins a flow that needs an approval, sets the clock on by more than a day and kills the gateway. After the
// approval the flow makes each of its writes once. A flow that waits for more than seven days fails and writes nothing.
func flowWaits() (string, error) {
	if err := declareDesk(); err != nil {
		return "", err
	}
	begin := time.Now() // time.Since is monotonic: it does not count what the clock is set on
	err := waitsForDays()
	_, derr := output("date", fmt.Sprintf("--set=@%d", begin.Add(time.Since(begin)).Unix()))
	return "", errors.Join(err, derr, os.Remove("/etc/pfar/policies.d/writes.hcl"),
		os.Remove("/etc/pfar/clients.d/default.hcl"), os.Remove(declarations+"/desk.hcl"), noServer("desk"),
		os.RemoveAll("/srv/desk"))
}

// noServer waits until pfard does not list a server any more.
func noServer(name string) error {
	return reported(func(r control.Report) error {
		for _, s := range r.Servers {
			if s.Name == name {
				return fmt.Errorf("%s is still there: %+v", name, s)
			}
		}
		return nil
	})
}

func waitsForDays() error {
	id, err := flowWaiting("first", "second")
	if err != nil {
		return err
	}
	if out, err := output("date", "--set=12 hours"); err != nil { // with the gateway that has begun it
		return fmt.Errorf("date: %w: %s", err, out)
	}
	if err := flowBecomes(id, flows.Waiting, ""); err != nil {
		return err
	}
	if err := passes("13 hours"); err != nil {
		return err
	}
	if err := errors.Join(flowBecomes(id, flows.Waiting, ""), written()); err != nil {
		return err
	}
	if err := approveOne(); err != nil {
		return err
	}
	if err := errors.Join(flowBecomes(id, flows.Done, ""), written("first", "second")); err != nil {
		return err
	}
	if id, err = flowWaiting("third", "fourth"); err != nil {
		return err
	}
	if err := passes("8 days"); err != nil {
		return err
	}
	return errors.Join(flowBecomes(id, flows.Failed, "nobody answered its approval within 7 days"),
		written("first", "second"))
}

// written reports an error unless these writes, and no others, have reached the server.
func written(want ...string) error {
	b, err := os.ReadFile(acts + ".written")
	if got := strings.Fields(string(b)); err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("written %q, want %q: %v", got, want, err)
	}
	return nil
}

// passes sets the clock on, and has another gateway go on with what waits.
func passes(long string) error {
	if out, err := shell("date --set='" + long + "'; systemctl kill --signal=KILL pfar-gateway"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return allRun("desk")
}

// flowWaiting begins a flow of two writes with a reading between, and returns its run when it waits for a person.
func flowWaiting(first, second string) (id string, err error) {
	line := fmt.Sprintf("desk.write --text %s + desk.look + desk.write --text %s", first, second)
	if out, err := output("pfar", "flow", "plan", line); err != nil { // what runs in a unit tells only the journal
		return "", fmt.Errorf("planning: %w: %s", err, out)
	}
	if out, err := output("systemd-run", "--quiet", "--collect", "pfar", "flow", "run", line); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	err = eventually(func() error {
		now, err := flowNow()
		if id = now.ID; err == nil && now.State != flows.Waiting {
			err = fmt.Errorf("the run is %+v", now)
		}
		return err
	})
	return id, err
}

// flowBecomes waits until a run is in a state, for a reason that begins so.
func flowBecomes(id string, state flows.State, reason string) error {
	return eventually(func() error {
		now, err := flowNow()
		if err == nil && (now.ID != id || now.State != state || !strings.HasPrefix(now.Reason, reason)) {
			err = fmt.Errorf("the run is %+v, want %s that is %s, %q", now, id, state, reason)
		}
		return err
	})
}

// flowNow is the newest run.
func flowNow() (flows.Status, error) {
	var all []flows.Status
	out, err := output("pfar", "flow", "list", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err != nil || len(all) == 0 {
		return flows.Status{}, fmt.Errorf("no run: %v: %s", err, out)
	}
	return all[0], nil
}

// approveOne approves what waits, which is one plan: a run whose gateway was killed asks again.
func approveOne() error {
	var all []operator.Shown
	if err := eventually(func() error {
		out, err := output("pfar", "approvals", "list", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &all)
		}
		if err != nil || len(all) != 1 {
			return fmt.Errorf("want one approval that waits: %v: %s", err, out)
		}
		return nil
	}); err != nil {
		return err
	}
	if out, err := output("pfar", "approvals", "approve", "--yes", all[0].ID); err != nil {
		return fmt.Errorf("approving: %w: %s", err, out)
	}
	return nil
}
