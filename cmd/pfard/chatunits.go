package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/systemd"
)

// chatUnits is what the processes of chats (pfar-chat@.service) may reach. Each has a user of its own, whom pfard
// learns when the process attaches: until then that user is nobody's. The process of a chat gets to the way of that
// chat, to the set-ups of that chat, and to the gateway as the client of that chat.
type chatUnits struct {
	log       *slog.Logger
	run       string // the directory of pfard's sockets
	gateway   string // its socket for clients
	clientele *clientele
	answers   func(chat string) control.Answer // to what its process asks for
	told      func()                           // is called when faults may have changed

	mu sync.Mutex
	at map[string]*chatProcess // that is attached, by name of the chat
}

// chatProcess is the process of a chat that is attached.
type chatProcess struct {
	holds bool // it has reached its homeserver
}

// held lets the process of a chat, which is a user's, get to what the chat needs, as long as it is attached.
func (c *chatUnits) held(conn *attach.Conn, e inspector.External, uid int) error {
	way := filepath.Join(units.InspectDir(c.run), e.Name+".sock")
	if err := os.Lchown(way, uid, -1); err != nil {
		return fmt.Errorf("giving the way of the chat %q to its process: %w", e.Name, err)
	}
	l, err := c.listen(e.Name, uid)
	if err != nil {
		return err
	}
	if err := c.remember(e, uid); err != nil {
		l.Close()
		return err
	}
	ctx, over := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := control.ServeChat(ctx, l, uid, c.answers(e.Name)); err != nil {
			c.log.Warn("answering a chat, which begins again", "chat", e.Name, "error", err)
			conn.Close()
		}
	}()
	own := new(chatProcess)
	c.turn(func() { c.at[e.Name] = own })
	defer func() {
		over()
		<-served
		c.turn(func() {
			if c.at[e.Name] == own { // and not the next one
				delete(c.at, e.Name)
			}
		})
	}()
	if err := conn.Send(attach.Message{Welcome: &attach.Welcome{}}); err != nil {
		return nil // it has ended
	}
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return nil
		}
		attach.CloseAll(files)
		if state := m.Notify[units.NotifyState]; state != "" {
			c.turn(func() { own.holds = state == units.StateRunning })
		}
	}
}

// listen makes the socket on which the process of a chat asks for set-ups. Nobody else may connect.
func (c *chatUnits) listen(name string, uid int) (*net.UnixListener, error) {
	dir := units.ChatDir(c.run)
	err := os.MkdirAll(dir, 0o711)
	if err == nil {
		err = os.Chmod(dir, 0o711) // for the process, whatever the umask
	}
	var l *net.UnixListener
	path := filepath.Join(dir, name+".sock")
	if err == nil {
		l, err = listenUnix("unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("making the socket of the chat %q: %w", name, err)
	}
	l.SetUnlinkOnClose(false) // the next process has one of the same name
	if err := os.Lchown(path, uid, -1); err != nil {
		l.Close()
		return nil, fmt.Errorf("giving the socket of the chat %q to its process: %w", name, err)
	}
	return l, nil
}

// turn notes how far the process of a chat is.
func (c *chatUnits) turn(note func()) {
	c.mu.Lock()
	note()
	c.mu.Unlock()
	c.told()
}

// faults say of each of these chats why nobody can talk there now, if that is so.
func (c *chatUnits) faults(list []inspector.External) (faults []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range list {
		unit := strings.TrimSuffix(systemd.ChatUnit(e.Name), ".service")
		switch p := c.at[e.Name]; {
		case p == nil:
			const words = "the chat %q does not run: journalctl -u %s says why"
			faults = append(faults, fmt.Sprintf(words, e.Name, unit))
		case !p.holds:
			const words = "the chat %q has not reached its homeserver: journalctl -u %s -u %s says why"
			way := strings.TrimSuffix(systemd.ModelUnit(e.Name), ".service")
			faults = append(faults, fmt.Sprintf(words, e.Name, unit, way))
		}
	}
	return faults
}

// uidSuffix ends the name of the file, in the directory of the sockets of chats, that says which user the process of a
// chat is: the next pfard tells the gateway before the process is attached again, or runs that the chat has begun would
// end.
const uidSuffix = ".uid"

// remember has the gateway know the user of a chat's process as the chat's client, also after pfard is started again.
func (c *chatUnits) remember(e inspector.External, uid int) error {
	path := filepath.Join(units.ChatDir(c.run), e.Name+uidSuffix)
	if err := durable.Replace(path, strconv.AppendInt(nil, int64(uid), 10)); err != nil {
		return fmt.Errorf("noting the user of the chat %q: %w", e.Name, err)
	}
	c.admit(e, uid)
	return nil
}

// admit tells the gateway of the user of a chat's process. pfard's own user is the gateway's operator already.
func (c *chatUnits) admit(e inspector.External, uid int) {
	if uid <= 0 || uid == os.Getuid() {
		return
	}
	if c.clientele.admitChat(e.Name, chatClient{e.Account.Client, uint32(uid)}) {
		c.clientele.reach(c.gateway, c.log)
	}
}

// want forgets all chats but these, and takes over the users of their processes that an earlier pfard has noted.
func (c *chatUnits) want(list []inspector.External) {
	dir := units.ChatDir(c.run)
	declared := func(name string) bool {
		return slices.ContainsFunc(list, func(e inspector.External) bool { return e.Name == name })
	}
	left, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("looking for the processes of chats, ignoring", "error", err)
	}
	for _, entry := range left {
		if name, _, _ := strings.Cut(entry.Name(), "."); name != "" && !declared(name) {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir) // if there is nothing left
	c.clientele.dismissChats(declared)
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(dir, e.Name+uidSuffix))
		if uid, bad := strconv.Atoi(string(text)); err == nil && bad == nil {
			c.admit(e, uid)
		}
	}
}
