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
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/packet"
	"github.com/pfar/pfar/units/page"
)

// consoles runs the operator's pages. Each user has a process, which acts as that user with that user's rights alone.
// pfard sends it the nonce of each link, the state of servers, the clients, the catalogue, and the newest files of the
// audit, which the user may read. pfard takes orders from the user who runs pfard, and shows that user logs.
type consoles struct {
	log   *slog.Logger
	runs  pageRunner
	pfard consoleSource
	audit trail.Dir

	mu sync.Mutex
	of map[int]*console // by uid
}

// consoleSource gives consoles their data, and carries out their orders.
type consoleSource interface {
	// reports sends what runs, now and after each change, until the context ends.
	reports(ctx context.Context, send func(control.Response) error) error
	known() attach.Known
	// order carries out an order of a person, and returns its result.
	order(ctx context.Context, p control.Peer, o attach.Order) (attach.Ordered, error)
	// view opens a text for a person; nil: the text is empty. more says that the file has the end of a longer text.
	view(ctx context.Context, p control.Peer, v attach.View) (file *os.File, more bool, err error)
}

// console is a running process: of one user's pages, or of the pages for other machines.
type console struct {
	uid     int // nobody: it serves other machines
	pfard   consoleSource
	audit   trail.Dir
	limit   *rate.Limiter // of orders: each may write audit records
	ordered chan struct{} // holds one while an order is carried out
	asks    *rate.Limiter // of questions for files
	handing chan struct{} // holds one for each question while pfard opens and sends its files

	verifies *verifying
	links    consoleLinks

	log     *slog.Logger
	end     context.CancelFunc
	conn    chan *attach.Conn   // holds the connection to a user's process, once there is one
	listens chan attach.Listens // answers to invitations
	gone    chan struct{}       // closed when the process has ended; why is valid from then on
	why     error
}

var errConsoleGone = errors.New("the process of the console has ended")

func newConsoles(log *slog.Logger, runs pageRunner, pfard consoleSource, records trail.Dir) *consoles {
	return &consoles{log: log, runs: runs, pfard: pfard, audit: records, of: map[int]*console{}}
}

// answer sends a person a link. If the person awaits it, a second answer says whether somebody has used the link.
func (c *consoles) answer(ctx context.Context, p control.Peer, await bool, send func(control.Response) error) error {
	link, err := c.invite(p.UID)
	if err != nil {
		return err
	}
	if err := send(control.Response{Declarations: control.Declarations{Link: link.url}}); err != nil || !await {
		return err
	}
	return send(control.Response{Declarations: control.Declarations{Entered: link.entered(ctx)}})
}

