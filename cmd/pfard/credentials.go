package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/systemd"
)

// credentials answers systemd, which asks on a socket for the credential of a unit that it is about to start
// (systemd.exec(5), LoadCredential=). The values pass from the vault to a file that the unit alone can read, and through
// nothing else.
type credentials struct {
	log     *slog.Logger
	plan    func(instance string) (generator.Plan, error)
	secrets func(generator.Plan) (units.Secrets, error)
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
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.log.Warn("accepting a request for credentials, ignoring", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		answers.Go(func() { c.answer(conn) })
	}
}

// answer sends one unit's secrets. Hanging up without a word leaves the unit with an empty credential, which its
// launcher takes for what it is.
func (c *credentials) answer(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(credentialTime))
	instance, err := asker(conn)
	if err != nil {
		c.log.Warn("refusing credentials", "error", err)
		return
	}
	text, err := c.of(instance)
	if err != nil {
		c.log.Warn("refusing credentials", "server", instance, "error", err)
		return
	}
	if _, err := conn.Write(text); err != nil {
		c.log.Warn("handing credentials over", "server", instance, "error", err)
	}
}

// asker is the instance for whose launcher systemd asks.
func asker(conn *net.UnixConn) (string, error) {
	peer, err := control.PeerOf(conn)
	if err != nil {
		return "", err
	}
	if peer.UID != 0 && peer.UID != os.Getuid() { // anybody may bind a name
		return "", fmt.Errorf("user %d asks, and is not systemd", peer.UID)
	}
	unit, id, err := parseAsker(conn.RemoteAddr().String())
	if err != nil {
		return "", err
	}
	instance, ok := systemd.InstanceOf(unit)
	if !ok || id != units.CredentialSecrets {
		return "", fmt.Errorf("%q asks for %q: want the launcher of a server and %q", unit, id, units.CredentialSecrets)
	}
	return instance, nil
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
	recordDelivery(c.log, instance, p, s.Missing, err)
	if err != nil { // it can be mended, and waiting says what is to be
		c.log.Error("reading credentials", "server", instance, "error", err)
		s = units.Secrets{Missing: []string{err.Error()}}
	}
	return json.Marshal(s)
}

// acceptPause keeps a process without descriptors from spinning.
const acceptPause = 100 * time.Millisecond
