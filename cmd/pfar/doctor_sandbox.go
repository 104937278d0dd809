package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// apparmorKey is 1 on Ubuntu 23.10 and later.
const apparmorKey = "kernel.apparmor_restrict_unprivileged_userns"

// apparmor looks whether the programs that make user namespaces may: pfar-sandbox makes the server's, bwrap the one in
// it.
func (h host) apparmor(context.Context) finding {
	const name = "AppArmor and namespaces"
	n, ok := h.sysctl(apparmorKey)
	if !ok || n == 0 {
		return finding{name, pass, "not restricted", ""}
	}
	missing := h.unprofiled()
	if len(missing) == 0 {
		return finding{name, pass, "restricted, and profiles in /etc/apparmor.d allow pfar-sandbox and bwrap", ""}
	}
	return finding{name, warn, apparmorKey + " is 1, and no profile in /etc/apparmor.d allows " + strings.Join(missing,
		" and "), h.apparmorRemedy(missing)}
}

// unprofiled are the paths that no AppArmor profile with "userns," names; one that a pattern covers is listed too.
func (h host) unprofiled() []string {
	var profiles []string
	files, _ := fs.ReadDir(h.fs, "etc/apparmor.d") // without it there are none
	for _, file := range files {
		if b, err := fs.ReadFile(h.fs, "etc/apparmor.d/"+file.Name()); err == nil && strings.Contains(string(b), "userns,") {
			profiles = append(profiles, string(b))
		}
	}
	var missing []string
	sandbox, err := h.program("pfar-sandbox")
	if err != nil {
		sandbox = "/usr/lib/pfar/pfar-sandbox"
	}
	bwrap, err := h.lookPath("bwrap")
	if err != nil {
		bwrap = "/usr/bin/bwrap"
	}
	for _, path := range []string{sandbox, bwrap} {
		if !named(profiles, path) {
			missing = append(missing, path)
		}
	}
	return missing
}

// named reports whether a text names the path, and not only one that it begins.
func named(texts []string, path string) bool {
	whole := regexp.MustCompile(`(^|[\s"])` + regexp.QuoteMeta(path) + `($|[\s",{])`)
	return slices.ContainsFunc(texts, whole.MatchString)
}

// apparmorExample has the profiles of both programs where packages put them.
const apparmorExample = "/usr/share/doc/pfar/apparmor"