// invite makes a link, and starts the process if it does not run. Root gets no link: the process would have root's
// rights.
func (c *consoles) invite(uid int) (consoleLink, error) {
	if uid == 0 {
		const words = "%w: root has no console; only members of the group pfar-admin have one"
		return consoleLink{}, fmt.Errorf(words, control.ErrDenied)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.of[uid]; old != nil {
		link, err := old.invite()
		if err == nil {
			return link, nil
		}
		old.stop() // it ends by itself when nobody uses it, and may have done so just now
	}
	s := c.begin(uid)
	link, err := s.invite()
	if err != nil {
		s.stop()
		return consoleLink{}, fmt.Errorf("opening the console: %w", err)
	}
	return link, nil
}

// nobody stands where a user has a uid: for people at other machines.
const nobody = -1

func newConsole(uid int, log *slog.Logger, pfard consoleSource, records trail.Dir) *console {
	return &console{
		uid: uid, log: log, limit: rate.NewLimiter(rate.Every(2*time.Second), 30), pfard: pfard, audit: records,
		asks:    rate.NewLimiter(20, 100), // each open page of the audit asks every few seconds
		ordered: make(chan struct{}, 1), handing: make(chan struct{}, maxHanding), verifies: newVerifying(uid),
		conn: make(chan *attach.Conn, 1), listens: make(chan attach.Listens, 1), gone: make(chan struct{}),
	}
}

// begin starts the process of a user. The caller holds c.mu.
func (c *consoles) begin(uid int) *console {
	ctx, end := context.WithCancel(context.Background())
	s := newConsole(uid, c.log, c.pfard, c.audit)
	s.end = end
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

// logout ends the console of a user. That signs out each browser there.
func (c *consoles) logout(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.of[uid]; s != nil {
		s.stop()
	}
}

// stop ends the process, and returns when it has ended.
func (s *console) stop() {
	s.end()
	<-s.gone
}

// invite makes a link, and has the process let in whoever opens it. The caller holds the mutex of consoles.
func (s *console) invite() (l consoleLink, err error) {
	start := time.NewTimer(pageStart)
	defer start.Stop()
	ended := func() error { return cmp.Or(s.why, errConsoleGone) }
	late := fmt.Errorf("the process did not listen within %s", pageStart)
	nonce := page.NewNonce()
	invite := attach.Invite{Nonce: nonce, Orders: s.uid == os.Getuid()} // root has no console
	select {
	case conn := <-s.conn:
		s.conn <- conn
		if err := conn.Send(attach.Message{PageTalk: attach.PageTalk{Invite: &invite}}); err != nil {
			return l, err
		}
	case <-s.gone:
		return l, ended()
	case <-start.C:
		return l, late
	}
	select {
	case at := <-s.listens:
		if at.Error != "" || at.Port == 0 {
			return l, errors.New(printable(cmp.Or(at.Error, "its process names no port")))
		}
		l = s.links.begin(nonce, page.Link(nonce, at.Port), s.gone)
		return l, nil
	case <-s.gone:
		return l, ended()
	case <-start.C:
		return l, late
	}
}

// talk answers the messages of the process until the process has ended.
func (s *console) talk(conn *attach.Conn) {
	if conn.Send(attach.Message{Welcome: &attach.Welcome{}}) != nil {
		return
	}
	select {
	case s.conn <- conn:
	default: // the remote console, which gets no links
	}
	ctx, over := context.WithCancel(context.Background())
	defer over()
	go func() {
		var known attach.Known // as the process has it
		defer conn.Close()     // without news the process would go on with what it knows
		_ = s.pfard.reports(ctx, func(r control.Response) error {
			if now := s.pfard.known(); !reflect.DeepEqual(now, known) {
				if err := hand(conn, now, attach.PageTalk{Known: true}); err != nil {
					return err
				}
				known = now
			}
			return hand(conn, r.Status, attach.PageTalk{Report: true})
		})
	}()
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return
		}
		attach.CloseAll(files)
		if m.Order != nil {
			s.order(ctx, conn, *m.Order)
		}
		if m.Audit != nil {
			s.hands(conn, *m.Audit, func() ([]*os.File, attach.Records, error) { return newestFiles(s.audit) })
		}
		switch {
		case m.View == nil:
		case m.View.What == attach.ViewVerify:
			s.verify(ctx, conn, *m.View)
		default:
			s.hands(conn, m.View.Question, func() ([]*os.File, attach.Records, error) { return s.view(ctx, *m.View) })
		}
		if m.Drop != nil {
			s.verifies.drop(m.Drop.Number)
		}
		if m.Entered != "" {
			s.links.enter(m.Entered)
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

// order carries out an order, and answers it. It carries out one at a time.
func (s *console) order(ctx context.Context, conn *attach.Conn, o attach.Order) {
	answer := func(r attach.Ordered) {
		r.Question = o.Question
		_ = conn.Send(attach.Message{PageTalk: attach.PageTalk{Ordered: &r}})
	}
	select {
	case s.ordered <- struct{}{}:
	default:
		answer(attach.Ordered{Error: "pfard carries out another order; try again"})
		return
	}
	if o.Act != attach.OrderChallenge && !s.limit.Allow() { // a nonce writes no record
		<-s.ordered
		answer(attach.Ordered{Error: "this console gave too many orders; try again in a minute"})
		return
	}
	go func() {
		done, err := s.pfard.order(ctx, control.Peer{UID: s.uid}, o)
		<-s.ordered // before the answer: the order that a nonce is for may follow at once
		if err != nil {
			done = attach.Ordered{Error: printable(err.Error())}
		}
		answer(done)
	}()
}

// opener opens files for the process.
type opener func() ([]*os.File, attach.Records, error)

// maxHanding is how many questions pfard answers with files at the same time. The process asks one after the other. Its
// next question may arrive before pfard has closed the files of the last answer.
const maxHanding = 2

// hands opens files and sends them to the process, for at most maxHanding questions at the same time.
func (s *console) hands(conn *attach.Conn, q attach.Question, open opener) {
	select {
	case s.handing <- struct{}{}:
	default:
		refuse(conn, q, "pfard sends other files at the moment; try again")
		return
	}
	if !s.asks.Allow() {
		<-s.handing
		refuse(conn, q, "this console asked too often; try again in a minute")
		return
	}
	go func() {
		defer func() { <-s.handing }()
		s.handOver(conn, q, open)
	}()
}

// refuse answers a question without files.
func refuse(conn *attach.Conn, q attach.Question, why string) {
	_ = conn.Send(attach.Message{PageTalk: attach.PageTalk{Records: &attach.Records{Question: q, Error: why}}})
}

func (s *console) handOver(conn *attach.Conn, q attach.Question, open opener) {
	opened, records, err := open()
	defer attach.CloseAll(opened)
	files := opened
	if err != nil {
		theirs := func(known error) bool { return errors.Is(err, known) }
		if !slices.ContainsFunc(usual, theirs) {
			s.log.Warn("opening files for a console", "uid", s.uid, "error", err)
		}
		files, records = nil, attach.Records{Error: printable(err.Error())}
	}
	records.Question = q
	_ = conn.Send(attach.Message{PageTalk: attach.PageTalk{Records: &records}}, files...)
}

// usual are the errors of questions that are not logged.
var usual = []error{control.ErrDenied, control.ErrNoServer, control.ErrInvalid, errVerifying, errYielded,
	context.Canceled}

// viewTime is how long pfard may take for a view. A console waits a little longer.
const viewTime = 6 * time.Second

// view is opened within viewTime.
func (s *console) view(ctx context.Context, v attach.View) (files []*os.File, r attach.Records, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, viewTime, errors.New("pfard took too long; try again"))
	defer cancel()
	return s.opened(ctx, v)
}

// opened opens the file of a view.
func (s *console) opened(ctx context.Context, v attach.View) (files []*os.File, r attach.Records, err error) {
	file, more, err := s.pfard.view(ctx, control.Peer{UID: s.uid}, v)
	if file != nil {
		files = append(files, file)
	}
	return files, attach.Records{More: more}, err
}

// A console gets the newest maxNewest files of a chain, and of at most maxChains chains: one message carries
// packet.MaxFiles files. pfar writes two chains.
const (
	maxNewest = 4
	maxChains = packet.MaxFiles / maxNewest
)

// newestFiles opens the newest files of each chain, oldest first.
func newestFiles(dir trail.Dir) (files []*os.File, r attach.Records, err error) {
	chains, err := dir.Chains()
	if err != nil {
		return nil, r, err
	}
	if len(chains) > maxChains {
		chains, r.More = chains[:maxChains], true
	}
	for _, chain := range chains {
		paths, err := dir.Files(chain)
		if err != nil {
			return files, r, err
		}
		if old := len(paths) - maxNewest; old > 0 {
			paths, r.More = paths[old:], true
		}
		for _, path := range paths {
			f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
			if errors.Is(err, fs.ErrNotExist) { // pfard has deleted it: it was old
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

// hand sends a value to the process of a console, as JSON in a file.
func hand(conn *attach.Conn, value any, says attach.PageTalk) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := units.Sealed("console", text)
	if err != nil {
		return err
	}
	defer file.Close()
	return conn.Send(attach.Message{PageTalk: says}, file)
}
