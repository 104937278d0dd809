package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/packet"
	"github.com/pfar/pfar/units/page"
)

// consoles opens the operator's pages for users: for each a process that acts as that user and has that user's rights,
// no others. pfard hands it nothing but the nonce of each link, and what runs, which the user may see.
type consoles struct {
	log     *slog.Logger
	runs    pageRunner
	reports reporter
	enters  entering
	audit   trail.Dir

	mu sync.Mutex
	of map[int]*console // by uid
}

// entering opens the page on which a person gives a server its secrets, and returns the page's link.
type entering func(ctx context.Context, p control.Peer, server string) (string, error)

// reporter sends what runs, now and after each change, until the context ends.
type reporter func(ctx context.Context, send func(control.Response) error) error

// console is the process of one user's pages while it runs.
type console struct {
	uid     int
	reports reporter
	enters  entering
	audit   trail.Dir
	entered chan struct{} // holds one message while a page is being opened
	end     context.CancelFunc
	conn    chan *attach.Conn   // holds the conversation once it has begun
	listens chan attach.Listens // answers to invitations
	gone    chan struct{}       // closed when the process has ended; then why is valid
	why     error
}

var errConsoleGone = errors.New("the process of the console has ended")

func newConsoles(
	log *slog.Logger, runs pageRunner, reports reporter, enters entering, records trail.Dir,
) *consoles {
	return &consoles{log: log, runs: runs, reports: reports, enters: enters, audit: records, of: map[int]*console{}}
}

// link returns a link that lets a person in once, and starts the process if it does not run. Root gets none: the
// process would read and write whatever is root's.
func (c *consoles) link(uid int) (string, error) {
	if uid == 0 {
		return "", fmt.Errorf("%w: root has no console; only members of the group pfar-admin have one", control.ErrDenied)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.of[uid]; old != nil {
		link, err := old.invite()
		if err == nil {
			return link, nil
		}
		old.stop() // it may just have ended, as nobody used it
	}
	s := c.begin(uid)
	link, err := s.invite()
	if err != nil {
		s.stop()
		return "", fmt.Errorf("opening the console: %w", err)
	}
	return link, nil
}

// begin is called with c.mu held.
func (c *consoles) begin(uid int) *console {
	ctx, end := context.WithCancel(context.Background())
	s := &console{
		uid: uid, reports: c.reports, enters: c.enters, audit: c.audit, entered: make(chan struct{}, 1),
		end: end, conn: make(chan *attach.Conn, 1), listens: make(chan attach.Listens, 1),
		gone: make(chan struct{}),
	}
	c.of[uid] = s
	go func() {
		s.why = c.runs.runConsole(ctx, uid, s.talk)
		end()
		if s.why != nil {
			c.log.Warn("the console has ended", "uid", uid, "error", s.why)
		}
		close(s.gone)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[uid] == s {
			delete(c.of, uid)
		}
	}()
	return s
}

// logout ends the console of a user, with all that are signed in there.
func (c *consoles) logout(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.of[uid]; s != nil {
		s.stop()
	}
}

// stop returns when the process has ended.
func (s *console) stop() {
	s.end()
	<-s.gone
}

// invite has the process let in whoever comes with the link. One invitation is under way at a time.
func (s *console) invite() (string, error) {
	start := time.NewTimer(pageStart)
	defer start.Stop()
	ended := func() error { return cmp.Or(s.why, errConsoleGone) }
	late := fmt.Errorf("its process did not listen within %s", pageStart)
	nonce := page.NewNonce()
	invite := attach.Invite{Nonce: nonce, Enters: s.uid == os.Getuid()} // root has no console
	select {
	case conn := <-s.conn:
		s.conn <- conn
		if err := conn.Send(attach.Message{PageTalk: attach.PageTalk{Invite: &invite}}); err != nil {
			return "", err
		}
	case <-s.gone:
		return "", ended()
	case <-start.C:
		return "", late
	}
	select {
	case l := <-s.listens:
		if l.Error != "" || l.Port == 0 {
			return "", errors.New(printable(cmp.Or(l.Error, "its process names no port")))
		}
		return page.Link(nonce, l.Port), nil
	case <-s.gone:
		return "", ended()
	case <-start.C:
		return "", late
	}
}

// talk takes the answers of the process until it has ended.
func (s *console) talk(conn *attach.Conn) {
	if conn.Send(attach.Message{Welcome: &attach.Welcome{}}) != nil {
		return
	}
	s.conn <- conn
	ctx, over := context.WithCancel(context.Background())
	defer over()
	go func() {
		_ = s.reports(ctx, func(r control.Response) error { return hand(conn, r.Status) })
	}()
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return
		}
		attach.CloseAll(files)
		if m.Enter != "" {
			s.enter(ctx, conn, m.Enter)
		}
		if m.Audit {
			s.handAudit(conn)
		}
		if m.Listens == nil {
			continue
		}
		select {
		case s.listens <- *m.Listens:
		default: // nobody has asked
		}
	}
}

// enter opens the page for a server's secrets, and tells the process its link. It opens one page at a time.
func (s *console) enter(ctx context.Context, conn *attach.Conn, server string) {
	answer := func(e attach.Entered) { _ = conn.Send(attach.Message{PageTalk: attach.PageTalk{Entered: &e}}) }
	select {
	case s.entered <- struct{}{}:
	default:
		answer(attach.Entered{Error: "another page is being opened; try again"})
		return
	}
	go func() {
		defer func() { <-s.entered }()
		link, err := s.enters(ctx, control.Peer{UID: s.uid}, server)
		if err != nil {
			answer(attach.Entered{Error: printable(err.Error())})
			return
		}
		answer(attach.Entered{Link: link})
	}()
}

// handAudit hands the process the newest files of the audit, open for reading.
func (s *console) handAudit(conn *attach.Conn) {
	files, records, err := newestFiles(s.audit)
	defer attach.CloseAll(files)
	if err != nil {
		_ = conn.Send(attach.Message{PageTalk: attach.PageTalk{
			Records: &attach.Records{Error: printable(err.Error())},
		}})
		return
	}
	_ = conn.Send(attach.Message{PageTalk: attach.PageTalk{Records: &records}}, files...)
}

// maxNewest is how many files of each chain a console reads. There are two chains, and one message carries
// packet.MaxFiles files.
const maxNewest = 4

// newestFiles opens the newest files of each chain, oldest first.
func newestFiles(dir trail.Dir) (files []*os.File, r attach.Records, err error) {
	chains, err := dir.Chains()
	if err != nil {
		return nil, r, err
	}
	for _, chain := range chains[:min(len(chains), packet.MaxFiles/maxNewest)] {
		paths, err := dir.Files(chain)
		if err != nil {
			return files, r, err
		}
		if old := len(paths) - maxNewest; old > 0 {
			paths, r.More = paths[old:], true
		}
		for _, path := range paths {
			f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
			if errors.Is(err, fs.ErrNotExist) { // it was old
				continue
			}
			if err != nil {
				return files, r, err
			}
			files, r.Chains = append(files, f), append(r.Chains, chain)
		}
	}
	return files, r, nil
}

// hand tells the process of a console what runs.
func hand(conn *attach.Conn, r *control.Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := units.Sealed("report", text)
	if err != nil {
		return err
	}
	defer file.Close()
	return conn.Send(attach.Message{PageTalk: attach.PageTalk{Report: true}}, file)
}
