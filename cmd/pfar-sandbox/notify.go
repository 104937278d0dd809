package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/handover"
)

// notify sends one sd_notify(3) message, with files for the runner's descriptor store (FDSTORE=1) if there are any.
// Without NOTIFY_SOCKET it does nothing. go-systemd's daemon.SdNotify cannot send descriptors.
func notify(lines []string, files ...*os.File) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	to := &unix.SockaddrUnix{Name: path} // a leading @ is an abstract name
	if err := unix.Sendmsg(fd, []byte(strings.Join(lines, "\n")), oob, to, 0); err != nil {
		return fmt.Errorf("notifying the runner: %w", err)
	}
	return nil
}

// set is one assignment of a notification; a newline in the value would start another one.
func set(name, value string) string { return name + "=" + strings.ReplaceAll(value, "\n", " ") }

// notify tells the service manager, and pfard where that is somebody else. In a unit the status line is what an
// administrator sees of the server: its state, the label of its data, and what it was last refused.
func (l *launcher) notify(vars map[string]string) {
	l.pfard.tell(vars)
	if !l.unit() {
		_ = notify(lines(vars))
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.show(vars)
	vars = maps.Clone(vars)
	vars["STATUS"] = l.shown.String()
	_ = notify(lines(vars))
}

// show takes what people are shown. l.telling is held.
func (l *launcher) show(vars map[string]string) {
	if s, ok := vars[units.NotifyState]; ok {
		l.shown.State = s
	}
	if v, ok := vars[units.NotifyVerification]; ok && units.IsInvalid(v) {
		l.shown.State = units.StateInvalid
	}
	if s, ok := vars["STATUS"]; ok {
		l.shown.Detail = s
	}
}

// verified adds what is known of the server's secrets, and returns the status of a server that has them.
func (l *launcher) verified(v *units.Verification, vars map[string]string, status string) string {
	if v == nil {
		v = new(units.Verification) // or what was said before would stand
	}
	vars[units.NotifyVerification] = v.Notification()
	switch v.Result {
	case units.Invalid:
		told := *v
		if trial := l.plan.Gateway.Trial; trial != nil {
			told.Remedy, told.Where = trial.Remedy, trial.Where
		}
		return handover.Refused(told)
	case units.Unverified:
		return status + ", connected, not verified"
	}
	return status
}

// news is called with what pfard says of the server while it runs.
func (l *launcher) news(m attach.Message) {
	l.telling.Lock()
	switch {
	case m.Refusal != "":
		l.shown.Refusal = m.Refusal
	case m.Mistake != nil:
		l.shown.Mistake = *m.Mistake
	case m.Label != nil:
		l.shown.Label = *m.Label
	}
	line := l.shown.String()
	l.telling.Unlock()
	_ = notify([]string{set("STATUS", line)})
}

// lines are the assignments in the order of their names.
func lines(vars map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		list = append(list, set(name, vars[name]))
	}
	return list
}
