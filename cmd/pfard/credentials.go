package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// credentials answers systemd, which asks on a socket for the credential of a unit that it is about to start
// (systemd.exec(5), LoadCredential=). The values pass from the vault to a file that the unit alone can read, and
// through nothing else.
//
// Who asks is a process that systemd has forked for the unit, as root and already in the unit's cgroup, not PID 1
// itself. That it is root is the kernel's word, and so is the unit that it is in, of the same service manager as pfard;
// the name that it has bound has to say the same. This keeps off every other user, the server and its launcher, who are
// in that cgroup and not root, and what is root elsewhere: another service, a container, the units of root's own
// service manager. It cannot keep off what is root and may move itself into the unit's cgroup: that has the vault's key
// for the asking. Of a user's own service manager, all of that user's processes may move themselves so.
type credentials struct {
	log     *slog.Logger
	unit    func(conn *net.UnixConn, pid int) (string, error) // of the process that has connected
	plan    func(instance string) (plan.Plan, error)
	secrets func(plan.Plan) (units.Secrets, error)
	give    func(plan.Plan, units.Secrets, error) error // is told what each launcher is about to be given; with an error it is not
	model   func(name string) (units.Secrets, error)    // of an inspector that is a model
	user    func(unit string) (int, error)              // the user id that a unit is to have, which is given what the unit has made
}

const (
	credentialTime = 5 * time.Second
	lastAnswers    = 2 * time.Second // for those under way when pfard ends; a unit that gets none starts without its secrets
)

// serve answers until the listener is closed, and returns when the answers under way have been given.
func (c *credentials) serve(l *net.UnixListener) {
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		conn, err := units.Accept(context.Background(), l.AcceptUnix, func(err error) {
			c.log.Warn("accepting requests for credentials, trying again", "error", err)
		})
		if err != nil {
			return
		}
		answers.Go(func() { c.answer(conn) })
	}
}

// answer sends one unit's secrets. Hanging up without a word leaves the unit with an empty credential, which its
// launcher takes for what it is.
func (c *credentials) answer(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(credentialTime))
	unit, id, err := c.asker(conn)
	if err != nil {
		c.log.Warn("vault", "operation", "deliver", "outcome", "refused", "error", err)
		return
	}
	if id == units.CredentialUser {
		c.answerUser(conn, unit)
		return
	}
	instance, _ := systemd.InstanceOf(unit)
	var text []byte
	if name, ok := systemd.ModelOf(unit); ok {
		instance = "inspector " + name
		text, err = c.ofModel(name)
	} else {
		text, err = c.of(instance)
	}
	if err != nil {
		c.log.Warn("vault", "operation", "deliver", "server", instance, "outcome", "refused", "error", err)
		return
	}
	if _, err := conn.Write(text); err != nil {
		c.log.Warn("handing credentials over", "server", instance, "error", err)
	}
}

// answerUser sends the user id of a unit that starts bubblewrap.
func (c *credentials) answerUser(conn *net.UnixConn, unit string) {
	user, err := c.user(unit)
	if err == nil {
		_, err = conn.Write(strconv.AppendInt(nil, int64(user), 10))
	}
	if err != nil {
		c.log.Error("giving a unit its user id", "unit", unit, "error", err)
	}
}

// asker is the unit for which systemd asks, and the credential that it asks for.
func (c *credentials) asker(conn *net.UnixConn) (unit, id string, err error) {
	peer, err := control.PeerOf(conn)
	if err != nil {
		return "", "", err
	}
	name := conn.RemoteAddr().String()
	if peer.UID != 0 && peer.UID != os.Getuid() { // anybody may bind a name
		return "", "", fmt.Errorf("process %d of user %d asks as %q, and is not systemd", peer.PID, peer.UID, name)
	}
	unit, id, err = parseAsker(name)
	if err != nil {
		return "", "", fmt.Errorf("process %d: %w", peer.PID, err)
	}
	if !deliverable(unit, id) {
		return "", "", fmt.Errorf("%q asks for %q: want the launcher of a server, or what asks a model, and %q, or what "+
			"starts bubblewrap, and %q",
			unit, id, units.CredentialSecrets, units.CredentialUser)
	}
	switch in, err := c.unit(conn, peer.PID); {
	case err != nil:
		return "", "", fmt.Errorf("finding out whether systemd asks for %q: %w", unit, err)
	case in != unit:
		return "", "", fmt.Errorf("process %d asks as %q, and is in %q", peer.PID, name, in)
	}
	return unit, id, nil
}

// deliverable reports whether a unit has such a credential.
func deliverable(unit, id string) bool {
	_, launcher := systemd.InstanceOf(unit)
	_, model := systemd.ModelOf(unit)
	_, program := systemd.ProgramOf(unit)
	switch id {
	case units.CredentialSecrets:
		return launcher || model
	case units.CredentialUser:
		return launcher || program
	}
	return false
}

// parseAsker reads the name that systemd binds before it connects: a NUL, which Go shows as "@", then HEX/unit/UNIT/ID.
func parseAsker(name string) (unit, id string, err error) {
	f := strings.Split(name, "/")
	if len(f) != 4 || !strings.HasPrefix(name, "@") || f[1] != "unit" || f[2] == "" || f[3] == "" {
		return "", "", fmt.Errorf("%q asks: want systemd's name for a unit and a credential", name)
	}
	return f[2], f[3], nil
}

func (c *credentials) of(instance string) ([]byte, error) {
	p, err := c.plan(instance)
	if err != nil {
		return nil, err
	}
	s, err := c.secrets(p)
	if unrecorded := c.give(p, s, err); err == nil {
		err = unrecorded
	}
	if err != nil { // it can be mended, and waiting says what is to be
		c.log.Error("reading credentials", "server", instance, "error", err)
		s = units.Secrets{Missing: []string{err.Error()}}
	}
	return json.Marshal(s)
}

func (c *credentials) ofModel(name string) ([]byte, error) {
	s, err := c.model(name)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}
