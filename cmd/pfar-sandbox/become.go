package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// becomeArg has this binary take the user id that pfard has allotted to the unit, and then execute itself with the rest
// of its arguments. systemd starts the unit as pfar-launcher, an ordinary user who may change its ids and nothing else.
//
// It is not DynamicUser= that gives a unit its id, because that implies RestrictSUIDSGID=, which answers ENOSYS to the
// openat2(2) that bubblewrap 0.12 cannot do without. It is not User= either: systemd wants an entry in the machine's
// accounts for that (nss-systemd is not everywhere), and a session's process lives for minutes.
const becomeArg = "become"

// become returns only if it could not. It reads nothing but the id, which is pfard's word, and what runs afterwards has
// neither the capabilities nor the other id: exec replaces the memory and the threads.
func become(args []string) error {
	text, err := units.Credential(units.CredentialUser)
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(string(text))
	if err != nil || id < lowestUser {
		return fmt.Errorf("reading credential %q: %q is not the user id of a server", units.CredentialUser, text)
	}
	env, err := units.PassCredentials() // only pfar-launcher may open them
	if err != nil {
		return err
	}
	program, err := os.Executable() // its own name, which ps(1) shows: /proc/self/exe would be "exe"
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err := takeUser(id); err != nil {
		return fmt.Errorf("becoming user %d: %w", id, err)
	}
	err = unix.Exec(program, append([]string{os.Args[0]}, args...), env)
	return fmt.Errorf("executing %q as user %d: %w", program, id, err)
}

// lowestUser is above root and every account of a person or a service (systemd's UIDS-GIDS document).
const lowestUser = 60578

// takeUser makes this thread, which execs, an ordinary one of the user: no other ids, no groups, no capabilities.
func takeUser(id int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("giving up groups: %w", errno)
	}
	n := uintptr(id)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, n, n, n); errno != 0 {
		return fmt.Errorf("taking the group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, n, n, n); errno != 0 {
		return fmt.Errorf("taking the user: %w", errno)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}