// apparmorRemedy names the installed profiles if both are missing. A second profile for one of the programs would
// conflict with the first.
func (h host) apparmorRemedy(programs []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Ubuntu 23.10 and later let a program make user namespaces only if an AppArmor profile says so.\n"+
		"Lift that for every program: sysctl -w %[1]s=0\n"+
		"and, to keep it: echo %[1]s=0 > /etc/sysctl.d/60-pfar.conf\n", apparmorKey)
	example, _ := fs.ReadFile(h.fs, apparmorExample[1:]) // without it the text is here
	unnamed := func(path string) bool { return !named([]string{string(example)}, path) }
	if len(programs) == 2 && !slices.ContainsFunc(programs, unnamed) {
		fmt.Fprintf(&b, "Or allow it to these programs only:\n\n  cp %s /etc/apparmor.d/pfar\n  apparmor_parser -r "+
			"/etc/apparmor.d/pfar", apparmorExample)
		return b.String()
	}
	b.WriteString("Or allow it to these programs only, in a file of yours below /etc/apparmor.d that you load with " +
		"apparmor_parser -r FILE:\n\n" +
		"  abi <abi/4.0>,\n  include <tunables/global>\n")
	for _, p := range programs {
		fmt.Fprintf(&b, "  profile \"%s\" flags=(unconfined) {\n    userns,\n  }\n", p)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// sandboxRuns is how often an empty sandbox is started: the fastest is what the machine can do, the others are noise.
const sandboxRuns = 5

// emptySandbox starts what every server starts, without a server.
func (h host) emptySandbox(ctx context.Context) finding {
	f := finding{Check: "empty sandbox", Remedy: "See the checks above. In a container, allow user namespaces and " +
		"mounts in its seccomp and AppArmor profiles\n(docker run --security-opt seccomp=unconfined --security-opt " +
		"apparmor=unconfined --security-opt systempaths=unconfined)."}
	bwrap, err := h.lookPath("bwrap")
	if err != nil {
		f.Detail, f.Remedy = "bwrap is not installed", bubblewrapRemedy
		return f
	}
	if h.hasUnits() {
		found, err := h.probeInUnit(ctx)
		if err != nil {
			f.Detail = "as a unit (" + probeUnit + "): " + err.Error()
			f.Remedy += "\nServers run as units here, so systemd also decides what they may do. journalctl -u " + probeUnit +
				" says more."
			return f
		}
		const words = "starts and ends in %.1f ms with the settings of servers' units (%s)"
		detail := fmt.Sprintf(words, ms(found.Took), probeUnit)
		return finding{f.Check, pass, detail, ""}
	}
	var best time.Duration
	by := "by pfar-sandbox"
	sandbox, err := h.program("pfar-sandbox")
	if err == nil {
		best, err = h.fastest(ctx, func() (time.Duration, error) { return h.probe(ctx, sandbox) })
	}
	if err != nil && !errors.As(err, new(sandboxFailure)) {
		by = "by bwrap alone, because " + err.Error()
		best, err = h.fastest(ctx, func() (time.Duration, error) { return h.bareSandbox(ctx, bwrap) })
	}
	if err != nil {
		f.Detail = err.Error()
		if n, ok := h.sysctl(apparmorKey); ok && n != 0 {
			f.Remedy = h.apparmorRemedy(h.unprofiled())
		}
		return f
	}
	who := "this user"
	if h.uid == 0 {
		who = fmt.Sprintf("uid %d", probeUID)
	}
	return finding{f.Check, pass, fmt.Sprintf("starts and ends in %.1f ms as %s, the best of %d, started %s", ms(best),
		who, sandboxRuns, by), ""}
}

// probeUnit is an empty sandbox with the settings of pfar-mcp@.service.
const probeUnit = "pfar-probe.service"

// hasUnits reports whether servers here are units of the machine's systemd.
func (h host) hasUnits() bool {
	return h.uid == 0 && h.exists("/run/systemd/system") && h.exists("/usr/lib/systemd/system/"+probeUnit)
}

// userUnitSandbox is for an ordinary user, whose servers may be started by pfar up or be units of the user's own
// systemd.
func (h host) userUnitSandbox(ctx context.Context) finding {
	const name = "sandbox as a unit"
	switch {
	case h.uid == 0:
		return finding{name, none, "for root see above", ""}
	case !h.exists("/usr/lib/systemd/user/" + probeUnit):
		return finding{name, none, "pfar's units for users are not installed", ""}
	case !h.exists(fmt.Sprintf("/run/user/%d/systemd/private", h.uid)):
		return finding{name, none, "no systemd runs for this user", ""}
	}
	found, err := h.probeInUnit(ctx, "--user")
	if err != nil {
		return finding{name, warn, "in a unit of yours (" + probeUnit + ") no sandbox starts: " + err.Error(),
			"Servers start by pfar up, but not as units of yours. journalctl --user -u " + probeUnit + " says more."}
	}
	return finding{name, pass, fmt.Sprintf("starts and ends in %.1f ms with the settings of your servers' units (%s)",
		ms(found.Took), probeUnit), ""}
}

// probeInUnit has systemd start the empty sandbox, the user's with --user. The unit's status text is the result.
func (h host) probeInUnit(ctx context.Context, whose ...string) (units.Probe, error) {
	dir := "/run/pfar"
	if h.uid != 0 {
		dir = fmt.Sprintf("/run/user/%d", h.uid)
	}
	defer probesAlone(ctx, dir)()
	ask := func(words ...string) (string, error) {
		return h.systemctl(ctx, slices.Concat(words, whose, []string{probeUnit})...)
	}
	out, failed := ask("restart")
	text, err := ask("show", "--property=StatusText", "--value")
	text = strings.TrimSpace(text)
	for _, verb := range []string{"stop", "reset-failed"} {
		_, _ = ask(verb) // reset-failed has nothing to do after success
	}
	switch {
	case failed != nil && err == nil && text != "":
		return units.Probe{}, sandboxFailure(text)
	case failed != nil:
		return units.Probe{}, sandboxFailure(outputOr(out, failed))
	case err != nil:
		return units.Probe{}, sandboxFailure(outputOr(text, err))
	}
	return probed(probeUnit, text)
}

// probesAlone waits until no other doctor uses the unit, by a lock on a folder (flock(2)): the one that ends first
// would stop the unit before the other has read its status. It does not wait forever: whoever may read the folder may
// lock it.
func probesAlone(ctx context.Context, dir string) (leave func()) {
	folder, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil && ctx.Err() == nil {
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return func() { folder.Close() }
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fastest measures until the first error.
func (h host) fastest(ctx context.Context, once func() (time.Duration, error)) (time.Duration, error) {
	var best time.Duration
	for i := range sandboxRuns {
		took, err := once()
		if err != nil {
			return 0, err
		}
		if i == 0 || took < best {
			best = took
		}
	}
	return best, ctx.Err()
}

// sandboxFailure is what a sandbox that did not start said, unlike a program that could not be run.
type sandboxFailure string

func (s sandboxFailure) Error() string { return string(s) }

// probe has pfar-sandbox start an empty sandbox exactly as it starts servers. It fails with another error than
// sandboxFailure if the sandbox's user cannot run the program, as in a clone below /root.
func (h host) probe(ctx context.Context, program string) (time.Duration, error) {
	out, err := h.run(ctx, false, program, "probe")
	switch {
	case errors.Is(err, syscall.EACCES):
		return 0, fmt.Errorf("uid %d cannot run %s", probeUID, program)
	case err != nil:
		return 0, sandboxFailure(outputOr(out, err))
	}
	found, err := probed(program, out)
	return found.Took, err
}

// probed reads what a probe has printed.
func probed(by, text string) (units.Probe, error) {
	text = strings.TrimSpace(text)
	found, ok := units.ParseProbe(text)
	if !ok {
		return units.Probe{}, sandboxFailure(fmt.Sprintf("%s says %q, not how long it took: pfar and pfar-sandbox may be of "+
			"different versions", by, text))
	}
	return found, nil
}

// bareSandbox shows with bwrap alone whether namespaces can be made.
func (h host) bareSandbox(ctx context.Context, bwrap string) (time.Duration, error) {
	args := []string{
		"--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
	}
	if _, err := fs.Stat(h.fs, "usr/lib64"); err == nil {
		args = append(args, "--symlink", "usr/lib64", "/lib64")
	} else if _, err := fs.Stat(h.fs, "lib64"); err == nil {
		args = append(args, "--ro-bind", "/lib64", "/lib64")
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--size", "16777216", "--tmpfs", "/tmp", "--chdir", "/", "--", "/usr/bin/true")
	begin := h.now()
	if out, err := h.run(ctx, false, bwrap, args...); err != nil {
		return 0, sandboxFailure(outputOr(out, err))
	}
	return h.now().Sub(begin), nil
}

// ownViews looks whether a sandbox gets the host's programs over an overlayfs of its own.
func (h host) ownViews(ctx context.Context) finding {
	const name = "files of the machine"
	program, err := h.program("pfar-sandbox")
	if err != nil {
		return finding{name, none, err.Error(), ""}
	}
	var found units.Probe
	var text string
	if h.hasUnits() {
		found, err = h.probeInUnit(ctx)
	} else if text, err = h.run(ctx, false, program, "probe"); err == nil {
		found, err = probed(program, text)
	}
	if err != nil {
		return finding{name, none, "no sandbox starts, see above", ""}
	}
	if len(found.Shared) == 0 {
		return finding{name, pass, "each sandbox sees them over an overlayfs of its own", ""}
	}
	return finding{name, warn, "shared as they are: " + strings.Join(found.Shared, "; "),
		"Servers can signal to each other by locks and watches on these files, and see which the machine uses. Use " +
			"Linux 5.11\n" +
			"or later with overlayfs, and mount nothing below these directories."}
}
